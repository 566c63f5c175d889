# cython: auto_pickle=False
"""Fields of log lines as text: two lines of each connection have them. Words in _log_fields.pyi."""

from libc.time cimport gmtime_r, time_t, tm

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    unsigned char* PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)


cdef long long last_second = -1
cdef str last_text = ""


def moment(double seconds):
    global last_second, last_text
    cdef long long second = <long long>seconds, ms = <long long>(seconds * 1000.0) % 1000
    cdef time_t at = <time_t>second
    cdef tm now
    if second != last_second:
        gmtime_r(&at, &now)
        last_text = (f"{now.tm_year + 1900:04d}-{now.tm_mon + 1:02d}-{now.tm_mday:02d}"
                     f"T{now.tm_hour:02d}:{now.tm_min:02d}:{now.tm_sec:02d}.")
        last_second = second
    return f"{last_text}{ms:03d}Z"


cdef enum:
    ODD = 0
    PLAIN = 1
    BLANKS = 2


cdef int kind(str text):
    """PLAIN: it needs no quotes; BLANKS: it needs quotes and nothing else; ODD: it has to be looked at closer."""
    cdef Py_ssize_t i, size = PyUnicode_GET_LENGTH(text)
    cdef unsigned char* p
    cdef int found = PLAIN
    if size == 0 or not PyUnicode_IS_COMPACT_ASCII(text):
        return ODD
    p = PyUnicode_1BYTE_DATA(text)
    for i in range(size):
        if p[i] < 32 or p[i] == 34 or p[i] == 92 or p[i] == 127:    # control, quote, backslash, delete
            return ODD
        if p[i] == 32 or p[i] == 61:                                # blank, equals sign
            found = BLANKS
    return found


def pairs(dict values not None, Py_ssize_t short, other not None):
    cdef list parts = []
    cdef int found
    for key, value in values.items():
        parts.append(" ")
        parts.append(key)
        parts.append("=")
        if type(value) is int:
            parts.append(str(value))
            continue
        found = kind(<str>value) if type(value) is str and PyUnicode_GET_LENGTH(value) <= short else ODD
        if found == PLAIN:
            parts.append(value)
        elif found == BLANKS:
            parts.append('"')
            parts.append(value)
            parts.append('"')
        else:
            parts.append(other(value))
    return "".join(parts)


def only(logger, handler not None):
    cdef list found
    cdef bint is_there = False
    if logger.filters or handler.filters:
        return False
    while logger is not None:
        found = logger.handlers
        if found:
            if is_there or len(found) > 1 or found[0] is not handler:
                return False
            is_there = True
        if not logger.propagate:
            break
        logger = logger.parent
    return is_there
