# cython: language_level=3
"""User properties of packets that Python reads: a CONNECT of 64 KiB has room for thousands of them."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t

from penstock.protocols.mqtt.codec._wire cimport is_text, u16

cdef enum:
    USER_PROPERTY = 0x26


cdef inline Py_ssize_t text_end(const uint8_t* p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The end of the text at `at`; -1 when it does not end, -2 when it is none."""
    cdef Py_ssize_t size
    if end - at < 2:
        return -1
    size = u16(p + at)
    if end - at - 2 < size:
        return -1
    return at + 2 + size if is_text(p + at + 2, size) else -2


def read_pairs(const uint8_t[::1] data not None, Py_ssize_t at, Py_ssize_t end, list into not None):
    cdef const uint8_t* p
    cdef Py_ssize_t middle, stop
    if not 0 <= at <= end <= data.shape[0]:
        raise ValueError("[at, end) is not inside the data")
    if at == end:
        return at
    p = &data[0]
    while at < end and p[at] == USER_PROPERTY:
        middle = text_end(p, at + 1, end)
        if middle < 0:
            return middle
        stop = text_end(p, middle, end)
        if stop < 0:
            return stop
        into.append((PyUnicode_DecodeUTF8(<const char*>p + at + 3, middle - at - 3, NULL),
                     PyUnicode_DecodeUTF8(<const char*>p + middle + 2, stop - middle - 2, NULL)))
        at = stop
    return at
