"""Records of MQTT as AMQP and native consumers get them: translated once while key and properties repeat.

The message expiry interval, which counts down while a message waits, becomes the time that is left.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t

from penstock.log_core.batch._batch cimport ENC_MQTT5, RecordHeader

from penstock.protocols.properties.translate import amqp091_from_mqtt5

cdef enum:
    TRANSLATIONS_MAX = 4096     # 4 MiB at most: larger keys and properties are not remembered
    EXPIRATION = 0x0100         # bit of the property flags


cdef dict translations = {}     # (encoding, flags, key block, properties) -> (key block, properties)


cdef tuple translated(RecordHeader* record, const uint8_t* blob, int64_t base_ts, log):
    """Key block and properties of a record of another protocol, remembered while they repeat."""
    cdef bytes key = blob[:record.key]
    cdef bytes props = blob[record.key:record.key + record.props]
    cdef tuple wanted = (record.enc, record.flags, key, props)
    found = translations.get(wanted)
    if found is None:
        if record.enc == ENC_MQTT5:
            found = amqp091_from_mqtt5(key, props, record.flags)
        else:
            # No words of ours: an empty exchange, the key as far as it goes, no properties.
            key = key[:255]
            found = (b"\0" + bytes((len(key),)) + key, b"\0\0")
        if len(key) + len(props) < 1024:
            if len(translations) >= TRANSLATIONS_MAX:
                translations.clear()
            translations[wanted] = found
    if record.ttl and record.enc == ENC_MQTT5:
        return found[0], _counted_down(found[1], <int64_t>log.now_ms() - base_ts - <int64_t>record.ts)
    return found


cdef bytes _counted_down(bytes props, int64_t elapsed_ms):
    """Properties that we made, with that much less `expiration`."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(props)
    cdef int flags = p[0] << 8 | p[1]
    cdef Py_ssize_t at = 2, end
    if not flags & EXPIRATION:
        return props
    for bit in (0x8000, 0x4000):            # content-type, content-encoding
        if flags & bit:
            at += 1 + p[at]
    if flags & 0x2000:                      # headers
        at += 4 + (p[at] << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3])
    at += ((flags & 0x1000) != 0) + ((flags & 0x0800) != 0)     # delivery-mode, priority
    for bit in (0x0400, 0x0200):            # correlation-id, reply-to
        if flags & bit:
            at += 1 + p[at]
    end = at + 1 + p[at]
    left = b"%d" % max(int(props[at + 1:end]) - max(elapsed_ms, 0), 0)
    return props[:at] + bytes((len(left),)) + left + props[end:]
