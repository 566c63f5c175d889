"""Compares what publishers were promised with what consumers got. Knows no protocol.

Each publisher numbers its messages from 0 and keeps a `History`; its consumer writes what it gets into the
same one. In the words of Jepsen's queue checker, per message:

    attempted    it was sent, `attempts` times (a publisher may send again what was not answered)
    acked        the broker confirmed it            refused   the broker said no
    unknown      attempted, neither acked nor refused: it may arrive or not, neither is an error
    received     it reached the consumer, each time with or without the redelivered flag

and the findings:

    lost         acked and never received
    unexpected   received but never attempted, or the body differs
    duplicated   received more often, without the flag, than it was sent; where exactly-once is promised:
                 more than once
    reordered    first received after a later message of the same publisher
    returned     received again although the broker had been seen to do later work than its acknowledgement

A run in which too little was acked, nothing was killed, or nothing was in flight at a kill proves nothing:
INVALID.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

CURSOR_SAVE_S = 0.25
"""A broker that has read an acknowledgement keeps it durably with what it confirms this much later.

The promise is 100 ms.
"""


def make_body(producer: str, sequence: int) -> bytes:
    """The body of a message: who, which, a check sum, and a filler whose length depends on the number."""
    head = f"{producer} {sequence} ".encode()
    filler = bytes(97 + (sequence + i) % 26 for i in range(sequence * 37 % 160))
    return head + f"{zlib.crc32(head + filler):08x} ".encode() + filler


def read_body(body: bytes) -> tuple[str, int]:
    """(producer, sequence) of a body; raises ValueError when it is not one that `make_body` made."""
    producer, _, rest = body.partition(b" ")
    number, _, _ = rest.partition(b" ")
    sequence = int(number)
    if make_body(producer.decode(), sequence) != body:
        raise ValueError("body differs from the one sent")
    return producer.decode(), sequence


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery to the consumer."""

    sequence: int
    flagged: bool
    """Whether it was marked as a possible repetition (AMQP redelivered, MQTT DUP)."""
    at: float
    """When, in seconds of the monotonic clock."""


@dataclass(slots=True)
class History:
    """The record of one publisher and its consumer; the threads of both share it."""

    producer: str
    exactly_once: bool = False
    attempts: dict[int, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    receipts: list[Receipt] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    settled: dict[int, float] = field(default_factory=dict)
    """When the consumer last acknowledged the message, in seconds of the monotonic clock: not before the
    acknowledgement was sent."""
    sent_at: dict[int, float] = field(default_factory=dict)
    """When the message was about to be sent the last time."""
    answers: list[tuple[float, float]] = field(default_factory=list)
    """Of each message acked: when it was about to be sent, and when the ack was read."""
    connections: list[int] = field(default_factory=list)
    """Where clients may leave a connection that the broker still serves: the first message of each connection
    of the publisher. Order is then promised within one, and for messages that are not redelivered: others may
    have gone to the consumer's connection before. Empty: for all."""
    ordered: bool = True
    at_least_once: bool = False
    """The broker itself may send a message on twice, unmarked, such as dead letters."""
    in_flight_at_fault: list[int] = field(default_factory=list)
    """How many messages were attempted and unanswered at each kill."""

    def attempt(self, sequence: int, *, at: float) -> None:
        """The message is about to be sent (again)."""
        self.attempts[sequence] = self.attempts.get(sequence, 0) + 1
        self.sent_at[sequence] = at

    def ack(self, sequence: int, *, at: float) -> None:
        """The broker confirmed the message."""
        self.acked.add(sequence)
        self.answers.append((self.sent_at[sequence], at))

    def receive(self, body: bytes, *, flagged: bool, at: float) -> int | None:
        """The consumer got `body`; returns its number, or None when it is none of this publisher's."""
        try:
            producer, sequence = read_body(body)
        except ValueError as error:
            self.unexpected.append(f"{error}: {body[:60]!r}")
            return None
        if producer != self.producer:
            self.unexpected.append(f"message {sequence} of {producer}")
            return None
        self.receipts.append(Receipt(sequence, flagged, at))
        return sequence

    @property
    def unanswered(self) -> int:
        """Messages attempted so far and neither acked nor refused."""
        return len(self.attempts) - len(self.acked) - len(self.refused)

    @property
    def unknown(self) -> set[int]:
        """The messages attempted that were never answered."""
        return set(self.attempts) - self.acked - self.refused


@dataclass(slots=True)
class Verdict:
    """The findings over all histories, each named `producer sequence`."""

    attempted: int = 0
    acked: int = 0
    unknown: int = 0
    received: int = 0
    flagged: int = 0
    """Receipts after the first that were rightly marked as repetitions."""
    resent: int = 0
    """Receipts after the first that the publisher itself caused by sending again."""
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """Why the run proves nothing; empty when it does."""

    @property
    def faults(self) -> int:
        """Number of findings."""
        return sum(map(len, (self.lost, self.unexpected, self.duplicated, self.reordered, self.returned)))

    @property
    def word(self) -> str:
        """PASS, FAIL or INVALID. A failure counts even in a run that is too small to pass."""
        return "FAIL" if self.faults else "INVALID" if self.invalid else "PASS"

    def __str__(self) -> str:
        figures = (
            f"{self.word}: attempted {self.attempted:,}, acked {self.acked:,}, unknown {self.unknown:,}, "
            f"received {self.received:,} ({self.flagged:,} flagged, {self.resent:,} sent again); "
        )
        findings = []
        for name in ("lost", "unexpected", "duplicated", "reordered", "returned"):
            found = getattr(self, name)
            findings.append(f"{name} {len(found):,}" + (f" (first: {', '.join(found[:3])})" if found else ""))
        return figures + ", ".join(findings) + "".join(f"; {reason}" for reason in self.invalid)


def check(histories: Iterable[History], *, fault_times: Sequence[float], acked_min: int) -> Verdict:
    """Judge finished histories.

    Args:
        histories: One per publisher; the consumers have drained.
        fault_times: When the broker was killed, in seconds of the monotonic clock.
        acked_min: Fewer acks than this in any history make the run INVALID.

    """
    verdict = Verdict()
    if not fault_times:
        verdict.invalid.append("no fault was injected")
    in_flight: list[int] = []
    histories = list(histories)
    remembered = _memory(histories)
    excuses = [(fault, remembered(fault)) for fault in fault_times]
    for history in histories:
        if len(history.acked) < acked_min:
            verdict.invalid.append(f"{history.producer}: {len(history.acked)} acked, {acked_min} wanted")
        in_flight += [0] * (len(history.in_flight_at_fault) - len(in_flight))
        for i, count in enumerate(history.in_flight_at_fault):
            in_flight[i] += count
        _judge(history, excuses, verdict)
    idle = [i + 1 for i, count in enumerate(in_flight) if count == 0]
    if idle:
        verdict.invalid.append(f"nothing in flight at kill {', '.join(map(str, idle))}")
    return verdict


def _memory(histories: Sequence[History]) -> Callable[[float], float]:
    """Up to when acknowledgements must be remembered by a broker that is killed at a time.

    How long a busy machine takes to bring an acknowledgement to the broker is not known, so what the broker
    did is the clock. A confirm proves that all that was sent before its message has been read. A message sent
    `CURSOR_SAVE_S` later finds the timer of the cursors due, one sent after the confirm of that finds them
    saved, and its own confirm makes them as durable as itself.
    """
    answers = sorted((acked, sent) for history in histories for sent, acked in history.answers)
    times = [acked for acked, _ in answers]
    latest = [float("-inf"), *accumulate((sent for _, sent in answers), max)]

    def read_by(at: float) -> float:
        return latest[bisect_right(times, at)]

    return lambda fault: read_by(read_by(read_by(fault)) - CURSOR_SAVE_S)


def _judge(history: History, excuses: Sequence[tuple[float, float]], verdict: Verdict) -> None:
    def name(sequence: int) -> str:
        return f"{history.producer} {sequence}"

    verdict.attempted += len(history.attempts)
    verdict.acked += len(history.acked)
    verdict.unknown += len(history.unknown)
    verdict.received += len(history.receipts)
    verdict.unexpected += [f"{history.producer}: {text}" for text in history.unexpected]
    unflagged: dict[int, int] = {}
    last_seen: dict[int, float] = {}
    highest: dict[int, int] = {}
    for receipt in history.receipts:
        sequence = receipt.sequence
        if sequence not in history.attempts:
            verdict.unexpected.append(f"{name(sequence)} was never sent")
            continue
        first = sequence not in last_seen
        connection = bisect_right(history.connections, sequence)
        latest = highest.get(connection, -1)
        excused = not history.ordered or (receipt.flagged and bool(history.connections))
        if first and sequence < latest and not excused:
            verdict.reordered.append(f"{name(sequence)} after {latest}")
        highest[connection] = max(latest, sequence)
        if not first:
            if history.exactly_once:
                verdict.duplicated.append(name(sequence))
            elif receipt.flagged:
                verdict.flagged += 1
                if _forgotten(history, sequence, last_seen[sequence], receipt.at, excuses):
                    verdict.returned.append(name(sequence))
            elif unflagged.get(sequence, 0) >= history.attempts[sequence] and not history.at_least_once:
                verdict.duplicated.append(name(sequence))
            else:
                verdict.resent += 1
        if first or not receipt.flagged:
            unflagged[sequence] = unflagged.get(sequence, 0) + 1
        last_seen[sequence] = receipt.at
    verdict.lost += [name(sequence) for sequence in sorted(history.acked - set(last_seen))]


def _forgotten(
    history: History, sequence: int, before: float, again: float, excuses: Sequence[tuple[float, float]]
) -> bool:
    """Whether a repetition follows an acknowledgement that no crash in between excuses.

    `excuses`: of each crash when it was and up to when acknowledgements must be remembered by it.
    """
    settled = history.settled.get(sequence)
    # A copy that the publisher sent itself was never acknowledged: the acknowledgement was the other copy's.
    if history.attempts[sequence] > 1 or settled is None or settled < before or settled > again:
        return False
    return not any(settled - 0.001 <= fault and remembered < settled for fault, remembered in excuses)
