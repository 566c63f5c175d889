# cython: auto_pickle=False
"""Fields of log lines as text: two lines of each connection have them. Words in _log_fields.pyi."""

from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.string cimport memcpy
from libc.time cimport gmtime_r, time_t, tm

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    unsigned char* PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1


cdef long long last_second = -1
cdef char[MOMENT] last_text         # of that second


cdef void two(char* to, int value) noexcept:
    to[0] = <char>(48 + value // 10 % 10)
    to[1] = <char>(48 + value % 10)


cdef Py_ssize_t write_moment(char* to, double seconds) noexcept:
    """Write a time, as `moment` says, into to[0:MOMENT]; how many bytes it has."""
    global last_second
    cdef long long second = <long long>seconds
    cdef int ms = <int>(<long long>(seconds * 1000.0) % 1000)
    cdef time_t at = <time_t>second
    cdef tm now
    if second != last_second:
        gmtime_r(&at, &now)
        memcpy(last_text, b"0000-00-00T00:00:00.000Z", MOMENT)
        two(last_text, (now.tm_year + 1900) // 100)
        two(last_text + 2, (now.tm_year + 1900) % 100)
        two(last_text + 5, now.tm_mon + 1)
        two(last_text + 8, now.tm_mday)
        two(last_text + 11, now.tm_hour)
        two(last_text + 14, now.tm_min)
        two(last_text + 17, now.tm_sec)
        last_second = second
    memcpy(to, last_text, MOMENT)
    to[20] = <char>(48 + ms // 100)
    two(to + 21, ms % 100)
    return MOMENT


def moment(double seconds):
    cdef char[MOMENT] text
    return PyUnicode_DecodeASCII(text, write_moment(text, seconds), NULL)


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


cdef enum:
    DIGITS = 24                     # of an int of C, with its sign


cdef Py_ssize_t digits(char* to, long long value) noexcept:
    """Write a number; how many bytes it has."""
    cdef char[DIGITS] found
    cdef unsigned long long left = <unsigned long long>value if value >= 0 else -<unsigned long long>value
    cdef Py_ssize_t n = 0, i = 0
    while True:
        found[n] = <char>(48 + left % 10)
        n += 1
        left //= 10
        if not left:
            break
    if value < 0:
        to[0] = 45
        i = 1
    while n:
        n -= 1
        to[i] = found[n]
        i += 1
    return i


cdef Py_ssize_t quickly(dict values, Py_ssize_t short, char* to) except -2:
    """`pairs` of values of which no one has to be looked at closer, into to[0:SMALL]; -1: of others, or too long."""
    cdef Py_ssize_t n = 0, size
    cdef int found, overflow = 0
    cdef long long number
    for key, value in values.items():
        if type(key) is not str or not PyUnicode_IS_COMPACT_ASCII(key):
            return -1
        size = PyUnicode_GET_LENGTH(key)
        if n + size + DIGITS + 2 > SMALL:
            return -1
        to[n] = 32
        memcpy(to + n + 1, PyUnicode_1BYTE_DATA(key), size)
        to[n + 1 + size] = 61
        n += size + 2
        if type(value) is int:
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow:
                return -1
            n += digits(to + n, number)
            continue
        if type(value) is not str or PyUnicode_GET_LENGTH(value) > short:
            return -1
        found = kind(<str>value)
        size = PyUnicode_GET_LENGTH(value)
        if found == ODD or n + size + 2 > SMALL:
            return -1
        if found == BLANKS:
            to[n] = to[n + size + 1] = 34
            memcpy(to + n + 1, PyUnicode_1BYTE_DATA(value), size)
            n += size + 2
        else:
            memcpy(to + n, PyUnicode_1BYTE_DATA(value), size)
            n += size
    return n


cpdef str pairs(dict values, Py_ssize_t short, other):
    cdef char[SMALL] quick
    cdef Py_ssize_t size = quickly(values, short, quick)
    if size >= 0:
        return PyUnicode_DecodeASCII(quick, size, NULL)
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


cpdef bint only(logger, handler) except -1:
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
