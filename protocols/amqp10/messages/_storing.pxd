"""A message of AMQP 1.0 as a record has it, made by a kernel. Words in _storing.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef struct Stored:
    const uint8_t* block            # the properties as 0-9-1 has them; valid until the next `store`
    uint32_t block_size
    const uint8_t* body             # points into the message
    Py_ssize_t body_size
    bint durable
    bint has_sections
    uint8_t priority                # 0 when absent
    uint32_t ttl                    # as a record has it
    const uint8_t* user             # the user-id, in the message; NULL when absent
    Py_ssize_t user_size
    const uint8_t* to               # the address that it names itself, in the message; NULL when absent, or no text
    Py_ssize_t to_size
    bint timed                      # it is to be delivered at a time, or after some: the two numbers of ms below
    int64_t time, delay
    bint maybe_topic                # its publisher, in the sense of JMS, may have sent it to a topic

# False: `translate.stored_from_amqp10` is to look at the message.
cdef bint store(const uint8_t* p, Py_ssize_t n, Stored* out) except -1
