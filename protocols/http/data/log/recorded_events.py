"""Events as the log has them (docs/reference/format.md): those of one message, and who published it.

A record has all events of a turn. Only the wanted ones are decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.subscriptions.cursor._events import KINDS

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record

__all__ = ["RecordedEvent", "events_of", "needle", "publish_of"]

_HEAD: Final = struct.Struct("<IIII")
_EVENT: Final = struct.Struct("<QIIIIIBBH")
_SIZE: Final = struct.Struct("<I")
_VERSION: Final = 1
_PUBLISH: Final = KINDS.index("publish")


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event."""

    at_ms: int
    kind: str
    vhost: str
    queue: str
    connection: str
    user: str
    detail: str
    redelivered: bool

    def shown(self, *, names: bool) -> dict[str, Any]:
        """For JSON; `names`: with the connection and the user."""
        item: dict[str, Any] = {
            "at": self.at_ms,
            "kind": self.kind,
            "queue": self.queue,
            "detail": self.detail,
        }
        if self.kind == "deliver":
            item["redelivered"] = self.redelivered
        if names:
            item |= {"connection": self.connection, "user": self.user}
        return item


def needle(lsn: int) -> bytes:
    """Bytes that every record with an event of this message has."""
    return lsn.to_bytes(8, "little")


def events_of(record: Record, lsn: int) -> Iterator[RecordedEvent]:
    """The events of one message in a record, but for that of its publishing."""
    body, wanted = record.body, needle(lsn)
    end = _end(record)
    at = body.find(wanted, _HEAD.size, end)
    while at >= 0:
        if (at - _HEAD.size) % _EVENT.size == 0:
            fields = _EVENT.unpack_from(body, at)
            if fields[6] != _PUBLISH:
                yield _event(record, fields, end)
        at = body.find(wanted, at + 1, end)


def publish_of(record: Record, lsn: int) -> RecordedEvent | None:
    """The event that says who published a message, if the record has it."""
    end = _end(record)
    for fields in _EVENT.iter_unpack(record.body[_HEAD.size : end]):
        if fields[6] == _PUBLISH and fields[0] <= lsn < fields[0] + fields[8]:
            return _event(record, fields, end)
    return None


def _end(record: Record) -> int:
    """Behind the events. 0: it is of a version that this gateway does not know."""
    version, count, _, _ = _HEAD.unpack_from(record.body)
    return _HEAD.size + count * _EVENT.size if version == _VERSION else 0


def _event(record: Record, fields: tuple[int, ...], end: int) -> RecordedEvent:
    names = _names(record.body, end)
    _, vhost, queue, connection, user, detail, kind, redelivered, _ = fields
    return RecordedEvent(
        record.ts,
        KINDS[kind] if kind < len(KINDS) else "unknown",
        names[vhost],
        names[queue],
        names[connection],
        names[user],
        names[detail],
        bool(redelivered),
    )


def _names(body: bytes, at: int) -> list[str]:
    names = [""]
    while at < len(body):
        (size,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size
        names.append(body[at : at + size].decode("utf-8", "surrogateescape"))
        at += size
    return names
