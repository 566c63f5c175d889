"""Records of other protocols in AMQP's encoding."""

from libc.stdint cimport int64_t, uint8_t

from penstock.log_core.batch._batch cimport RecordHeader

# (key block, properties block) of a record that is not in AMQP's encoding, in a batch of that base_ts, as of now
cdef tuple translated(RecordHeader* record, const uint8_t* blob, int64_t base_ts, log)
