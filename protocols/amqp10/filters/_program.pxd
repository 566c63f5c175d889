"""Filters as a program; words in _program.pyi."""

from libc.stdint cimport int64_t, uint8_t

cdef struct Found:                  # a value
    int kind
    int64_t number                  # of an integer, or a boolean
    double real
    const uint8_t* p                # a text in UTF-8, or bytes
    Py_ssize_t size


cdef struct Node:
    int kind
    int arg                         # a sign, a section, an index of it, a flag: by its kind
    int first, count                # its parts, in `parts`
    int index
    Found constant


cdef struct Section:
    const uint8_t* p                # its value; NULL: it is not there
    Py_ssize_t size


cdef struct Looked:                 # where the sections of a message are
    Section sections[5]             # from the header on


cdef class Program:
    cdef Node* nodes
    cdef int node_count, root
    cdef int* parts
    cdef int part_count
    cdef list kept                  # the objects that constants point into

    # 1: the message passes, 0: it does not, -1: who has the functions has to tell.
    cdef int passes(self, const uint8_t* p, Py_ssize_t n) noexcept

    cdef int add(self, tree) except -1
    cdef int fill(self, int at, tree) except -1
    cdef int take_parts(self, int at, list trees) except -1
    cdef int keep(self, Found* out, value) except -1
    cdef int value(self, int at, const Looked* looked, Found* out) noexcept
    cdef int between(self, const Node* node, const Looked* looked, const Found* one, const Found* low, Found* out) noexcept
    cdef int in_(self, const Node* node, const Looked* looked, Found* out) noexcept
