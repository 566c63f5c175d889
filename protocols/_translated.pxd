"""Records of other protocols in AMQP's encoding."""

from libc.stdint cimport uint8_t

from penstock.log_core._batch cimport RecordHeader

# (key block, properties block) of a record that is not in AMQP's encoding
cdef tuple translated(RecordHeader* record, const uint8_t* blob)
