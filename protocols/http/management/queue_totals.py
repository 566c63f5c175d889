"""Totals of queues: of each, and of all of a vhost, protocol and type.

A pass looks at all queues, and only asks those that moved since the last pass (`Queues.moved`): very many
idle queues cost it some 100 ns each. The sums are kept up to date with what moved. A request for sums
between two passes counts what moved, too, and the next pass is told how that was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.lazy_dataclass import dataclass
from penstock.router.exchanges.entries import QueueEntry

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.subscriptions.queue.queue import Queue

__all__ = [
    "LENGTHS",
    "QUEUE_COUNTERS",
    "VALUES_OF_QUEUE",
    "Moved",
    "QueueSums",
    "QueueTotals",
    "queue_counters",
    "queue_type",
]

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
        left + ready + cursor.outstanding,
        max(queue.delivered - queue.got - consumed_unasked, 0),
        consumed_unasked,
        queue.got - queue.unasked_got,
        queue.unasked_got,
        queue.delivered,
        max(cursor.settled - queue.dropped - queue.unasked, 0),
        cursor.requeued,
    )


def queue_type(entry: QueueEntry) -> str:
    """The type that a queue was declared with."""
    declared = entry.arguments.get("x-queue-type", "classic")
    return declared if isinstance(declared, str) else "classic"


VALUES_OF_QUEUE: Final = len(QUEUE_COUNTERS) + len(LENGTHS)
_NO_VALUES: Final = (0,) * VALUES_OF_QUEUE


@dataclass(slots=True)
class _Figures:
    """A queue as it is counted."""

    values: tuple[int, ...] = _NO_VALUES
    """Of `queue_counters`, and of `LENGTHS`."""
    consumers: int = 0
    is_listed: bool = True
    at: float = 0.0
    """When it was looked at."""

    @classmethod
    def of(cls, entry: QueueEntry, at: float = 0.0) -> _Figures:
        """The figures of this moment."""
        queue = entry.queue
        values = (*queue_counters(queue), queue.ready_count, queue.cursor.outstanding)
        return cls(values, queue.consumer_count, entry.is_listed, at)

    @property
    def is_usual(self) -> bool:
        """It counts as a queue, and for nothing else: of such ones nothing is kept."""
        return self.is_listed and not self.consumers and not any(self.values)


_USUAL: Final = _Figures()


@dataclass(slots=True)
class QueueSums:
    """Totals of several queues."""

    queues: int = 0
    """Those that are listed."""
    consumers: int = 0
    values: list[int] = field(default_factory=lambda: list(_NO_VALUES))
    """Of `queue_counters`, and of `LENGTHS`."""

    def count(self, figures: _Figures, sign: int = 1) -> None:
        """Add a queue; `sign` -1: take it away."""
        self.queues += sign * figures.is_listed
        self.consumers += sign * figures.consumers
        if figures.values is not _NO_VALUES:
            self.values = [one + sign * more for one, more in zip(self.values, figures.values, strict=True)]

    def add(self, other: QueueSums) -> None:
        """Add those of `other`."""
        self.queues += other.queues
        self.consumers += other.consumers
        self.values = [one + more for one, more in zip(self.values, other.values, strict=True)]

    @property
    def ready(self) -> int:
        """Messages that are ready."""
        return self.values[-2]

    @property
    def unacked(self) -> int:
        """Messages that are out."""
        return self.values[-1]

    def counter(self, name: str) -> int:
        """One of `QUEUE_COUNTERS`."""
        return self.values[QUEUE_COUNTERS.index(name)]


SumsKey = tuple[str, str, str]
"""Vhost, "amqp091" or "mqtt", and the type of the queue."""


def _key(entry: QueueEntry) -> SumsKey:
    protocol = "mqtt" if entry.kind in ("session", "share") else "amqp091"
    return entry.queue.vhost, protocol, queue_type(entry)


class Moved(NamedTuple):
    """A queue whose values changed."""

    queue: Queue
    before: tuple[int, ...]
    values: tuple[int, ...]
    elapsed_s: float
    """Between the two."""


class QueueTotals:
    """See the module."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._broker = broker
        self._clock = clock
        self._known: dict[Queue, _Figures] = {}
        """Of those that count for more than being there."""
        self._looked: dict[Queue, _Figures] = {}
        """Those that were looked at between two passes: as they were in the last pass."""
        self._sums: dict[SumsKey, QueueSums] = {}
        self._gone: dict[tuple[str, str], QueueSums] = {}
        """Counters of queues that are deleted, by protocol and type: totals of a gateway never fall."""
        self._began = 0.0
        broker.queues.on_deleted.append(self._deleted)

    # Passes

    def walk(self) -> Iterator[Moved | None]:
        """A pass over all queues; None is only a place to pause."""
        last, self._began = self._began, self._clock()
        looked, self._looked = self._looked, {}
        for known in self._counted():
            now = self._clock()
            for queue, before in known.items():
                looked.setdefault(queue, before)
            found = list(self._moved(known, looked, last, now))
            # Not before: a queue that is deleted meanwhile is counted.
            yield None
            yield from found
        yield from self._moved(list(looked), looked, last, self._clock())

    def _moved(
        self, queues: Iterable[Queue], before: dict[Queue, _Figures], last: float, now: float
    ) -> Iterator[Moved]:
        """Those of the queues whose values are not those of `before` any more, from which they are taken."""
        for queue in queues:
            figures, were = self._known.get(queue, _USUAL), before.pop(queue)
            if figures.values != were.values:
                # One that did not move was looked at by the last pass, and was the same.
                yield Moved(queue, were.values, figures.values, now - max(were.at, last))

    def _counted(self) -> Iterator[dict[Queue, _Figures]]:
        """Count what moved since it was asked last, in parts; how the queues of a part were before."""
        for new, known in self._broker.queues.moved():
            now = self._clock()
            for queue in new:
                if isinstance(queue.data, QueueEntry):
                    self._count(queue.data, None, now)
            part: dict[Queue, _Figures] = {}
            for queue in known:
                if isinstance(queue.data, QueueEntry):
                    before = part[queue] = self._known.get(queue, _USUAL)
                    self._count(queue.data, before, now)
            yield part

    def _look(self) -> None:
        """Count what moved, now: the next pass knows of it."""
        for part in self._counted():
            for queue, before in part.items():
                self._looked.setdefault(queue, before)

    def _count(self, entry: QueueEntry, before: _Figures | None, now: float) -> _Figures:
        figures = _Figures.of(entry, now)
        sums = self._sums.setdefault(_key(entry), QueueSums())
        if before is not None:
            sums.count(before, -1)
        sums.count(figures)
        if figures.is_usual:
            self._known.pop(entry.queue, None)
        else:
            self._known[entry.queue] = figures
        return figures

    def _deleted(self, queue: Queue) -> None:
        entry = queue.data
        if not isinstance(entry, QueueEntry):
            return
        key = _key(entry)
        before = self._known.pop(queue, _USUAL)
        if queue.cursor.is_counted():
            self._sums.setdefault(key, QueueSums()).count(before, -1)
        gone = self._gone.setdefault(key[1:], QueueSums())
        gone.count(_Figures((*queue_counters(queue), 0, 0), is_listed=False))

    def last(self, entry: QueueEntry) -> tuple[int, ...]:
        """Of `queue_counters`, as they are; with very many queues as they were in the last pass."""
        if len(self._broker.queues) > _EXACT_MAX:
            return self._known.get(entry.queue, _USUAL).values
        return queue_counters(entry.queue)

    # Sums

    def sums(self) -> dict[SumsKey, QueueSums]:
        """Totals of all queues: of this moment, or with very many queues those of the last pass."""
        if len(self._broker.queues) <= _EXACT_MAX:
            self._look()
        return {key: one for key, one in self._sums.items() if key[0] in self._broker.vhosts}

    def by_type(self) -> dict[tuple[str, str], QueueSums]:
        """Of the gateway, by protocol and type; the counters are also those of queues that are deleted."""
        sums: dict[tuple[str, str], QueueSums] = {}
        for (_, *key), one in self.sums().items():
            sums.setdefault((key[0], key[1]), QueueSums()).add(one)
        for of, one in self._gone.items():
            sums.setdefault(of, QueueSums()).add(one)
        return sums

    def of_vhost(self, name: str) -> QueueSums:
        """Those of a vhost."""
        sum_ = QueueSums()
        for (vhost, _, _), one in self.sums().items():
            if vhost == name:
                sum_.add(one)
        return sum_

    def by_vhost(self) -> dict[str, QueueSums]:
        """As the last pass has them, by vhost."""
        sums: dict[str, QueueSums] = {}
        for (vhost, _, _), one in self._sums.items():
            if vhost in self._broker.vhosts:
                sums.setdefault(vhost, QueueSums()).add(one)
        return sums
