"""Named producers: a message that is sent again after a lost connection or a crash is appended once.

A producer numbers its messages. Its name, its last numbers and their positions are one row of a table, put
in the atomic unit of the records. So row and records cannot disagree after a crash. There are two rules:

    sequence   `admit_sequence`: the number must be higher than any before, gaps are fine (as in Pulsar);
               for producers that number single messages
    batches    `admit_batch`: numbers follow one another (a batch that would pass 2^31 begins with 0), the
               last five batches are known, and an epoch fences off an older process of the same name (as in
               Kafka)

Appending: `open` begins the unit, `note` says what was appended, `close` puts the changed rows and ends
the unit. Many messages of one read share them. Names are complete, with the vhost, and belong to the
caller.

A producer that sent nothing for a day is forgotten. When there are too many, the one idle longest is; its
next number then counts as new. When one owner has too many, one of his own is forgotten, so that nobody
can make the log forget the producers of others by inventing names. The name says whose it is:

    name   0 | anything | owner, 8 bytes | 16 bytes          others have no owner, and are not counted so

A label is what the caller wants to be told of a producer in a list, where the name is a digest.

    row: version u8 = 2 | rule u8 | epoch u32 | used i64, ms | n u8 | n times: first u64, last u64, LSN u64 |
         label: the rest

Rows of version 1 have no label; they get one when the producer sends again.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections import OrderedDict
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.lazy_dataclass import dataclass
from penstock.log_core.errors import OutOfSequence, ProducerFenced

if TYPE_CHECKING:
    from penstock.log_core.log import Log

__all__ = ["OWNER_SIZE", "Producers", "Seen"]

_LOG: Final = logging.getLogger("penstock.log")
_TABLE: Final = "producer"
_HEAD: Final = struct.Struct("<BBIqB")
_BATCH: Final = struct.Struct("<QQQ")
_VERSION: Final = 2
_SEQUENCE: Final = 0
_BATCHES: Final = 1
_KNOWN_BATCHES: Final = 5
_IDLE_MS: Final = 86_400_000
_MOST: Final = 100_000
"""Producers known at the same time; each takes about 600 bytes."""
_SHARE: Final = 10
"""An owner may have one of so many of them."""
_WARN_EACH_MS: Final = 60_000
OWNER_SIZE: Final = 8
_NAME_SIZE: Final = 16
_AFTER_LAST: Final = 2**31
"""Numbers of batches go up to 2**31 - 1 and begin again at 0, as Kafka's."""


class Seen(NamedTuple):
    """A producer, as a list has it."""

    label: bytes
    """b"": it sent nothing since rows have labels."""
    epoch: int
    """0: its messages are numbered one by one, and it has none."""
    used_ms: int
    """When it sent last, or began."""
    last: int | None
    """The highest number; None: it sent nothing in this epoch."""
    lsn: int
    """Of the first message of the batch that has it; 0: there is none."""


@dataclass(slots=True)
class _Producer:
    rule: int
    epoch: int = 0
    used_ms: int = 0
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(first, last, LSN), the newest last."""
    label: bytes = b""
    changed: bool = False

    def encode(self) -> bytes:
        head = _HEAD.pack(_VERSION, self.rule, self.epoch, self.used_ms, len(self.batches))
        return head + b"".join(_BATCH.pack(*batch) for batch in self.batches) + self.label

    @classmethod
    def decode(cls, raw: bytes) -> _Producer:
        _, rule, epoch, used_ms, n = _HEAD.unpack_from(raw)
        batches = [_BATCH.unpack_from(raw, _HEAD.size + i * _BATCH.size) for i in range(n)]
        return cls(rule, epoch, used_ms, batches, bytes(raw[_HEAD.size + n * _BATCH.size :]))

    def seen(self) -> Seen:
        _, last, lsn = self.batches[-1] if self.batches else (0, None, 0)
        return Seen(self.label, self.epoch, self.used_ms, last, lsn)


def _owner(name: bytes) -> bytes:
    """Whose it is; b"": nobody's."""
    return name[-_NAME_SIZE - OWNER_SIZE : -_NAME_SIZE] if name[:1] == b"\0" else b""


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
        self._owned: dict[bytes, OrderedDict[bytes, None]] = {}
        """The names of each owner, the one idle longest first."""
        for name in list(self._known):
            self._used(name)
        self._claims: dict[bytes, int] = {}
        """Names that one connection alone may send for, and its claim; they go with the connections."""
        self._claimed = 0
        self._changed: list[bytes] = []
        self.is_open = False
        """A unit is under way: `close` must follow before the tick ends."""
        self._quiet_until_ms = 0
        self.duplicates = 0
        """Repetitions, which were not appended."""

    # Beginning

    def begin(self, name: bytes, epoch: int | None = None, *, label: bytes = b"") -> tuple[int, int]:
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
        producer = self._known[name] = _Producer(_BATCHES, epoch, self._log.now_ms(), label=label)
        self._used(name)
        lsn = self._log.tables.put(_TABLE, name, producer.encode())
        self._bound(name)
        return epoch, lsn

    def claim(self, name: bytes) -> int:
        """From now on only the holder of this claim may send for a name; until `give_up`."""
        self._claimed += 1
        self._claims[name] = self._claimed
        return self._claimed

    def holds(self, name: bytes, claim: int) -> bool:
        """Whether nobody has claimed the name since."""
        return self._claims.get(name) == claim

    def give_up(self, name: bytes, claim: int) -> None:
        """End a claim; others stay."""
        if self.holds(name, claim):
            del self._claims[name]

    # Asking

    def epoch_of(self, name: bytes) -> int:
        """The newest it was given; 0: it never began, or is forgotten."""
        producer = self._known.get(name)
        return 0 if producer is None else producer.epoch

    def names(self) -> list[bytes]:
        """All that are known now, the one idle longest first."""
        return list(self._known)

    def seen(self, name: bytes) -> Seen | None:
        """How it is now; None: it is forgotten."""
        producer = self._known.get(name)
        return None if producer is None else producer.seen()

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

        The messages that a producer sends again after a lost connection may be more than the batches that are
        known. As in Kafka it is a duplicate then, whose place nobody knows any more.
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

    def note(
        self,
        name: bytes,
        first: int,
        last: int,
        lsn: int,
        *,
        epoch: int | None = None,
        label: bytes = b"",
    ) -> None:
        """These were appended, the first at `lsn`; inside `open` and `close`. `epoch` None: rule sequence."""
        rule = _SEQUENCE if epoch is None else _BATCHES
        producer = self._known.get(name)
        if producer is None or producer.rule != rule or (epoch is not None and epoch > producer.epoch):
            producer = self._known[name] = _Producer(rule, epoch or 0)
        producer.label = label or producer.label
        producer.batches.append((first, last, lsn))
        del producer.batches[: -_KNOWN_BATCHES if rule == _BATCHES else -1]
        producer.used_ms = self._log.now_ms()
        self._used(name)
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
                producer = self._known.get(name)
                if producer is None:  # forgotten meanwhile
                    continue
                producer.changed = False
                self._log.tables.put(_TABLE, name, producer.encode())
            for name in self._changed:
                self._bound(name)
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
        for name in list(itertools.islice(self._known, idle)):
            self._forget(name)

    def _used(self, name: bytes) -> None:
        """It is the one that was idle the shortest."""
        self._known.move_to_end(name)
        owner = _owner(name)
        if owner:
            names = self._owned.setdefault(owner, OrderedDict())
            names[name] = None
            names.move_to_end(name)

    def _bound(self, name: bytes) -> None:
        """It was used: nobody has too many names now."""
        names = self._owned.get(_owner(name), ())
        if len(names) > max(self._most // _SHARE, 1):
            self._forget(next(iter(names)))
            self._warn(
                f"a user has more than {self._most // _SHARE} named producers: his own that is idle longest"
            )
        if len(self._known) > self._most:
            self._forget(next(iter(self._known)))
            self._warn(f"more than {self._most} named producers: the one that is idle longest")

    def _warn(self, what: str) -> None:
        """Not for each of them: names are a peer's, and cost nothing."""
        now_ms = self._log.wall_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _WARN_EACH_MS
            _LOG.warning("%s is forgotten; what it sends again may be taken for new", what)

    def _forget(self, name: bytes) -> None:
        del self._known[name]
        owner = _owner(name)
        if owner:
            del self._owned[owner][name]
            if not self._owned[owner]:
                del self._owned[owner]
        self._log.tables.delete(_TABLE, name)

    def __len__(self) -> int:
        return len(self._known)
