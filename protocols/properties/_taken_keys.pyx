"""The ordering keys of messages, for key-shared subscriptions: the header x-key when that is text, else the routing key.

`protocols.http.shared.keys` does the same for one message in Python: consumers of all protocols may share a subscription.
"""

from array import array

from libc.stdint cimport uint8_t, uint16_t, uint32_t

from penstock.log_core.batch._batch cimport ENC_AMQP091, Batch, RecordHeader
from penstock.protocols.properties._tables cimport load32, text_header
from penstock.subscriptions.cursor._keys cimport slot_of
from penstock.subscriptions.cursor._take_result cimport TAKEN, Item


cdef uint32_t slot_of_item(Item* item) noexcept:
    cdef Batch batch = <Batch>item.batch
    cdef RecordHeader* record = &batch.headers[item.index]
    cdef const uint8_t* key = batch.blob + record.off
    cdef const uint8_t* found
    if record.enc != ENC_AMQP091:
        return slot_of(key, record.key)
    found = text_header(key + record.key, record.props, b"x-key", 5)
    if found != NULL:
        return slot_of(found + 5, load32(found + 1))
    if record.key < 2 or 2 + key[0] > record.key:
        return slot_of(key, record.key)
    return slot_of(key + 2 + key[0], record.key - 2 - key[0])


def taken_slots():
    cdef Py_ssize_t i
    cdef object made = array("H", bytes(2 * TAKEN.n))
    cdef uint16_t[::1] slots = made
    for i in range(TAKEN.n):
        slots[i] = <uint16_t>slot_of_item(&TAKEN.items[i])
    return made
