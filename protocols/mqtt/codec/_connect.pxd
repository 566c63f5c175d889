"""CONNECT. Words in _connect.pyi."""


cdef class Connect:
    cdef public int version, keep_alive_s
    cdef public str client_id, user_name
    cdef public bint clean_start, bridge
    cdef public bytes password
    cdef public object will
    cdef public dict properties


# The CONNECT in front of data[0:size], which ends at `behind`, if it is whole and an ordinary one: MQTT 3.1.1 or
# 5.0, no will, no properties, a client id, and texts of printable ASCII. For any other packet the answer is None,
# and `packets.decode_connect` says what it is.
cdef Connect ordinary(bytearray data, Py_ssize_t size, Py_ssize_t* behind)
