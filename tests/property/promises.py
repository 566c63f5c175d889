"""The promises of each kind of subscription, and the bookkeeping that checks them.

    all         nothing settled comes again, nothing is lost; credit in messages and bytes, and what a pull
                may have, are not exceeded; what came before is flagged, and says how often it was given back;
                after so many deliveries it is in the dead-letter topic, once; what can go out does; nothing
                comes early, of a transaction that failed, or of a half message that is not committed
    exclusive   one consumer, in order
    failover    one active consumer at most, which alone gets anything, in order, and all that was unsettled
    shared      a message is at one consumer at a time
    key_shared  a key is at one consumer at a time, across joins and leaves, and in its order
    sticky      the same, and each consumer has the slots that it asked for

Order is that of the messages that nobody gave back: what a consumer held that left comes again first.

`Promises` sees all deliveries; a subclass's rules note what they do in its fields.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from penstock.subscriptions.cursor._keys import slot
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World

__all__ = ["DELIVERIES", "LOOKS_S", "QUARTERS", "Promises", "Taker", "key_of", "number_of"]

LOOKS_S = 1.5
"""Longer than what is due may wait to be published."""
DELIVERIES = 3
"""Of a message, where they are limited."""
QUARTERS = [(i * 16_384, (i + 1) * 16_384 - 1) for i in range(4)]
"""The slots of sticky consumers."""


def key_of(body: bytes) -> bytes:
    return body.partition(b":")[0]


def number_of(body: bytes) -> int:
    return int(body.partition(b":")[2])


class Taker:
    """A consumer: what it may have, and what it holds, by tag."""

    def __init__(self, client: Client, name: str, priority: int, quarter: int, stores: bool) -> None:
        self.client = client
        self.stores = stores
        """It takes batches as they are stored: the last one may overdraw the credit by a quarter of the most
        that it ever was."""
        self.name = name
        self.priority = priority
        self.quarter = quarter
        self.held: dict[int, bytes] = {}
        self.credit = 0
        self.window = 0
        """The most that it ever was."""
        self.credit_bytes = 0
        self.pulls: dict[int, list[int]] = {}
        """Per pull, the messages that it may still have and those that it has."""
        self.active = False
        self.paused = False

    @property
    def hungry(self) -> bool:
        """It may be given a message."""
        return not self.paused and ((self.credit > 0 and self.credit_bytes > 0) or bool(self.pulls))


class Promises(RuleBasedStateMachine):
    """One subscription `s` of the topic `t` of a world of its own, its consumers and all that was sent."""

    kind = ""
    sticky = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-kinds-"))
        self.world = World(self.folder)
        self.sent: list[bytes] = []
        self.settled: set[bytes] = set()
        self.came: set[bytes] = set()
        """The messages delivered since they were published or sought."""
        self.given_back: set[bytes] = set()
        """The messages that come when their wait is over, before or after others."""
        self.in_doubt = False
        """The gateway was killed: what comes may have come before."""
        self.takers: list[Taker] = []
        self.last_of: dict[bytes, int] = {}
        """By key, of kinds where one consumer gets everything by b"": the number of the last message."""
        self.names = 0
        self.requests = 0
        self.paused = False
        self.limited = False
        self.counts: Counter[bytes] = Counter()
        """How often it was given back."""
        self.dead: Counter[bytes] = Counter()
        """The messages moved to the dead-letter topic."""
        self.dying: list[bytes] = []
        """Of that, what is still on its way, or may be: a seek comes before it."""
        self.perhaps: Counter[bytes] = Counter()
        self.due: dict[bytes, float] = {}
        """When what is published later may come."""
        self.unordered: set[bytes] = set()
        """The messages published at another time than their number says."""
        self.halves: dict[int, bytes] = {}
        """Bodies of those that are undecided, by transaction."""
        self.made = 0
        """Messages that have a number."""

    def _returned(self, taker: Taker) -> None:
        """The messages that the consumer had unsettled come again, and first."""
        for body in taker.held.values():
            if self._gave_back(body):
                self._again(body)
        taker.held.clear()

    def _gave_back(self, body: bytes) -> bool:
        """It comes again; False: it was delivered often enough."""
        if self.limited and self.counts[body] >= DELIVERIES - 1:
            self.settled.add(body)
            self.dead[body] += 1
            self.dying.append(body)
            return False
        self.counts[body] += 1
        return True

    def _again(self, body: bytes) -> None:
        group = self._group(body)
        self.last_of[group] = min(self.last_of.get(group, -1), number_of(body) - 1)

    def _group(self, body: bytes) -> bytes:
        return key_of(body) if self.kind == "key_shared" else b""

    # Invariants

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "sender"):
            self._check()

    def _look(self, taker: Taker) -> None:
        """Take in the messages that came to a consumer."""
        taker.client.world.settle()
        frames, taker.client.frames = taker.client.frames, []
        for kind, _, payload in frames:
            delivery = wire.delivery(kind, payload)
            if delivery is not None:
                first, pull, messages = delivery
                for i, message in enumerate(messages):
                    self._delivered(taker, pull, message)
                    taker.held[first + i] = message["body"]
            elif kind == 0x25:
                request, told = struct.unpack(">II", payload)
                assert taker.pulls.pop(request)[1] == told
            elif kind == 0x26:
                self._event(taker, json.loads(payload)["event"])

    def _event(self, taker: Taker, event: str) -> None:
        if event == "void":
            self._returned(taker)
        else:
            assert event in ("active", "inactive"), event
            taker.active = event == "active"

    def _delivered(self, taker: Taker, pull: int, message: dict[str, Any]) -> None:
        body = message["body"]
        if pull:
            assert taker.pulls[pull][0] > 0, "no more than a pull may have"
            taker.pulls[pull][0] -= 1
            taker.pulls[pull][1] += 1
        else:
            overdraws = taker.window // 4 if taker.stores else 0
            assert taker.credit > -overdraws, "messages of credit are not exceeded"
            assert taker.credit_bytes > 0, "bytes of credit are overdrawn by one message at most"
            taker.credit -= 1
            taker.credit_bytes -= 28 + sum(len(message[part]) for part in ("key", "props", "body"))
        assert not (self.paused or taker.paused), "a pause holds"
        assert body in self.sent, "what was not committed is not seen"
        assert self.due.get(body, 0) <= self.world.clock.now, "nothing comes early"
        assert body not in self.settled, "what is settled does not come again"
        assert message["redelivered"] or body not in self.came, "what comes again is flagged"
        assert self.in_doubt or not message["redelivered"] or body in self.came, "what is new is not flagged"
        assert self.in_doubt or message["given_back"] == self.counts[body], "returns are counted"
        self.came.add(body)
        if self.kind == "failover":
            assert taker.active, "only the active one gets anything"
        if self.sticky:
            first, last = QUARTERS[taker.quarter]
            assert first <= slot(key_of(body)) <= last, "slots are those that were asked for"
        if body in self.given_back:
            self.given_back.remove(body)
        elif self.kind != "shared" and body not in self.unordered:
            group = self._group(body)
            assert number_of(body) > self.last_of.get(group, -1), "order is kept"
            self.last_of[group] = number_of(body)

    def _check(self) -> None:
        for taker in self.takers:
            self._look(taker)
        held = [body for taker in self.takers for body in taker.held.values()]
        assert len(held) == len(set(held)), "a message is at one consumer"
        waiting = set(self.sent) - self.settled - set(held) - self.given_back
        waiting -= {body for body, due in self.due.items() if due + LOOKS_S > self.world.clock.now}
        hungry = [taker for taker in self.takers if taker.hungry and not self.paused]
        if self.kind == "exclusive":
            assert len(self.takers) <= 1
        elif self.kind == "failover":
            hungry = [taker for taker in hungry if taker.active]
            assert sum(taker.active for taker in self.takers) <= 1, "one is active"
            assert sum(bool(taker.held) for taker in self.takers) <= 1
        elif self.kind == "key_shared":
            holders: dict[bytes, str] = {}
            for taker in self.takers:
                for body in taker.held.values():
                    holder = holders.setdefault(key_of(body), taker.name)
                    assert holder == taker.name, "a key is at one consumer"
            waiting = {body for body in waiting if key_of(body) not in holders}
            if self.sticky or len(hungry) < len(self.takers):
                return  # it may be the key of one that may have nothing
        assert not (waiting and hungry), "what can go out does"
