"""Delayed messages: the log keeps them until their time; then they are published and routed.

The permission to publish is checked when a message is scheduled. Its route is decided when it is due, by
the bindings of that moment. A message whose exchange or vhost is gone is dropped and counted. One timer
serves all. It fires at the next due time, and at least each second while something waits, because the
clock may be set meanwhile.

The body of the record in the log begins with a prefix, little-endian:

    size u32 | origin u32 | vhost size u16 | vhost | n u16 | n times: size u16, key block | the message's body

It is routed by these key blocks; without any, by its own. `size` counts everything in front of the body
but itself.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import DELAYED, RETAIN, Record
from penstock.router.arguments import Arguments
from penstock.router.messages.delay_names import DelayNames
from penstock.router.messages.retained import RetainedMessage
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, text, wire
from penstock.router.publishing.publishing import union
from penstock.router.routes._routes import Route
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["HORIZON_MS", "DelayWords", "Delayed", "front"]

logger = logging.getLogger("penstock.router")

HORIZON_MS: Final = 100 * 365 * 86_400_000
"""How far off a message may be due: 100 years of 365 days."""

_FIRST: Final = struct.Struct("<IIH")
_U16: Final = struct.Struct("<H")
_UNIT_RECORDS: Final = 256
_UNIT_BYTES: Final = 4 * 1024 * 1024
_TURN_S: Final = 0.004
"""Time of one turn of publishing; the rest follows in the next."""
_LOOK_S: Final = 1.0
_PAUSED_S: Final = 0.1
_ROUTES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class DelayWords:
    """The functions of a front end for messages in its encoding, AMQP's."""

    headers: Callable[[bytes], Arguments]
    """The headers in a properties block."""
    delay_ms: Callable[[Arguments], int]
    """The delay that the headers ask a delayed exchange for; 0 = none. Total."""
    served: Callable[[bytes, int], bytes]
    """The properties block with this delay as it leaves a delayed exchange, so that none delays it again."""


class Delayed:
    """The delayed messages of a broker."""

    def __init__(self, broker: Broker, words: DelayWords | None) -> None:
        self._broker = broker
        self._log = broker.log
        self._delays = broker.log.delays
        self._tick = broker.tick
        self.words = words
        """None: headers exchanges get no delayed messages, and dead letters are not delayed."""
        self.names = DelayNames(broker.log, self.cancel)
        """Those that have names. Front ends cancel by `cancel_named`."""
        self._timer: Any = None
        self._armed_ms = 0
        self._closed = False
        self._routes: dict[tuple[str, int, bytes], tuple[int, Route]] = {}
        self.published = 0
        """Messages that were published when they were due."""
        self.dropped = 0
        """Messages whose exchange or vhost was gone, or that failed."""

    # Scheduling

    def schedule(
        self,
        vhost: str,
        due_ms: int,
        enc: int,
        key: bytes,
        props: bytes,
        body: bytes,
        *,
        starts: Sequence[bytes] = (),
        flags: int = 0,
        priority: int = 0,
        ttl_ms: int = 0,
        origin: int = 0,
        name: bytes | None = None,
        keys: Sequence[bytes] = (),
    ) -> int:
        """Keep a message until `due_ms` (since the epoch, by the machine's clock); the LSN to wait for.

        Args:
            starts: The key blocks it is routed by, each naming an exchange; none: its own.
            ttl_ms: Counts from when it is due.
            name: Its name while it waits (`delay_names`); what it replaces was cancelled before.
            keys: With a name: the key blocks it was published by; none: its own.

        Whether its publisher may publish there was asked before. The LSN is also its name for `cancel`.

        """
        place = wire(vhost)
        head = [_FIRST.pack(0, origin, len(place)), place, _U16.pack(len(starts))]
        for start in starts:
            head += _U16.pack(len(start)), start
        header = b"".join(head)
        header = _FIRST.pack(len(header) - 4, origin, len(place)) + header[_FIRST.size :]
        lsn = self._delays.add(
            due_ms, key, props, header + body, flags=flags, priority=priority, enc=enc, ttl_ms=ttl_ms
        )
        if name is not None:
            self.names.give(name, due_ms, lsn, enc, keys or (key,))
        self._tick.schedule()
        if self._timer is None or due_ms < self._armed_ms:
            self._arm()
        return lsn

    def cancel_named(self, vhost: Vhost, identity: Identity, name: bytes) -> bool:
        """Have the message of this name never come; False: none waits that the identity may publish.

        Whether it may publish to the exchange that the name is of was asked before.
        """
        return self.names.cancel(name, partial(vhost.publishing.may, identity))

    def cancel_published(
        self, vhost: str, key: bytes, due_ms: int, lsn: int, told: Callable[[bool | None], object]
    ) -> None:
        """Have a message never come that was published to `key` in this vhost, in AMQP's encoding.

        `told` is called, at once or when the message was read: False, when no such message waits (any more).
        So who may publish there learns nothing of other messages. None: the disk does not answer.
        """

        self.cancel_where(due_ms, lsn, lambda record: _is_of(record, vhost, key), told)

    def cancel_where(
        self,
        due_ms: int,
        lsn: int,
        is_meant: Callable[[Record], bool],
        told: Callable[[bool | None], object],
    ) -> None:
        """Have a message never come if it is one of those that are meant; `told` as of `cancel_published`."""
        self._find(due_ms, lsn, lambda record: is_meant(record) and self.cancel(due_ms, lsn), told)

    def publish_where(
        self,
        due_ms: int,
        lsn: int,
        is_meant: Callable[[Record], bool],
        told: Callable[[bool | None], object],
    ) -> None:
        """Publish a message that waits, as if it were due, if it is one of those that are meant; `told` as of
        `cancel_published`."""
        self._find(
            due_ms, lsn, lambda record: is_meant(record) and self._publish_early(due_ms, lsn, record), told
        )

    def _find(
        self,
        due_ms: int,
        lsn: int,
        act: Callable[[Record], bool],
        told: Callable[[bool | None], object],
    ) -> None:
        """Act on a message that waits; `told` gets what `act` says, or as of `cancel_published`."""

        def found(record: Record | None, answered: bool) -> None:
            told(None if not answered else record is not None and act(record))

        self._delays.find(due_ms, lsn, found)

    def _publish_early(self, due_ms: int, lsn: int, record: Record) -> bool:
        """One atomic unit: after a crash it waits, or has come, and never both."""
        with self._log.unit():
            if not self.cancel(due_ms, lsn):
                return False
            self._publish(record)
        return True

    def cancel(self, due_ms: int, lsn: int) -> bool:
        """Have a message that was scheduled never come; False when it does not wait any more. Nobody's rights
        are asked."""
        cancelled = self._delays.cancel(due_ms, lsn)
        if cancelled:
            self._tick.schedule()
        return cancelled

    # Time

    def start(self) -> None:
        """Begin publishing what is due."""
        self._arm()

    def close(self) -> None:
        """Publish nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at_least_s: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._delays.next_due()
        if due is None or self._closed:
            return
        now = self._log.wall_ms()
        self._armed_ms = max(due, now)
        wait_s = min(max((due - now) / 1000, at_least_s), _LOOK_S)
        self._timer = self._tick.after(wait_s, self._fire)

    def _ready(self) -> None:
        """The result of a read in the background is there."""
        if not self._closed:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._tick.after(0, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._closed or self._log.failed is not None:
            return
        if self._log.paused:
            self._arm(_PAUSED_S)
            return
        what = "what is due could not be published; it is tried again in a second"
        if not guarded(logger, what, self._publish_due) and self._timer is None:
            self._arm(_LOOK_S)

    def _publish_due(self) -> None:
        ends = time.perf_counter() + _TURN_S
        # Not behind the time that records of this tick get: by that, too, nothing is early.
        now_ms = min(self._log.wall_ms(), self._log.now_ms())
        self._tick.schedule()
        while records := self._delays.take(now_ms, _UNIT_RECORDS, _UNIT_BYTES, self._ready):
            with self._log.unit():
                for one in records:
                    if one.record is not None and not one.published:
                        self._publish(one.record)
                        one.published = True
                # When this raises, no message is published twice; after a crash one may be.
                self._delays.done(records)
            if time.perf_counter() > ends:
                self._arm()
                return
        if self._timer is None:
            # Nothing is due, or something must be read first: then `_ready` comes before this.
            self._arm(0.001 if (self._delays.next_due() or 0) > now_ms else _LOOK_S)

    # Publishing

    def _publish(self, record: Record) -> None:
        try:
            self._route_and_append(record)
        except Exception:
            logger.exception("a delayed message cannot be published; it is dropped")
            self.dropped += 1

    def _route_and_append(self, record: Record) -> None:
        size, origin, place, starts = front(record)
        vhost = self._broker.vhosts.get(place)
        if vhost is None:
            self.dropped += 1
            return
        keys = starts or [record.key]
        groups = _by_exchange(keys) if record.enc == ENC_AMQP091 else [keys]
        found = [self._route(vhost, record, group) for group in groups]
        routes = [route for route in found if route.error is None]
        if not routes:
            self.dropped += 1
            return
        body = record.body[4 + size :]
        vhost.publishing.append(
            union(routes),
            record.key,
            record.props,
            body,
            record.flags & ~DELAYED,
            record.priority,
            record.enc,
            record.ttl,
            origin,
        )
        if record.flags & RETAIN and record.enc == ENC_MQTT5:
            now_ms = self._log.now_ms()
            vhost.retained.set(
                RetainedMessage(
                    topic=record.key,
                    enc=record.enc,
                    props=record.props,
                    body=body,
                    flags=record.flags & ~(DELAYED | RETAIN),
                    priority=0,
                    stored_ms=now_ms,
                    expires_ms=now_ms + record.ttl if record.ttl else 0,
                )
            )
        self.published += 1

    def _route(self, vhost: Vhost, record: Record, keys: Sequence[bytes]) -> Route:
        """Where it goes now from one exchange, by all its keys there.

        Remembered while nothing changes, when it has one key and its headers do not matter.
        """
        start, *copies = keys
        if copies:
            return vhost.route(None, record.enc, start, self._headers(record), copies=copies)
        name = (vhost.name, record.enc, start)
        changes = vhost.topology.changes
        known = self._routes.get(name)
        if known is not None and known[0] == changes:
            return known[1]
        route = vhost.route(None, record.enc, start)
        if route.per_message:
            return vhost.route(None, record.enc, start, self._headers(record))
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        self._routes[name] = (vhost.topology.changes, route)
        return route

    def _headers(self, record: Record) -> Arguments:
        return self.words.headers(record.props) if self.words and record.enc == ENC_AMQP091 else {}

    def statistics(self) -> dict[str, int]:
        """How many wait, were published, were dropped."""
        return {
            "delayed": self._delays.waiting,
            "delayed_published": self.published,
            "delayed_dropped": self.dropped,
        }


def _by_exchange(starts: Iterable[bytes]) -> list[list[bytes]]:
    """AMQP's key blocks, those of each exchange together."""
    groups: dict[bytes, list[bytes]] = {}
    for start in starts:
        groups.setdefault(start[: 1 + start[0]], []).append(start)
    return list(groups.values())


def front(record: Record) -> tuple[int, int, str, list[bytes]]:
    """The beginning of a record's body: size, origin, vhost, and the key blocks it is routed by."""
    size, origin, width = _FIRST.unpack_from(record.body)
    at = _FIRST.size + width
    vhost = text(record.body[_FIRST.size : at])
    (n,) = _U16.unpack_from(record.body, at)
    at += 2
    starts = []
    for _ in range(n):
        (width,) = _U16.unpack_from(record.body, at)
        starts.append(record.body[at + 2 : at + 2 + width])
        at += 2 + width
    return size, origin, vhost, starts


def _is_of(record: Record, vhost: str, key: bytes) -> bool:
    """Whether it was published to this key block alone, in AMQP's encoding, in this vhost."""
    _, _, place, starts = front(record)
    return record.enc == ENC_AMQP091 and place == vhost and record.key == key and set(starts) <= {key}
