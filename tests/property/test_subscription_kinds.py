"""Subscriptions of every kind against what each promises, over whole native sessions without sockets.

Consumers join and leave, acknowledge, give back, run into their timeout, grant credit; the subscription is
sought, the gateway restarted.

    all         nothing settled comes again, nothing is lost, credit is never exceeded
    exclusive   one consumer
    failover    only the active one has anything
    shared      a message is at one consumer at a time
    key_shared  a key is at one consumer at a time; without anything given back, in its order
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.reference import native_frames as wire
from tests.support.native_session import Client, World, keyed

KEYS = st.sampled_from(["a", "b", "c", "d"])
WHICH = st.integers(0, 3)
TIMEOUT_S = 1000.0
"""More than all the waits of a run together, so that only the rule for it runs into it."""


class Taker:
    """A consumer: what it holds, by tag."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.held: dict[int, bytes] = {}
        self.credit = 0

    def look(self) -> list[dict[str, Any]]:
        """What came; what became void before is gone."""
        self.client.world.settle()
        found = []
        frames, self.client.frames = self.client.frames, []
        for kind, _, payload in frames:
            delivery = wire.delivery(kind, payload)
            if delivery is not None:
                first, _, messages = delivery
                for i, message in enumerate(messages):
                    self.held[first + i] = message["body"]
                    self.credit -= 1
                    found.append(message)
            elif kind == 0x26 and b'"void"' in payload:
                self.held.clear()
        return found


class Kinds(RuleBasedStateMachine):
    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-kinds-"))
        self.world = World(self.folder)
        self.sent: list[bytes] = []
        self.settled: set[bytes] = set()
        self.takers: list[Taker] = []
        self.given_back = False
        self.last_of: dict[bytes, int] = {}
        self.names = 0

    @initialize()
    def begin(self) -> None:
        self._open()

    def _open(self) -> None:
        self.sender = Client(self.world)
        told = self.sender.request("open_producer", handle=1, topic="t", create=True)
        assert "code" not in told
        if not self.names:
            self._join(0, 0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "sender"):
                self._drain()
        finally:
            self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _drain(self) -> None:
        """Settle everything: in the end nothing may be missing."""
        if not self.takers:
            self._join(0, 0)
        for _ in range(60):
            for taker in self.takers:
                if taker.credit < 1000:
                    taker.client.send(wire.credit(7, 1000, 1 << 20))
                    taker.credit += 1000
            self._check()
            held = False
            for taker in self.takers:
                if taker.held:
                    held = True
                    self._settle(taker, list(taker.held))
            described = self.sender.request("describe", topic="t")["subscriptions"]["s"]
            if not held and described["backlog"] == described["unacked"] == 0:
                break
            self.world.pass_time(1.1)
        assert self.settled == set(self.sent)

    # What happens

    @rule(keys=st.one_of(st.lists(KEYS, min_size=1, max_size=8), st.lists(KEYS, min_size=16, max_size=24)))
    def publish(self, keys: list[str]) -> None:
        """Batches of 16 and more may be delivered as they are stored."""
        bodies = [(key, b"%s:%d" % (key.encode(), len(self.sent) + i)) for i, key in enumerate(keys)]
        self.sender.send(keyed(1, 0, bodies))
        self.sender.take()
        self.sent += [body for _, body in bodies]

    @rule(credit=st.integers(0, 6), priority=st.integers(0, 1))
    def join(self, credit: int, priority: int) -> None:
        if len(self.takers) < 4:
            self._join(credit, priority)

    def _join(self, credit: int, priority: int) -> None:
        self.names += 1
        client = Client(self.world, capabilities=("stored",) if self.names % 3 else ())
        told = client.request(
            "subscribe",
            handle=7,
            topic="t",
            subscription="s",
            create=True,
            kind=self.kind,
            start="earliest",
            priority=priority,
            consumer=f"c{self.names}",
            ack_timeout_ms=int(TIMEOUT_S * 1000),
            nack_min_ms=500,
            nack_max_ms=2000,
        )
        if self.kind == "exclusive" and self.takers:
            assert told["code"] == "subscription_busy"
            client.lose()
            return
        assert told == {"handle": 7}
        taker = Taker(client, f"c{self.names}")
        self.takers.append(taker)
        self._grant(taker, credit)

    @rule(which=WHICH, credit=st.one_of(st.integers(1, 6), st.integers(16, 30)))
    def grant(self, which: int, credit: int) -> None:
        if which < len(self.takers):
            self._grant(self.takers[which], credit)

    def _grant(self, taker: Taker, credit: int) -> None:
        if credit:
            taker.credit += credit
            taker.client.send(wire.credit(7, credit, 1 << 20))

    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        if which < len(self.takers):
            taker = self.takers.pop(which)
            taker.look()
            self.given_back = self.given_back or bool(taker.held)
            taker.client.lose()

    @rule(which=WHICH, most=st.integers(1, 5))
    def acknowledge(self, which: int, most: int) -> None:
        if which < len(self.takers):
            taker = self.takers[which]
            self._settle(taker, sorted(taker.held)[:most])

    @precondition(lambda self: self.kind in ("exclusive", "failover"))
    @rule(which=WHICH, most=st.integers(1, 20))
    def acknowledge_all_up_to(self, which: int, most: int) -> None:
        if which < len(self.takers) and self.takers[which].held:
            taker = self.takers[which]
            last = sorted(taker.held)[:most][-1]
            done = {tag: body for tag, body in taker.held.items() if tag <= last}
            taker.held = {tag: body for tag, body in taker.held.items() if tag > last}
            taker.client.send(wire.ack(7, [(last, last)], request=9, cumulative=True))
            self.settled |= set(done.values())

    def _settle(self, taker: Taker, tags: list[int]) -> None:
        if tags:
            before = {tag: taker.held.pop(tag) for tag in tags}
            taker.client.send(wire.ack(7, [(tag, tag) for tag in tags], request=9))
            self.settled |= set(before.values())

    @rule(which=WHICH, delay_ms=st.sampled_from([0, 300, -1]))
    def give_back(self, which: int, delay_ms: int) -> None:
        if which < len(self.takers) and self.takers[which].held:
            taker = self.takers[which]
            tag = sorted(taker.held)[-1]
            del taker.held[tag]
            self.given_back = True
            taker.client.send(wire.nack(7, [(tag, tag)], delay_ms=delay_ms))

    @rule(seconds=st.sampled_from([0.4, 1.1, 2.5]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def run_into_the_timeout(self) -> None:
        for taker in self.takers:
            taker.look()
        self.given_back = self.given_back or any(taker.held for taker in self.takers)
        for taker in self.takers:
            taker.held.clear()
        self.world.pass_time(TIMEOUT_S + 1)

    @precondition(lambda self: self.sent)
    @rule()
    def seek_to_the_beginning(self) -> None:
        told = self.sender.request("seek", topic="t", subscription="s", to="earliest")
        assert "position" in told
        for taker in self.takers:
            taker.held.clear()
        self.settled.clear()
        self.last_of.clear()
        self.given_back = True  # credit that was used up is gone: the order begins anew only for what comes

    @rule()
    def restart(self) -> None:
        for taker in self.takers:
            taker.look()
        self.given_back = self.given_back or any(taker.held for taker in self.takers)
        self.takers.clear()
        self.world.restart()
        self._open()

    # What must hold

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "sender"):
            self._check()

    def _check(self) -> None:
        for taker in self.takers:
            for message in taker.look():
                body = message["body"]
                assert body not in self.settled, "what is settled does not come again"
                if self.kind == "key_shared" and not self.given_back:
                    key, _, number = body.partition(b":")
                    assert int(number) > self.last_of.get(key, -1), "a key keeps its order"
                    self.last_of[key] = int(number)
            assert taker.credit >= 0, "credit is not exceeded"
        held = [body for taker in self.takers for body in taker.held.values()]
        assert len(held) == len(set(held)), "a message is at one consumer"
        if self.kind == "failover":
            assert sum(bool(taker.held) for taker in self.takers) <= 1
        if self.kind == "key_shared":
            holders: dict[bytes, str] = {}
            for taker in self.takers:
                for body in taker.held.values():
                    key = body.partition(b":")[0]
                    assert holders.setdefault(key, taker.name) == taker.name, "a key is at one consumer"


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
def test_a_kind_keeps_its_promises(kind: str) -> None:
    machine = type(f"Kinds_{kind}", (Kinds,), {"kind": kind})
    case = machine.TestCase
    # A machine that stands still for a while is no mistake of ours.
    case.settings = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    case().runTest()
