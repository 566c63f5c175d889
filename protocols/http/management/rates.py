"""Rates from totals: every few seconds each counter is read once, and compared with the time before.

Nothing here costs anything per message: the kernels keep totals, this reads them. One pass looks at every
queue, connection and channel, for a millisecond at a time so that messages move in between, and forgets what
is gone. The rate of a counter is its growth between the last two passes, per second; what was seen once only
has none yet. Of a connection that moved no byte since the last pass nothing is asked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management.history import OF_CONNECTION, OF_GATEWAY, OF_QUEUE, History
from penstock.router.exchanges.entries import QueueEntry
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.protocols.listening.registry import Registry
    from penstock.protocols.net.connection import Connection
    from penstock.protocols.net.connection_info import Totals
    from penstock.router.broker import Broker
    from penstock.subscriptions.queue.queue import Queue

__all__ = [
    "GAUGES",
    "INTERVAL_S",
    "LENGTHS",
    "QUEUE_COUNTERS",
    "TOTALS",
    "QueueSums",
    "Sampler",
    "Walk",
    "queue_counters",
    "queue_type",
    "total_counters",
    "traffic_key",
]

logger: Final = logging.getLogger("penstock.http")

INTERVAL_S: Final = 5.0
_SLICE_S: Final = 0.001
"""Time spent on a pass before the loop does something else, for `_PAUSE_S`."""
_PAUSE_S: Final = 0.002
_CHECK_EACH: Final = 16
"""Objects between two looks at the clock."""
_EXACT_MAX: Final = 2000
"""With more queues sums are those of the last pass."""

LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
"""The numbers behind `QUEUE_COUNTERS` in what is sampled of a queue or a vhost."""
QUEUE_COUNTERS: Final = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "deliver_get",
    "ack",
    "redeliver",
)
"""The counters of `queue_counters`, with RabbitMQ's names."""


def queue_counters(queue: Queue) -> tuple[int, ...]:
    """Totals of a queue since the process started, or since the queue was made.

    `publish` is what came into it: done, dropped, out, and ready. `ack` is what somebody settled,
    acknowledged or rejected; what is settled as it is delivered is `deliver_no_ack` or `get_no_ack` only.
    """
    cursor = queue.cursor
    ready = queue.ready_count
    consumed_unasked = queue.unasked - queue.unasked_got
    left = cursor.settled + cursor.expired + cursor.lost + queue.purged
    return (
        left + ready + cursor.outstanding - queue.inherited,
        max(queue.delivered - queue.got - consumed_unasked, 0),
        consumed_unasked,
        queue.got - queue.unasked_got,
        queue.unasked_got,
        queue.delivered,
        max(cursor.settled - queue.dropped - queue.unasked, 0),
        cursor.requeued,
    )


GAUGES: Final = "gauges"
"""The key whose values may fall: so may their rates below 0."""

TOTALS: Final = (
    "publish",
    "confirm",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "deliver_get",
    "get_empty",
    "redeliver",
    "ack",
    "drop_unroutable",
    "return_unroutable",
)
"""The counters of `total_counters`, with RabbitMQ's names."""


def total_counters(totals: Totals) -> tuple[int, ...]:
    """The totals of a channel or connection as RabbitMQ divides them."""
    return (
        totals.published,
        totals.confirmed,
        totals.consumed - totals.delivered_auto,
        totals.delivered_auto,
        totals.got - totals.got_auto,
        totals.got_auto,
        totals.delivered,
        totals.get_empty,
        totals.redelivered,
        totals.acknowledged,
        totals.dropped,
        totals.returned,
    )


@dataclass(slots=True)
class QueueSums:
    """Totals of several queues."""

    queues: int = 0
    """Those that are listed."""
    ready: int = 0
    unacked: int = 0
    consumers: int = 0
    counters: list[int] = field(default_factory=lambda: [0] * len(QUEUE_COUNTERS))
    """Of `queue_counters`."""

    def count(self, entry: QueueEntry, counters: tuple[int, ...]) -> None:
        """Add a queue."""
        queue = entry.queue
        self.queues += entry.is_listed
        self.ready += queue.ready_count
        self.unacked += queue.cursor.outstanding
        self.consumers += queue.consumer_count
        self.counters = [one + more for one, more in zip(self.counters, counters, strict=True)]

    def add(self, other: QueueSums) -> None:
        """Add those of `other`."""
        self.queues += other.queues
        self.ready += other.ready
        self.unacked += other.unacked
        self.consumers += other.consumers
        self.counters = [one + more for one, more in zip(self.counters, other.counters, strict=True)]

    def counter(self, name: str) -> int:
        """One of `QUEUE_COUNTERS`."""
        return self.counters[QUEUE_COUNTERS.index(name)]


SumsKey = tuple[str, str, str]
"""Vhost, "amqp091" or "mqtt", and the type of the queue."""


def queue_type(entry: QueueEntry) -> str:
    """The type that a queue was declared with."""
    declared = entry.arguments.get("x-queue-type", "classic")
    return declared if isinstance(declared, str) else "classic"


def _sums_key(vhost: str, entry: QueueEntry) -> SumsKey:
    return vhost, "mqtt" if entry.kind in ("session", "share") else "amqp091", queue_type(entry)


Counted = tuple[Hashable, tuple[int, ...]]
"""The key of an object, and its totals."""
Walk = Iterator[Counted | None]
"""The objects of a pass; None is only a place to pause."""


class _Sample:
    __slots__ = ("at", "channels", "pass_", "rates", "values", "vhost")

    def __init__(self, at: float, values: tuple[int, ...], pass_: int) -> None:
        self.at = at
        self.values = values
        self.rates: tuple[float, ...] = ()
        self.channels: tuple[Hashable, ...] = ()
        """Of a connection: the keys of its channels."""
        self.vhost = ""
        """Of a connection."""
        self.pass_ = pass_


def traffic_key(vhost: str) -> Hashable:
    """The key of what the connections of a vhost moved: `TOTALS`, bytes received, bytes sent."""
    return "vhost", vhost, "traffic"


def _add(sums: dict[str, list[int]], sample: _Sample) -> None:
    known = sums.get(sample.vhost)
    if known is None:
        sums[sample.vhost] = list(sample.values)
    else:
        for at, value in enumerate(sample.values):
            known[at] += value


class Sampler:
    """See the module."""

    def __init__(
        self, broker: Broker, registry: Registry, clock: Callable[[], float], history: History
    ) -> None:
        self.history = history
        self._broker = broker
        self._registry = registry
        self._clock = clock
        self._samples: dict[Hashable, _Sample] = {}
        self._pass = 0
        self._walk: Walk | None = None
        self._sums: dict[SumsKey, QueueSums] = {}
        self._traffic: dict[str, list[int]] = {}
        self._traffic_gone: dict[str, list[int]] = {}
        """By vhost: what its connections moved that are gone."""
        self.gone: dict[tuple[str, str], QueueSums] = {}
        """Counters of queues that are deleted, by protocol and type: totals of a gateway never fall."""
        broker.queues.on_deleted.append(self._deleted)
        self.extra: list[Callable[[], Walk]] = []
        """Further counters."""

    def start(self) -> None:
        """Begin; every `INTERVAL_S` from now on."""
        self._begin()
        self._broker.tick.every(INTERVAL_S, self._begin)

    def _deleted(self, queue: Queue) -> None:
        if isinstance(queue.data, QueueEntry):
            _, *key = _sums_key("", queue.data)
            gone = self.gone.setdefault((key[0], key[1]), QueueSums())
            left = queue_counters(queue)
            gone.counters = [one + more for one, more in zip(gone.counters, left, strict=True)]

    def rates(self, key: Hashable, count: int) -> Sequence[float]:
        """The rates of the counters of `key`, per second; zeros before it was seen twice."""
        sample = self._samples.get(key)
        return sample.rates[:count] if sample is not None and sample.rates else (0.0,) * count

    def traffic(self, vhost: str) -> Sequence[int]:
        """The totals of the connections of a vhost in the last pass; see `traffic_key`."""
        sample = self._samples.get(traffic_key(vhost))
        return sample.values if sample is not None else (0,) * (len(TOTALS) + 2)

    def levels(self, key: Hashable) -> int:
        """How many levels of history an object has; see `History`."""
        if isinstance(key, str) or (isinstance(key, tuple) and key[0] == "vhost"):
            return OF_GATEWAY
        return OF_CONNECTION if isinstance(key, int | tuple) else OF_QUEUE

    def _begin(self) -> None:
        if self._walk is None:
            self._pass += 1
            self._walk = self._all()
            self._some()

    def _some(self) -> None:
        if not guarded(logger, "rates are not known this time", self._update_some):
            self._walk = None  # the next pass begins anew

    def _all(self) -> Walk:
        sums: dict[SumsKey, QueueSums] = {}
        yield from self._queues(sums)
        self._sums = sums
        by_vhost: dict[str, QueueSums] = {}
        for (vhost, _, _), one in sums.items():
            by_vhost.setdefault(vhost, QueueSums()).add(one)
        for vhost, one in by_vhost.items():
            yield ("vhost", vhost), (*one.counters, one.ready, one.unacked)
        self._traffic = {vhost: list(gone) for vhost, gone in self._traffic_gone.items()}
        for _, listener in list(self._registry.listeners()):
            for connection in list(listener.connections):
                yield from self._connection(connection)
        for vhost, moved in self._traffic.items():
            yield traffic_key(vhost), tuple(moved)
        for extra in self.extra:
            yield from extra()

    def _connection(self, connection: Connection) -> Walk:
        """A connection and its channels. One that moved no byte since the last pass is unchanged."""
        known = self._samples.get(connection.id)
        if known is not None and known.values[-2:] == (connection.bytes_in, connection.bytes_out):
            for key in (connection.id, *known.channels):
                sample = self._samples.get(key)
                if sample is not None:
                    yield key, sample.values
            _add(self._traffic, known)
            return
        info = connection.info()
        if info is None:
            yield None
            return
        yield connection.id, (*total_counters(info.totals), connection.bytes_in, connection.bytes_out)
        for channel in info.channels:
            yield (connection.id, channel.number), total_counters(channel.totals)
        sample = self._samples.get(connection.id)
        if sample is not None:
            sample.channels = tuple((connection.id, channel.number) for channel in info.channels)
            sample.vhost = info.vhost
            _add(self._traffic, sample)

    def _queues(self, sums: dict[SumsKey, QueueSums]) -> Iterator[Counted]:
        """Every queue's counters; what they sum up to goes into `sums`."""
        for vhost in list(self._broker.vhosts.values()):
            for entry in vhost.entries():
                if entry.queue.deleted:
                    continue
                counters = queue_counters(entry.queue)
                sums.setdefault(_sums_key(vhost.name, entry), QueueSums()).count(entry, counters)
                yield entry.queue, (*counters, entry.queue.ready_count, entry.queue.cursor.outstanding)

    def queue_sums(self) -> dict[SumsKey, QueueSums]:
        """Totals of all queues: of this moment, or with very many queues those of the last pass."""
        if len(self._broker.queues) > _EXACT_MAX:
            return self._sums
        sums: dict[SumsKey, QueueSums] = {}
        for _ in self._queues(sums):
            pass
        return sums

    def sums_by_type(self) -> dict[tuple[str, str], QueueSums]:
        """Of the gateway, by protocol and type; the counters are also those of queues that are deleted."""
        sums: dict[tuple[str, str], QueueSums] = {}
        for (_, protocol, kind), one in self.queue_sums().items():
            sums.setdefault((protocol, kind), QueueSums()).add(one)
        for key, one in self.gone.items():
            sums.setdefault(key, QueueSums()).add(one)
        return sums

    def vhost_sums(self, name: str) -> QueueSums:
        """Those of a vhost."""
        sum_ = QueueSums()
        for (vhost, _, _), one in self.queue_sums().items():
            if vhost == name:
                sum_.add(one)
        return sum_

    def _update_some(self) -> None:
        assert self._walk is not None
        now = began = self._clock()
        while now - began < _SLICE_S:
            for _ in range(_CHECK_EACH):
                try:
                    found = next(self._walk)
                except StopIteration:
                    self._walk = None
                    self._forget()
                    return
                if found is not None:
                    self._update(*found, now)
            now = self._clock()
        self._broker.tick.after(_PAUSE_S, self._some)

    def _update(self, key: Hashable, values: tuple[int, ...], now: float) -> None:
        sample = self._samples.get(key)
        if sample is None:
            if any(values):
                self._samples[key] = _Sample(now, values, self._pass)
            return
        if values != sample.values:
            self.history.note(key, self.levels(key), sample.values, values)
        elapsed = now - sample.at
        if elapsed > 0:
            least = -math.inf if key == GAUGES else 0
            sample.rates = tuple(
                max(new - old, least) / elapsed for new, old in zip(values, sample.values, strict=True)
            )
        sample.at, sample.values, sample.pass_ = now, values, self._pass

    def _forget(self) -> None:
        gone = [key for key, sample in self._samples.items() if sample.pass_ != self._pass]
        for key in gone:
            sample = self._samples.pop(key)
            if sample.vhost:
                _add(self._traffic_gone, sample)
            self.history.forget(key)
        self.history.sweep(self._width)

    def _width(self, key: Hashable) -> int | None:
        sample = self._samples.get(key)
        return None if sample is None else len(sample.values)
