"""Decides what one webhook sends next, and what an answer means. Pure: no I/O, and time is an argument.

Messages wait in *lanes*: one lane for each message without ordering, one for each key, or one for all. Of a
lane only the head is sent, alone or with what follows it in one request; a lane whose head waits for its next
attempt waits as a whole, and the others go on.

    lane     ready ── sent ──> flying ── answered ──> ready, resting until its head is due, or gone
    webhook  closed ── 10 failures in a row ──> open: one probe at a time, 1 s to 5 min apart ── success ──>

How many requests are under way follows the receiver: one at first, one more for each round of successes, half
as many after a failure (AIMD, as TCP's congestion avoidance). 429 and 503 rest the whole webhook for as long
as `Retry-After` says. Times are seconds on the wall clock, for due times outlive the process.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.settings import Settings

__all__ = ["STATES", "Endpoint", "Item", "Outcome", "Verdict"]

STATES: Final = ("active", "throttled", "open", "waiting", "pending", "paused", "disabled", "broken")
"""Sends; rests as the receiver asked; only probes a receiver that fails; cannot consume its source;
waits for the receiver's consent; was paused by somebody; was switched off by itself; the configuration
forbids it since a start."""

_JITTER: Final = 0.2
_BREAKER: Final = 10
_PROBE_FIRST_S: Final = 1.0
_PROBE_MAX_S: Final = 300.0
_RETRY_AFTER_MAX_S: Final = 86_400.0
_WINDOW: Final = 10_000
_WINDOW_BYTES: Final = 16 << 20
_RESERVE: Final = 64
"""Messages ready to be sent that it likes to have."""


class Outcome(Enum):
    """The outcome of an attempt."""

    DONE = "done"
    """2xx."""
    FAILED = "failed"
    """Timeout, connection or TLS error, 3xx, 408, 425, 5xx but 503."""
    THROTTLED = "throttled"
    """429, 503: not the message's fault, so no attempt of its schedule is used up."""
    REFUSED = "refused"
    """Any other 4xx."""
    GONE = "gone"
    """410: the receiver wants nothing any more."""


@dataclass(slots=True, eq=False)
class Item:
    """One message that is held for a webhook."""

    name: object
    """Of whoever holds it; not looked at here."""
    key: str
    size: int
    attempts: int = 0
    """Those that count against its schedule."""
    first_s: float = 0.0
    """When it was sent first; 0: never."""
    due_s: float = 0.0
    alone: bool = False
    """It was in a request that was refused: sent by itself until it is known which one is to blame."""


@dataclass(slots=True, eq=False)
class _Lane:
    key: str
    items: deque[Item] = field(default_factory=deque)
    flying: bool = False


@dataclass(slots=True)
class Verdict:
    """The decision about the messages of a request."""

    done: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    again: list[Item] = field(default_factory=list)
    disable: str = ""
    """Why nothing more may be sent; "": it may."""


class Endpoint:
    """See the module."""

    def __init__(self, settings: Settings, *, chance: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._chance = chance
        self._lanes: dict[str, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._resting: list[tuple[float, int, _Lane]] = []
        self._flights: dict[int, list[_Lane]] = {}
        self._count = 0
        self._since_s = 0.0
        self._limit = 1.0
        self._failures = 0
        self._failing_since_s = 0.0
        self._rest_until_s = 0.0
        self.pace_s = 0.0
        """Least time from one request to the next, when the receiver said so."""
        self.held = 0
        """Messages it holds."""
        self.held_bytes = 0
        self.in_flight = 0
        """Requests under way."""

    @property
    def is_open(self) -> bool:
        """The breaker is open: the receiver fails, and is only probed."""
        return self._failures >= _BREAKER

    @property
    def concurrency(self) -> int:
        """Requests that may be under way at the same time, now."""
        return 1 if self.is_open else int(self._limit)

    def resting_s(self, now_s: float) -> float:
        """How long nothing is sent because the receiver asked for it, or the breaker is open."""
        return max(self._rest_until_s - now_s, 0.0)

    def capacity(self, now_s: float) -> int:
        """How many more messages it would hold: some in reserve, and none while it rests as a whole.

        Messages that wait for their next attempt are held beside these, up to a limit.
        """
        if self.held >= _WINDOW or self.held_bytes >= _WINDOW_BYTES or now_s < self._rest_until_s:
            return 0
        reserve = max(_RESERVE, 2 * self.concurrency * self._settings.batch.max_messages)
        waiting = self.held if self._settings.ordering == "strict" else len(self._ready)
        return max(min(reserve - waiting, _WINDOW - self.held), 0)

    def add(self, item: Item, now_s: float) -> None:
        """Hold one more message, behind those of its lane."""
        match self._settings.ordering:
            case "none":
                self._count += 1
                key = str(self._count)
            case "key":
                key = item.key
            case "strict":
                key = ""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.items.append(item)
        self.held += 1
        self.held_bytes += item.size
        if len(lane.items) == 1 and not lane.flying:
            self._place(lane, now_s)

    def _place(self, lane: _Lane, now_s: float) -> None:
        due_s = lane.items[0].due_s
        if due_s > now_s:
            self._count += 1
            heapq.heappush(self._resting, (due_s, self._count, lane))
        else:
            if not self._ready:
                self._since_s = now_s
            self._ready.append(lane)

    def next(self, now_s: float) -> list[Item]:
        """The messages of the next request, which is then under way until `answered`; empty: not now."""
        while self._resting and self._resting[0][0] <= now_s:
            if not self._ready:
                self._since_s = now_s
            self._ready.append(heapq.heappop(self._resting)[2])
        if not self._ready or self.in_flight >= self.concurrency or now_s < self._rest_until_s:
            return []
        batch = self._settings.batch
        if batch.linger_ms and now_s < self._since_s + batch.linger_ms / 1000:
            waiting = len(self._ready) if self._settings.ordering == "none" else self.held
            if waiting < batch.max_messages:
                return []
        chosen: list[Item] = []
        lanes: list[_Lane] = []
        size = 0
        while self._ready and len(chosen) < batch.max_messages:
            lane = self._ready[0]
            taken = 0
            for item in lane.items:
                full = chosen and (item.alone or chosen[0].alone or size + item.size > batch.max_bytes)
                if full or len(chosen) >= batch.max_messages or item.due_s > now_s:
                    break
                chosen.append(item)
                size += item.size
                taken += 1
            if not taken:
                break
            self._ready.popleft()
            lane.flying = True
            lanes.append(lane)
        for item in chosen:
            item.first_s = item.first_s or now_s
        self._since_s = now_s
        self._rest_until_s = max(self._rest_until_s, now_s + self.pace_s)
        self.in_flight += 1
        self._flights[id(chosen)] = lanes
        return chosen

    def wake_s(self, now_s: float) -> float | None:
        """When `next` may have something that it has not now, if nothing else happens; None: never."""
        if self.in_flight >= self.concurrency:
            return None
        due: list[float] = []
        if self._ready:
            due.append(self._since_s + self._settings.batch.linger_ms / 1000)
        if self._resting:
            due.append(self._resting[0][0])
        return max(min(due), self._rest_until_s, now_s) if due else None

    def answered(
        self,
        chosen: list[Item],
        outcome: Outcome,
        now_s: float,
        *,
        wait_s: float = 0.0,
        refused: frozenset[int] = frozenset(),
        again: frozenset[int] = frozenset(),
    ) -> Verdict:
        """A request came to its end; what becomes of its messages.

        Args:
            chosen: As `next` gave it.
            wait_s: The time that the receiver asks for with Retry-After.
            refused: With DONE: places of messages that the receiver does not want.
            again: With DONE: places of messages that it wants again.

        """
        lanes = self._flights.pop(id(chosen))
        self.in_flight -= 1
        verdict = Verdict()
        self._tell(outcome, now_s, wait_s, verdict)
        if outcome is not Outcome.GONE:
            for at, item in enumerate(chosen):
                fate = outcome
                if outcome is Outcome.DONE and at in refused:
                    fate = Outcome.REFUSED
                elif outcome is Outcome.DONE and at in again:
                    fate = Outcome.FAILED
                self._judge(item, fate, now_s, wait_s, len(chosen) > 1, verdict)
        ended = {id(item) for item in (*verdict.done, *verdict.dead)}
        for lane in lanes:
            lane.flying = False
            if ended:
                lane.items = deque(item for item in lane.items if id(item) not in ended)
            if lane.items:
                self._place(lane, now_s)
            else:
                del self._lanes[lane.key]
        for item in (*verdict.done, *verdict.dead):
            self.held -= 1
            self.held_bytes -= item.size
        return verdict

    def _tell(self, outcome: Outcome, now_s: float, wait_s: float, verdict: Verdict) -> None:
        """The state of the receiver as a whole."""
        if outcome in (Outcome.DONE, Outcome.REFUSED):
            # A receiver that refuses messages is there, and answers.
            self._limit = min(self._limit + 1 / int(self._limit), self._settings.max_inflight)
            self._failures = 0
            self._failing_since_s = 0.0
            if wait_s:
                self._rest(now_s, wait_s)
            return
        self._limit = max(self._limit / 2, 1.0)
        if outcome is Outcome.GONE:
            verdict.disable = "the receiver answered 410 Gone"
            return
        if not self._failing_since_s:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > self._settings.disable_after_ms / 1000:
            verdict.disable = "nothing but failures for longer than disable_after_ms"
        if outcome is Outcome.THROTTLED:
            self._rest(now_s, wait_s or self._spread(_PROBE_FIRST_S * 2 ** min(self._failures, 8)))
            self._failures = min(self._failures + 1, _BREAKER - 1)
            return
        self._failures += 1
        if self.is_open:
            probe_s = min(_PROBE_FIRST_S * 2 ** min(self._failures - _BREAKER, 20), _PROBE_MAX_S)
            self._rest(now_s, max(self._spread(probe_s), wait_s))

    def _rest(self, now_s: float, wait_s: float) -> None:
        self._rest_until_s = max(self._rest_until_s, now_s + min(wait_s, _RETRY_AFTER_MAX_S))

    def _judge(
        self, item: Item, fate: Outcome, now_s: float, wait_s: float, shared: bool, verdict: Verdict
    ) -> None:
        retry = self._settings.retry
        if fate is Outcome.DONE:
            verdict.done.append(item)
            return
        if fate is Outcome.REFUSED and shared:
            item.alone = True
        if fate is not Outcome.THROTTLED:
            item.attempts += 1
        most = retry.refused_attempts if fate is Outcome.REFUSED else len(retry.schedule_ms) + 1
        if item.attempts >= most or now_s - item.first_s > retry.max_age_ms / 1000:
            verdict.dead.append(item)
            return
        if fate is Outcome.THROTTLED:
            delay_s = wait_s
        else:
            steps = retry.schedule_ms
            step = steps[min(item.attempts, len(steps)) - 1] if steps else 0
            delay_s = max(self._spread(step / 1000), wait_s)
        item.due_s = now_s + min(delay_s, _RETRY_AFTER_MAX_S * 7)
        verdict.again.append(item)

    def _spread(self, seconds: float) -> float:
        return seconds * (1 + _JITTER * (2 * self._chance() - 1))
