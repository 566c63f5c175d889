# cython: auto_pickle=False
"""Fields of log lines as text: two lines of each connection have them. Words in _log_fields.pyi."""

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    unsigned char* PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)


cdef bint plain(str text):
    """Whether it needs no quotes; False for some that need none."""
    cdef Py_ssize_t i, size = PyUnicode_GET_LENGTH(text)
    cdef unsigned char* p
    if size == 0 or not PyUnicode_IS_COMPACT_ASCII(text):
        return False
    p = PyUnicode_1BYTE_DATA(text)
    for i in range(size):
        if p[i] <= 32 or p[i] == 34 or p[i] == 61 or p[i] == 127:    # blank, quote, equals sign, delete
            return False
    return True


def pairs(dict values not None, Py_ssize_t short, other not None):
    cdef list parts = []
    for key, value in values.items():
        parts.append(" ")
        parts.append(key)
        parts.append("=")
        if type(value) is int:
            parts.append(str(value))
        elif type(value) is str and PyUnicode_GET_LENGTH(value) <= short and plain(<str>value):
            parts.append(value)
        else:
            parts.append(other(value))
    return "".join(parts)
