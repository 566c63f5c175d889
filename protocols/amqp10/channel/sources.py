"""Places of a link that have to be looked for: in a stream, in a queue's past, in a named subscription.

A named subscription is what the native protocol and HTTP make, too. The properties of the link say how one
that is not there begins; with none of them, one that is there is taken as it is.

    penstock:kind               shared (default), exclusive, failover, key_shared
    penstock:start              latest (default), earliest, or a moment: see `router.queues.start_position`
    penstock:durable            a boolean, true by default: it survives a restart, and its last receiver
    penstock:nack-min-ms, penstock:nack-max-ms
    penstock:max-deliveries, penstock:dead-letter       the name of a queue
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.router.queues.backfill import find_position
from penstock.router.queues.replays import find_replay
from penstock.router.queues.start_position import StartPosition, parse_since
from penstock.router.queues.stream_start import find_offset, stream_start
from penstock.subscriptions.dispatch.strategies import Kind

if TYPE_CHECKING:
    from penstock.protocols.amqp10.session.session import Session
    from penstock.router.broker import Broker
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.streams.stream import Stream

__all__ = ["NamedSource", "ReplaySource", "StreamSource"]

Found: TypeAlias = "Callable[[Callable[[], Queue] | None], None]"
"""Is called with what gives the queue to join, or raises PenstockError; with None: see the logfile."""

_PREFIX: Final = "penstock:"
_KINDS: Final = {
    "shared": Kind.SHARED,
    "exclusive": Kind.EXCLUSIVE,
    "failover": Kind.FAILOVER,
    "key_shared": Kind.KEY_SHARED,
}
_DAY_MS: Final = 86_400_000
_DELIVERIES_MAX: Final = 65_535
_NAME_MAX: Final = 200


class StreamSource:
    """A place in a stream."""

    def __init__(self, stream: Stream, offset: object, cursor: str, now_ms: int) -> None:
        """`offset` None: where the reader of the name `cursor` was, or what comes.

        Raises LinkError: the offset names no place.
        """
        if offset is None:
            offset = stream.kept_offset(cursor) if cursor else None
        start = stream_start(stream, "next" if offset is None else offset, now_ms)
        if start is None:
            raise LinkError("amqp:invalid-field", f"{offset!r} is no offset of a stream")
        self._stream = stream
        self._start = start
        self._cursor = cursor

    def find(self, found: Found) -> None:
        """Look for it."""
        stream = self._stream
        find_offset(
            self._start,
            lambda offset: found(
                None if offset is None or stream.deleted else partial(stream.reader, offset, self._cursor)
            ),
        )


class ReplaySource:
    """A queue's messages again, from a moment on."""

    def __init__(self, broker: Broker, queue: Queue, since: StartPosition) -> None:
        self._broker = broker
        self._queue = queue
        self._since = since

    def find(self, found: Found) -> None:
        """Look for it."""
        broker, queue = self._broker, self._queue

        def at(position: int | None) -> None:
            if position is None or queue.deleted:
                found(None)
            else:
                found(partial(broker.queues.replay, queue, position))

        find_replay(broker, queue, self._since, at)


class NamedSource:
    """A named subscription to a stream. See the module."""

    def __init__(
        self, session: Session, stream: Stream, name: str, properties: Mapping[Any, Any] | None
    ) -> None:
        """Raises LinkError: a property has a wrong value."""
        self._session = session
        self._stream = stream
        self._name = name
        given = {
            str(key).removeprefix(_PREFIX): value
            for key, value in (properties or {}).items()
            if str(key).startswith(_PREFIX)
        }
        self._is_plain = not given
        self._kind = _KINDS[_choice(given, "kind", tuple(_KINDS), "shared")]
        self._durable = given.pop("durable", True)
        if not isinstance(self._durable, bool):
            raise LinkError("amqp:invalid-field", "penstock:durable is a boolean")
        self._start = given.pop("start", "latest")
        self._options = _options(given)
        if given:
            raise LinkError("amqp:invalid-field", f"there is no link property {_PREFIX}{next(iter(given))}")
        if len(name.encode()) > _NAME_MAX:
            raise LinkError("amqp:invalid-field", f"a subscription's name has at most {_NAME_MAX} bytes")

    def find(self, found: Found) -> None:
        """Look for it, or make it."""
        session, stream = self._session, self._stream
        log = session.broker.log
        known = session.vhost.subscriptions.entries.get((stream.name, self._name))
        if known is not None and self._is_plain:
            found(lambda: known.queue)
            return
        if self._start in ("earliest", "latest"):
            self._at(found, log.appender.next_lsn if self._start == "latest" else 1)
            return
        since = parse_since(self._start, log.now_ms())
        if since is None:
            raise LinkError("amqp:invalid-field", f"penstock:start: {self._start!r} is no moment")
        find_position(log, session.vhost.lp, since, partial(self._at, found))

    def _at(self, found: Found, position: int | None) -> None:
        if position is None:
            found(None)
            return
        self._session.broker.log.when_indexed(
            [(self._stream.feed, position)], lambda: self._open(found, position)
        )

    def _open(self, found: Found, position: int) -> None:
        session = self._session
        try:
            queue, lsn = session.vhost.subscriptions.open(
                self._stream,
                self._name,
                self._kind,
                self._options,
                identity=session.identity,
                durable=self._durable,
                position=position,
            )
        except PenstockError as error:
            found(partial(_refuse, error))
            return
        session.broker.log.when_synced(lsn, lambda ok: found((lambda: queue) if ok else None))


def _refuse(error: PenstockError) -> Queue:
    raise error


def _choice(given: dict[str, Any], name: str, words: tuple[str, ...], default: str) -> str:
    value = given.pop(name, default)
    if value not in words:
        raise LinkError("amqp:invalid-field", f"{_PREFIX}{name} is one of {', '.join(words)}")
    return str(value)


def _number(given: dict[str, Any], name: str, least: int, most: int) -> int:
    value = given.pop(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise LinkError("amqp:invalid-field", f"{_PREFIX}{name} is an integer from {least} to {most}")
    return int(value)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a subscription, taken out of the properties of its link."""
    options: dict[str, Any] = {}
    for name in ("nack-min-ms", "nack-max-ms"):
        if name in given:
            options[f"x-{name}"] = _number(given, name, 0, _DAY_MS)
    if "max-deliveries" in given:
        options["x-delivery-limit"] = _number(given, "max-deliveries", 1, _DELIVERIES_MAX) - 1
    if "dead-letter" in given:
        letters = given.pop("dead-letter")
        if not isinstance(letters, str):
            raise LinkError("amqp:invalid-field", f"{_PREFIX}dead-letter is the name of a queue")
        options["x-dead-letter-exchange"] = ""
        options["x-dead-letter-routing-key"] = str(letters)
    return options
