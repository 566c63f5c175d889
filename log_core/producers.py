"""Named producers: what they send again after a lost connection or a crash is appended once.

A producer numbers what it sends. Its name, its last numbers and where those were appended are one row of a
table, put in the atomic unit of the records themselves: the two can never disagree after a crash. Two rules:

    sequence   `admit_sequence`: the number must be higher than any before, gaps are fine (as in Pulsar);
               for producers that number single messages
    batches    `admit_batch`: numbers follow one another (a batch that would pass 2^31 begins with 0), the
               last five batches are known, and an epoch fences off an older process of the same name (as in
               Kafka)

Appending: `open` begins the unit, `note` says what was appended, `close` puts the rows that changed and ends
the unit; many messages of one read share them. Names are the caller's, whole (vhost included).

A producer that sent nothing for a day is forgotten, and when there are too many, the one that was idle the
longest; then its next number is taken for new.

    row: version u8 = 1 | rule u8 | epoch u32 | used i64, ms | n u8 | n times: first u64, last u64, LSN u64
"""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.log_core.errors import OutOfSequence, ProducerFenced

if TYPE_CHECKING:
    from penstock.log_core.log import Log

__all__ = ["Producers"]

_LOG: Final = logging.getLogger("penstock.log")
_TABLE: Final = "producer"
_HEAD: Final = struct.Struct("<BBIqB")
_BATCH: Final = struct.Struct("<QQQ")
_VERSION: Final = 1
_SEQUENCE: Final = 0
_BATCHES: Final = 1
_KNOWN_BATCHES: Final = 5
_IDLE_MS: Final = 86_400_000
_MOST: Final = 100_000
"""Producers known at the same time; each takes about 600 bytes."""
_AFTER_LAST: Final = 2**31
"""Numbers of batches go up to 2**31 - 1 and begin again at 0, as Kafka's."""


@dataclass(slots=True)
class _Producer:
    rule: int
    epoch: int = 0
    used_ms: int = 0
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(first, last, LSN), the newest last."""
    changed: bool = False

    def encode(self) -> bytes:
        head = _HEAD.pack(_VERSION, self.rule, self.epoch, self.used_ms, len(self.batches))
        return head + b"".join(_BATCH.pack(*batch) for batch in self.batches)

    @classmethod
    def decode(cls, raw: bytes) -> _Producer:
        _, rule, epoch, used_ms, n = _HEAD.unpack_from(raw)
        batches = [_BATCH.unpack_from(raw, _HEAD.size + i * _BATCH.size) for i in range(n)]
        return cls(rule, epoch, used_ms, batches)


class Producers:
    """The producers of one log. Loop thread only."""

    def __init__(self, log: Log, *, most: int = _MOST) -> None:
        """For Log only, when its tables are there."""
        self._log = log
        self._most = most
        rows = [(_Producer.decode(value), name) for name, value in log.tables.items(_TABLE)]
        rows.sort(key=lambda row: row[0].used_ms)
        self._known: OrderedDict[bytes, _Producer] = OrderedDict((name, producer) for producer, name in rows)
        """By name, the one idle longest first."""
        self._changed: list[bytes] = []
        self.is_open = False
        """A unit is under way: `close` must follow before the tick ends."""
        self.duplicates = 0
        """What came again and was not appended."""

    # Beginning

    def begin(self, name: bytes, epoch: int | None = None) -> tuple[int, int]:
        """A process of this name begins (None), or goes on with the epoch it was given.

        Returns:
            Its epoch, which fences off all older ones from now on, and the LSN to wait for.

        Raises:
            ProducerFenced: a newer process has begun.

        """
        producer = self._known.get(name)
        if epoch is None:
            epoch = 1 if producer is None else producer.epoch + 1
        elif producer is not None and epoch < producer.epoch:
            raise ProducerFenced(name, epoch, producer.epoch)
        if producer is not None and producer.rule == _BATCHES and producer.epoch == epoch:
            return epoch, 0
        producer = self._known[name] = _Producer(_BATCHES, epoch, self._log.now_ms())
        self._known.move_to_end(name)
        return epoch, self._log.tables.put(_TABLE, name, producer.encode())

    # Asking

    def epoch_of(self, name: bytes) -> int:
        """The newest it was given; 0: it never began, or is forgotten."""
        producer = self._known.get(name)
        return 0 if producer is None else producer.epoch

    def admit_sequence(self, name: bytes, sequence: int) -> int:
        """Whether a message is new: 0 = it is, append and `note` it; else the LSN that its confirm waits for.

        `sequence` is in [0, 2**63).
        """
        producer = self._known.get(name)
        if producer is None or not producer.batches or sequence > producer.batches[-1][1]:
            return 0
        self.duplicates += 1
        return producer.batches[-1][2]

    def admit_batch(self, name: bytes, epoch: int, first: int, last: int) -> int:
        """Whether the messages numbered [first, last] are new: 0 = they are; else the LSN of their first.

        Raises:
            ProducerFenced: a newer process of this name has sent.
            OutOfSequence: messages before these are missing.

        """
        producer = self._known.get(name)
        if producer is None:
            return 0  # unknown, or forgotten: whatever it begins with
        if epoch < producer.epoch:
            raise ProducerFenced(name, epoch, producer.epoch)
        if epoch > producer.epoch:
            if first != 0:
                raise OutOfSequence(name, first, 0)
            return 0
        for known_first, known_last, lsn in producer.batches:
            if (known_first, known_last) == (first, last):
                self.duplicates += 1
                return lsn
        expected = (producer.batches[-1][1] + 1) % _AFTER_LAST if producer.batches else 0
        begins_again = first == 0 and expected + last >= _AFTER_LAST
        if first != expected and not begins_again:
            raise OutOfSequence(name, first, expected)
        return 0

    def repeated(self, name: bytes, epoch: int, last: int) -> int:
        """Whether messages up to `last`, of a batch that `admit_batch` found out of sequence, were appended.

        The LSN to wait for, at or below which each of them is; 0 = they were not.

        What a producer sends again after a lost connection may be more than the batches that are known. As in
        Kafka it is a duplicate then, whose place nobody knows any more.
        """
        producer = self._known.get(name)
        if producer is None or producer.epoch != epoch or producer.rule != _BATCHES or not producer.batches:
            return 0
        newest_first, newest, lsn = producer.batches[-1]
        if (newest - last) % _AFTER_LAST >= _AFTER_LAST // 2:
            return 0
        self.duplicates += 1
        return lsn + newest - newest_first

    # Appending

    def open(self) -> None:
        """Begin the atomic unit of what is admitted, if it is not begun. `close` ends it."""
        if not self.is_open:
            self.is_open = True
            self._log.appender.begin_unit()

    def note(self, name: bytes, first: int, last: int, lsn: int, *, epoch: int | None = None) -> None:
        """These were appended, the first at `lsn`; inside `open` and `close`. `epoch` None: rule sequence."""
        rule = _SEQUENCE if epoch is None else _BATCHES
        producer = self._known.get(name)
        if producer is None or producer.rule != rule or (epoch is not None and epoch > producer.epoch):
            producer = self._known[name] = _Producer(rule, epoch or 0)
        producer.batches.append((first, last, lsn))
        del producer.batches[: -_KNOWN_BATCHES if rule == _BATCHES else -1]
        producer.used_ms = self._log.now_ms()
        self._known.move_to_end(name)
        if not producer.changed:
            producer.changed = True
            self._changed.append(name)

    def close(self) -> None:
        """Put what changed and end the unit."""
        if not self.is_open:
            return
        try:
            if self._log.failed is not None:
                return
            for name in self._changed:
                producer = self._known[name]
                producer.changed = False
                self._log.tables.put(_TABLE, name, producer.encode())
            if len(self._known) > self._most:
                self._forget(len(self._known) - self._most)
                _LOG.warning("more than %d named producers: the one idle longest is forgotten", self._most)
        finally:
            self._changed.clear()
            self.is_open = False
            self._log.appender.end_unit()

    # Forgetting

    def expire(self) -> None:
        """Forget who was idle for a day; called now and then."""
        before_ms = self._log.wall_ms() - _IDLE_MS
        idle = 0
        for producer in self._known.values():
            if producer.used_ms > before_ms:
                break
            idle += 1
        self._forget(idle)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            name, _ = self._known.popitem(last=False)
            self._log.tables.delete(_TABLE, name)

    def __len__(self) -> int:
        return len(self._known)
