"""See _header_edit.pyx."""

from libc.stdint cimport uint8_t, uint16_t

from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class HeaderEdit:
    cdef Py_ssize_t _frame_max
    cdef str _end
    cdef list _properties           # their bytes by place, or None
    cdef uint16_t _replaced         # the flags of these
    cdef uint16_t _removed
    cdef bytes _array               # names of headers, or None
    cdef bytes _stamp
    cdef tuple _firsts              # of the array: when a message comes the first time, and again
    cdef tuple _here                # cluster and vhost; None: no message is kept out
    cdef Py_ssize_t _max_hops
    cdef tuple _visited             # URI and queue; None: visits are not counted
    cdef bint _lowers_copies
    cdef Py_ssize_t _added          # bytes that a header may grow by
    cdef int put(self, OutBuffer out, const uint8_t* frame, Py_ssize_t size, bint redelivered) except -1
    cdef uint8_t* _put_table(
        self, uint8_t* p, const uint8_t* entries, const uint8_t* end, bint redelivered
    ) noexcept
    cdef uint8_t* _put_array(
        self, uint8_t* p, const uint8_t* entries, const uint8_t* end, bint redelivered
    ) noexcept
