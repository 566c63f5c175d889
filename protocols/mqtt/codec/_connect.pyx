# cython: auto_pickle=False
"""CONNECT, and the ordinary one, of which a storm brings thousands. Words in _connect.pyi.

Source: MQTT 5.0 section 3.1.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

cdef enum:
    CONNECT = 0x10
    HEAD = 12                   # the variable header of both versions: name, level, flags, keep-alive
    CLEAN = 0x02
    USER_NAME = 0x80
    PASSWORD = 0x40


cdef Py_ssize_t field(const uint8_t* p, Py_ssize_t at, Py_ssize_t end, bint printable) noexcept:
    """Where the field that begins at `at` ends; -1: it is cut off, or has to be looked at closer."""
    cdef Py_ssize_t i, stop
    if end - at < 2:
        return -1
    stop = at + 2 + (p[at] << 8 | p[at + 1])
    if stop > end:
        return -1
    if printable:
        for i in range(at + 2, stop):
            if p[i] < 32 or p[i] > 126:
                return -1
    return stop


cdef class Connect:
    def __init__(self, int version, str client_id not None, bint clean_start, int keep_alive_s, str user_name=None,
                 bytes password=None, will=None, dict properties=None, bint bridge=False):
        self.version = version
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.user_name = user_name
        self.password = password
        self.will = will
        self.properties = {} if properties is None else properties
        self.bridge = bridge


cdef Connect ordinary(bytearray data, Py_ssize_t size, Py_ssize_t* behind):
    cdef const uint8_t* p = <const uint8_t*>PyByteArray_AS_STRING(data)
    cdef Py_ssize_t at = 2, end, stop
    cdef int version, flags, keep_alive_s
    cdef str client_id, user_name = None
    cdef bytes password = None
    cdef Connect found
    size = min(size, PyByteArray_GET_SIZE(data))
    if size < 2 + HEAD or p[0] != CONNECT:
        return None
    end = p[1]
    if end >= 128:
        if p[2] == 0 or p[2] >= 128:
            return None
        end = (end & 127) | p[2] << 7
        at = 3
    end += at
    if end > size or end - at < HEAD or memcmp(p + at, b"\0\4MQTT", 6) != 0:
        return None
    version, flags, keep_alive_s = p[at + 6], p[at + 7], p[at + 8] << 8 | p[at + 9]
    at += 10
    if (version != 4 and version != 5) or flags & ~(CLEAN | USER_NAME | PASSWORD):
        return None
    if version == 5:
        if p[at] != 0:
            return None
        at += 1
    elif flags & PASSWORD and not flags & USER_NAME:
        return None
    stop = field(p, at, end, True)
    if stop <= at + 2:
        return None
    client_id = PyUnicode_DecodeASCII(<const char*>p + at + 2, stop - at - 2, NULL)
    at = stop
    if flags & USER_NAME:
        stop = field(p, at, end, True)
        if stop < 0:
            return None
        user_name = PyUnicode_DecodeASCII(<const char*>p + at + 2, stop - at - 2, NULL)
        at = stop
    if flags & PASSWORD:
        stop = field(p, at, end, False)
        if stop < 0:
            return None
        password = PyBytes_FromStringAndSize(<const char*>p + at + 2, stop - at - 2)
        at = stop
    if at != end:
        return None
    behind[0] = end
    found = Connect.__new__(Connect)
    found.version = version
    found.client_id = client_id
    found.clean_start = flags & CLEAN != 0
    found.keep_alive_s = keep_alive_s
    found.user_name = user_name
    found.password = password
    found.properties = {}
    return found
