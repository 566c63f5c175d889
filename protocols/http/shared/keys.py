"""A consumer of a key-shared subscription, as its keys see it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import AMQP091
from penstock.router.names import split_key_block, wire
from penstock.subscriptions.cursor._keys import slot

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.protocols.http.shared.traffic import Messages
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.dispatch.assignment import Range

__all__ = ["Keyed", "slot_of"]


class Keyed:
    """A `Taker` of a subscription, as far as keys are concerned."""

    priority = 0

    def __init__(self, name: str, messages: Messages) -> None:
        self.name = name
        self.ranges: list[Range] = []
        self.is_active = False
        """Of a failover subscription: it is the one that gets everything, as it was told."""
        self._messages = messages

    def slots(self, cursor: Cursor) -> array[int]:
        """The slots of the keys of the items of the last take."""
        slots = array("H")
        for at in range(cursor.taken_count):
            batch, index = cursor.record(at)
            slots.append(slot_of(self._messages, batch.record(index)))
        return slots

    def told(self, active: bool) -> None:
        self.is_active = active


def slot_of(messages: Messages, record: Record) -> int:
    """The slot of a record's key: its header x-key when that is text, else what it was routed by.

    As the native protocol has it (`protocols.native.codec._consumer`): consumers of both may share one.
    """
    if record.enc != AMQP091:
        return slot(record.key)
    try:
        key = messages.headers_of(record).get("x-key")
    except PenstockError:
        key = None
    if isinstance(key, str | bytes | bytearray):
        return slot(wire(key) if isinstance(key, str) else bytes(key))
    _, routing_key = split_key_block(record.key) or ("", record.key)
    return slot(routing_key)
