# cython: auto_pickle=False
"""Lines of events: two for each connection. They are gathered, and written together. Words in _log_lines.pyi.

Such a line makes no record of the logging module where our own handler, for people, is the only one; it is put
together in one buffer.
"""

from threading import get_ident

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from penstock._log_fields cimport MOMENT, SMALL, only, pairs, quickly, write_moment

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    unsigned char* PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)

cdef enum:
    INFO = 20
    GATHERED_MAX = 256
    HEAD = 256                      # bytes of a line in front of its fields

cdef object HANDLER = None          # for people; None: there is none, or its lines have another form
cdef object SLOWLY = None           # called with an event that is not for HANDLER alone
cdef object WRITE = None            # called when the lines are to be written
cdef object OTHER = None            # the text of a value that has to be looked at closer
cdef Py_ssize_t SHORT = 0
cdef dict COMMON = {}
cdef list GATHERED = []
cdef object LATER = None            # calls a function of the loop soon, of the thread below
cdef object GATHERER = 0


def use(handler, slowly not None, write not None, other not None, Py_ssize_t short):
    global HANDLER, SLOWLY, WRITE, OTHER, SHORT
    HANDLER, SLOWLY, WRITE, OTHER, SHORT = handler, slowly, write, other, short


def common(dict values not None):
    COMMON.update(values)


def gather(later):
    global LATER, GATHERER
    LATER, GATHERER = later, get_ident()


def gathered_lines():
    global GATHERED
    lines, GATHERED = GATHERED, []
    return lines


cdef str head_and_fields(str name, str message, dict values):
    """The line; None: it has to be put together slowly."""
    cdef char[HEAD + SMALL + 1] text
    cdef Py_ssize_t n = 0, size
    if name is None or message is None:
        return None
    if not (PyUnicode_IS_COMPACT_ASCII(name) and PyUnicode_IS_COMPACT_ASCII(message)):
        return None
    if MOMENT + 8 + PyUnicode_GET_LENGTH(name) + PyUnicode_GET_LENGTH(message) > HEAD:
        return None
    n = write_moment(text, now())
    memcpy(text + n, b" INFO ", 6)
    n += 6
    size = PyUnicode_GET_LENGTH(name)
    memcpy(text + n, PyUnicode_1BYTE_DATA(name), size)
    n += size
    text[n] = 32
    n += 1
    size = PyUnicode_GET_LENGTH(message)
    memcpy(text + n, PyUnicode_1BYTE_DATA(message), size)
    n += size
    size = quickly(values, SHORT, text + n)
    if size < 0:
        return None
    n += size
    text[n] = 10
    return text[:n + 1].decode("ascii")


cdef double now() noexcept:
    cdef timespec at
    clock_gettime(CLOCK_REALTIME, &at)
    return <double>at.tv_sec + <double>at.tv_nsec * 1e-9


cpdef event(logger, str message, dict values):
    cdef char[MOMENT] text
    cdef str line
    if not logger.isEnabledFor(INFO):
        return
    if HANDLER is None or not only(logger, HANDLER):
        SLOWLY(logger, message, values)
        return
    if COMMON:
        values = {**COMMON, **values}
    line = head_and_fields(logger.name, message, values)
    if line is None:
        line = (f"{PyBytes_FromStringAndSize(text, write_moment(text, now())).decode('ascii')} INFO {logger.name} "
                f"{message}{pairs(values, SHORT, OTHER)}\n")
    GATHERED.append(line)
    if LATER is None or get_ident() != GATHERER or len(GATHERED) >= GATHERED_MAX:
        WRITE()
    elif len(GATHERED) == 1:
        LATER(WRITE)
