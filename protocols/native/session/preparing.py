"""Half messages of one connection: prepared, decided, asked about (`router.messages.half`).

PREPARE    request u32 | record                               the id is the producer's handle
CHECK      transaction u64 | checks u32 | record              to a producer: what became of it?
record     properties size u32 | body size u32 | properties | body
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import PERSISTENT
from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._producer import split_records
from penstock.protocols.native.codec.errors import RequestError
from penstock.protocols.native.codec.frames import Fields
from penstock.protocols.native.session.producing import check_records, open_route
from penstock.protocols.properties._properties import parse
from penstock.router.messages.half import Half, HalfMessage, Place, Rules

if TYPE_CHECKING:
    from penstock.protocols.native.session.session import Session

__all__ = ["Preparing", "rules_of"]

_PREPARE: Final = struct.Struct(">I")
_CHECK: Final = struct.Struct(">QI")
_SIZES: Final = struct.Struct(">II")
_SHORTEST_MS: Final = 100


def rules_of(fields: Fields) -> Rules:
    """A producer's options for its half messages. Raises RequestError."""
    usual = Rules()
    day_ms = 86_400_000
    return Rules(
        fields.number("check_after_ms", usual.check_after_ms, least=_SHORTEST_MS, most=day_ms),
        fields.number("check_each_ms", usual.check_each_ms, least=_SHORTEST_MS, most=day_ms),
        fields.number("max_checks", usual.max_checks, least=1, most=1000),
        fields.number("expires_ms", usual.expires_ms, least=_SHORTEST_MS, most=365 * day_ms),
        fields.text("dead_letter", usual.dead_letter),
    )


class Preparing:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._producers: dict[int, tuple[Place, Rules, Callable[[], None]]] = {}
        """By handle; last, what ends being asked."""

    def open(self, handle: int, key: bytes, group: str, rules: Rules) -> None:
        """The producer of this handle prepares messages, and answers for those of its group."""
        session = self._session
        place = Place(session.vhost.name, session.identity.username, group, key)

        def ask(half: Half, message: HalfMessage) -> None:
            sizes = _SIZES.pack(len(message.props), len(message.body))
            payload = b"".join((_CHECK.pack(half.id, half.checks), sizes, message.props, message.body))
            session.codec.send(kinds.CHECK, handle, payload)
            session.dirty()

        self._producers[handle] = place, rules, session.broker.halves.watch(place, ask)

    def close(self, handle: int) -> None:
        """The handle is closed; fine when it prepares nothing."""
        if (producer := self._producers.pop(handle, None)) is not None:
            producer[2]()

    def lost(self) -> None:
        """The connection is gone: others of the group are asked."""
        for handle in list(self._producers):
            self.close(handle)

    def prepare(self, handle: int, payload: bytes) -> None:
        """PREPARE: keep a message until its transaction is decided; answered with its number."""
        session = self._session
        if len(payload) < _PREPARE.size:
            session.fault("malformed", f"PREPARE has at least {_PREPARE.size} bytes")
            return
        (request,) = _PREPARE.unpack_from(payload)
        try:
            if handle not in self._producers:
                raise RequestError(
                    "unknown_handle",
                    f"there is no producer {handle} with a group",
                    remedy="open one with the field group",
                )
            place, rules, _ = self._producers[handle]
            message = self._message(place.key, payload[_PREPARE.size :])
            id, lsn = session.broker.halves.prepare(session.identity, place, rules, message)
        except PenstockError as error:
            session.answer_error(request, error)
        else:
            session.answer(request, {"transaction": id}, lsn)

    def _message(self, key: bytes, record: bytes) -> HalfMessage:
        check_records(self._session.codec, record, 1)
        open_route(self._session, key)
        ((props, body),) = split_records(record, 1)
        found = parse(props)
        assert found is not None
        mode, priority, ttl_ms, _, _ = found
        return HalfMessage(props, body, PERSISTENT if mode == 2 else 0, priority, ttl_ms)

    def decide(self, transaction: int, commit: bool) -> tuple[dict[str, int], int]:
        """Publish it, or forget it: the answer, and the LSN to wait for.

        Raises:
            RequestError: it is not to be decided any more.
            RoutingError: it cannot be published.

        """
        session = self._session
        halves = session.broker.halves
        half = halves.find(transaction, session.vhost.name, session.identity.username)
        if not commit:
            return {}, halves.rollback(half)
        open_route(session, half.place.key)
        position, lsn = halves.commit(half)
        return {"position": position}, lsn
