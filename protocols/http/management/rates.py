"""Rates from totals: every few seconds each counter is read once, and compared with the time before.

Nothing here costs anything per message: the kernels keep totals, this reads them. One pass looks at every
queue, connection and channel, for a millisecond at a time so that messages move in between, and forgets what
is gone. The rate of a counter is its growth between the last two passes, per second; what was seen once only
has none yet. Of a queue that did not move since the last pass, and of a connection that moved no byte,
nothing is asked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management.history import OF_CONNECTION, OF_GATEWAY, OF_QUEUE, History
from penstock.protocols.http.management.queue_totals import QUEUE_COUNTERS, VALUES_OF_QUEUE, QueueTotals
from penstock.subscriptions.fault_isolation import guarded
from penstock.subscriptions.queue.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.protocols.listening.registry import Registry
    from penstock.protocols.net.connection import Connection
    from penstock.protocols.net.connection_info import Totals
    from penstock.router.broker import Broker

__all__ = ["GAUGES", "INTERVAL_S", "TOTALS", "Sampler", "Walk", "total_counters", "traffic_key"]

logger: Final = logging.getLogger("penstock.http")

INTERVAL_S: Final = 5.0
_SLICE_S: Final = 0.001
"""Time spent on a pass before the loop does something else, for `_PAUSE_S`."""
_PAUSE_S: Final = 0.002
_CHECK_EACH: Final = 16
"""Objects between two looks at the clock."""

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


def _growth(
    before: tuple[int, ...], values: tuple[int, ...], elapsed_s: float, least: float = 0.0
) -> tuple[float, ...]:
    """Per second, and not below `least`."""
    return tuple(max(new - old, least) / elapsed_s for new, old in zip(values, before, strict=True))


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
        self.queues = QueueTotals(broker, clock)
        self._broker = broker
        self._registry = registry
        self._clock = clock
        self._samples: dict[Hashable, _Sample] = {}
        """Of all but queues."""
        self._queue_rates: dict[Hashable, tuple[float, ...]] = {}
        """Of the queues that moved in the last pass."""
        self._queues_moved: dict[Hashable, tuple[float, ...]] = {}
        """The same of this pass, so far."""
        self._pass = 0
        self._walk: Walk | None = None
        self._traffic: dict[str, list[int]] = {}
        self._traffic_gone: dict[str, list[int]] = {}
        """By vhost: what its connections moved that are gone."""
        broker.queues.on_deleted.append(history.forget)
        self.extra: list[Callable[[], Walk]] = []
        """Further counters."""

    def start(self) -> None:
        """Begin; every `INTERVAL_S` from now on."""
        self._begin()
        self._broker.tick.every(INTERVAL_S, self._begin)

    def rates(self, key: Hashable, count: int) -> Sequence[float]:
        """The rates of the counters of `key`, per second; zeros before it was seen twice."""
        of_queue = self.rates_of_queue(key)
        if of_queue is not None:
            return of_queue[:count]
        sample = self._samples.get(key)
        return sample.rates[:count] if sample is not None and sample.rates else (0.0,) * count

    def rates_of_queue(self, queue: Hashable) -> tuple[float, ...] | None:
        """The rates of `QUEUE_COUNTERS`; None: they are 0."""
        return self._queue_rates.get(queue)

    def moved_queues(self) -> list[Queue]:
        """Those that have rates."""
        return [queue for queue in self._queue_rates if isinstance(queue, Queue)]

    def traffic(self, vhost: str) -> Sequence[int]:
        """The totals of the connections of a vhost in the last pass; see `traffic_key`."""
        sample = self._samples.get(traffic_key(vhost))
        return sample.values if sample is not None else (0,) * (len(TOTALS) + 2)

    def levels(self, key: Hashable) -> int:
        """How many levels of history an object has; see `History`."""
        if isinstance(key, str) or (isinstance(key, tuple) and key[0] == "vhost"):
            return OF_GATEWAY
        return OF_QUEUE if isinstance(key, Queue) else OF_CONNECTION

    def _begin(self) -> None:
        if self._walk is None:
            self._pass += 1
            self._walk = self._all()
            self._some()

    def _some(self) -> None:
        if not guarded(logger, "rates are not known this time", self._update_some):
            self._walk = None  # the next pass begins anew

    def _all(self) -> Walk:
        yield from self._queues()
        for vhost, sums in self.queues.by_vhost().items():
            yield ("vhost", vhost), tuple(sums.values)
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

    def _queues(self) -> Walk:
        self._queues_moved = {}
        for moved in self.queues.walk():
            if moved is not None and not moved.queue.deleted:
                self.history.note(moved.queue, OF_QUEUE, moved.before, moved.values)
                self._queues_moved[moved.queue] = _growth(
                    moved.before[: len(QUEUE_COUNTERS)], moved.values[: len(QUEUE_COUNTERS)], moved.elapsed_s
                )
            yield None
        self._queue_rates = self._queues_moved

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
        if now > sample.at:
            sample.rates = _growth(
                sample.values, values, now - sample.at, -math.inf if key == GAUGES else 0.0
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
        if isinstance(key, Queue):
            return None if key.deleted else VALUES_OF_QUEUE
        sample = self._samples.get(key)
        return None if sample is None else len(sample.values)
