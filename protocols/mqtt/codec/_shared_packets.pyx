"""Runs of packets that sessions share: encoded once, copied by whoever delivers the same.

A run is known by the records it has (the batch, the feed, its first entry and how many) and by what shapes its
bytes. It is noted at its first sight and kept at its second, so that a feed with one session never pays for it.
There are eight, for the process; the oldest makes room. A run owns a reference to its batch: no other batch can
have that address meanwhile.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.subscriptions.cursor._take_result cimport TAKEN

cdef enum:
    RUNS = 8
    RUN_BYTES_MAX = 1048576

cdef extern from "Python.h":
    void Py_INCREF_ "Py_INCREF"(void* o)
    void Py_XDECREF_ "Py_XDECREF"(void* o)

cdef Run _runs[RUNS]
cdef int _next_run = 0
for _i in range(RUNS):
    _runs[_i].batch = NULL
    _runs[_i].ids = NULL
    _runs[_i].data = NULL


cdef Run* find_run(int version, int qos, bint retain_as_published, bytes ids) noexcept:
    """The run that was taken from a cursor just now, in these bytes; NULL = it was not seen lately."""
    cdef int i
    cdef Run* run
    for i in range(RUNS):
        run = &_runs[i]
        if (run.batch == <void*>TAKEN.items[0].batch and run.first == TAKEN.run_first
                and run.feed == TAKEN.run_feed and run.count == TAKEN.run_count
                and run.index == TAKEN.items[0].index and run.version == version
                and run.retain_as_published == retain_as_published and run.qos == qos
                and PyBytes_GET_SIZE(<bytes>run.ids) == PyBytes_GET_SIZE(ids)
                and memcmp(PyBytes_AS_STRING(<bytes>run.ids), PyBytes_AS_STRING(ids), PyBytes_GET_SIZE(ids)) == 0):
            return run
    return NULL


cdef void note_run(int version, int qos, bint retain_as_published, bytes ids) noexcept:
    """It was seen: the next one who takes the same finds it."""
    global _next_run
    cdef Run* run = &_runs[_next_run]
    _next_run = (_next_run + 1) % RUNS
    _forget_run(run)
    run.batch = <void*>TAKEN.items[0].batch
    Py_INCREF_(run.batch)
    run.ids = <void*>ids
    Py_INCREF_(run.ids)
    run.feed = TAKEN.run_feed
    run.first = TAKEN.run_first
    run.count = TAKEN.run_count
    run.index = TAKEN.items[0].index
    run.version = version
    run.qos = qos
    run.retain_as_published = retain_as_published


cdef void keep_run(Run* run, const uint8_t* data) noexcept:
    """Keep the run's bytes, run.size of them, for those who come after, if there is memory for them."""
    if run.size <= RUN_BYTES_MAX:
        run.data = <uint8_t*>malloc(run.size)
        if run.data != NULL:
            memcpy(run.data, data, run.size)


cdef void _forget_run(Run* run) noexcept:
    free(run.data)
    run.data = NULL
    run.size = 0
    Py_XDECREF_(run.batch)
    Py_XDECREF_(run.ids)
    run.batch = NULL
    run.ids = NULL


def forget_runs():
    """Drop every shared run: nothing keeps a batch of a closed log alive."""
    cdef int i
    for i in range(RUNS):
        _forget_run(&_runs[i])
