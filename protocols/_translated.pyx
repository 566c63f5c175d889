"""Records of MQTT as AMQP and native consumers get them: translated once while key and properties repeat."""

from libc.stdint cimport uint8_t

from penstock.log_core._batch cimport ENC_MQTT5, RecordHeader

from penstock.protocols.translate import amqp091_from_mqtt5

cdef enum:
    TRANSLATIONS_MAX = 4096     # 4 MiB at most: larger keys and properties are not remembered


cdef dict translations = {}     # (encoding, flags, key block, properties) -> (key block, properties)


cdef tuple translated(RecordHeader* record, const uint8_t* blob):
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
    return found
