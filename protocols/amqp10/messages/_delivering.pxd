"""A record as a message of AMQP 1.0, made by a kernel. Words in _delivering.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef struct Payload:                # head, body, foot, one behind the other
    const uint8_t* head             # valid until the next `deliverable`
    Py_ssize_t head_size
    const uint8_t* body             # points into the record
    Py_ssize_t body_size
    const uint8_t* foot             # points into the record
    Py_ssize_t foot_size

cdef struct Told:                   # what its sections say beside the record
    uint32_t count                  # deliveries before that failed
    uint32_t acquired               # all deliveries before
    bint counts                     # annotations tell of both
    int64_t ttl_left                # ms; -1: it does not expire
    int64_t offset                  # in its stream; -1: it is of none

# False: `translate.amqp10_from_stored` is to look at it. `sections`: the record has the flag SECTIONS.
cdef bint deliverable(const uint8_t* key, Py_ssize_t key_size, const uint8_t* props, Py_ssize_t props_size,
                      const uint8_t* body, Py_ssize_t body_size, bint sections, const Told* told, Payload* out) except -1
