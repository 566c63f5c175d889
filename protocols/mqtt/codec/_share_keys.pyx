# cython: auto_pickle=False
"""By which key a shared subscription tells messages apart: their topic, or the client that published them.

The slot of a key is that of `_keys`. A message of another protocol has the topic that MQTT gives it; all that came from
no MQTT session are of one publisher.
"""

from libc.stdint cimport uint16_t

from array import array

from penstock.log_core.batch._batch cimport KIND_LOST, Batch
from penstock.protocols.mqtt.codec._deliver cimport Deliverer
from penstock.protocols.mqtt.codec._publish cimport Message
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._keys cimport slot_of
from penstock.subscriptions.cursor._take_result cimport TAKEN, Item


def topic_slots(Deliverer deliverer not None, Cursor cursor not None):
    cdef Py_ssize_t i
    cdef Item* item
    cdef Message message
    cdef object made = array("H", bytes(2 * TAKEN.n))
    cdef uint16_t[::1] slots = made
    for i in range(TAKEN.n):
        item = &TAKEN.items[i]
        if (<Batch>item.batch).kind != KIND_LOST and deliverer.read(<Batch>item.batch, item.index, 0, True, &message):
            slots[i] = <uint16_t>slot_of(message.topic, message.topic_size)
    return made


def publisher_slots(Cursor cursor not None):
    cdef Py_ssize_t i
    cdef Item* item
    cdef object made = array("H", bytes(2 * TAKEN.n))
    cdef uint16_t[::1] slots = made
    for i in range(TAKEN.n):
        item = &TAKEN.items[i]
        if (<Batch>item.batch).origins != NULL:
            slots[i] = <uint16_t>((<Batch>item.batch).origins[item.index] & 0xFFFF)
    return made
