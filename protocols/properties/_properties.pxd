"""The properties of a message, walked once in C. The words are in _properties.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef struct Properties:
    uint32_t ttl                # ms from `expiration`; 0 = none
    uint8_t delivery_mode       # 0 when absent
    uint8_t priority
    uint8_t user_id_size
    bint special                # Python must look: CC, BCC, x-penstock-* or x-mqtt-retain, a bad expiration, a reply-to of the broker's
    const uint8_t* user_id      # NULL when absent; points into the block

# Walks the n bytes at p: property flags and property list. 0 and `out` filled, or -1: malformed.
cdef int read_properties(const uint8_t* p, Py_ssize_t n, Properties* out) noexcept nogil
