# cython: auto_pickle=False
"""Tables of arguments to JSON's types and back, for the types that rows have. Words in _tables.pyi.

A start reads and makes hundreds of thousands of these.
"""

from binascii import a2b_base64, b2a_base64

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    unsigned char* PyUnicode_1BYTE_DATA(object)

cdef enum:
    DEPTH_MAX = 64


cdef inline bint ordinary(object text):
    """Whether a text is ASCII, and does not begin with the character that marks a key."""
    return PyUnicode_IS_COMPACT_ASCII(text) and (
        PyUnicode_GET_LENGTH(text) == 0 or PyUnicode_1BYTE_DATA(text)[0] != 0)


def to_json(value, int depth, name not None, other not None):
    cdef dict table
    kind = type(value)
    if kind is int or kind is bool or value is None:
        return value
    if kind is str and PyUnicode_IS_COMPACT_ASCII(value):
        return value
    if depth > DEPTH_MAX:
        return other(value, depth)
    if kind is bytes:
        return {"b": b2a_base64(value, newline=False).decode("ascii")}
    if kind is dict:
        table = {}
        for key, item in (<dict>value).items():
            table[key if type(key) is str and ordinary(key) else name(key)] = to_json(item, depth + 1, name, other)
        return {"o": table}
    if kind is list:
        return [to_json(item, depth + 1, name, other) for item in <list>value]
    return other(value, depth)


def from_json(data, other not None):
    cdef dict table
    if type(data) is dict and len(<dict>data) == 1:
        inner = (<dict>data).get("o")
        if type(inner) is dict:
            table = {}
            for key, item in (<dict>inner).items():
                if not ordinary(key):
                    if PyUnicode_GET_LENGTH(key) and ord(key[0]) == 0:
                        return other(data)
                table[key] = item if type(item) is str or type(item) is int else from_json(item, other)
            return table
        inner = (<dict>data).get("b")
        if type(inner) is str:
            return a2b_base64(inner)
        return other(data)
    if type(data) is list:
        return [from_json(item, other) for item in <list>data]
    return other(data) if type(data) is dict else data
