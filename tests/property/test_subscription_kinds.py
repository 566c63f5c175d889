"""Subscriptions of every kind against what each promises, over whole native sessions without sockets.

Consumers join and leave, acknowledge, give back, run into their timeout, grant credit, pull; the subscription
is paused and sought, the gateway stopped or killed and started again.

    all         nothing settled comes again, nothing is lost; credit in messages and bytes, and what a pull
                may have, are not exceeded; what came before is flagged; what can go out does
    exclusive   one consumer, in order
    failover    one active consumer at most, which alone gets anything, in order, and all that was unsettled
    shared      a message is at one consumer at a time
    key_shared  a key is at one consumer at a time, across joins and leaves, and in its order
    sticky      the same, and each consumer has the slots that it asked for

Order is that of the messages that nobody gave back: what a consumer held that left comes again first.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.subscriptions._keys import slot
from tests.reference import native_frames as wire
from tests.support.examples import histories
from tests.support.native_session import Client, World, keyed

KEYS = st.sampled_from(["a", "b", "c", "d"])
WHICH = st.integers(0, 3)
MANY_BYTES = 1 << 20
TIMEOUT_S = 1000.0
"""More than all the waits of a run together, so that only the rule for it runs into it."""
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
        """It takes batches as they are stored, each of which may overdraw the bytes of credit."""
        self.name = name
        self.priority = priority
        self.quarter = quarter
        self.held: dict[int, bytes] = {}
        self.credit = 0
        self.credit_bytes = 0
        self.pulls: dict[int, list[int]] = {}
        """What each may have yet, and what it has: messages."""
        self.active = False

    @property
    def hungry(self) -> bool:
        """It may be given a message."""
        return (self.credit > 0 and self.credit_bytes > 0) or bool(self.pulls)


class Kinds(RuleBasedStateMachine):
    kind = ""
    sticky = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-kinds-"))
        self.world = World(self.folder)
        self.sent: list[bytes] = []
        self.settled: set[bytes] = set()
        self.came: set[bytes] = set()
        """What was delivered since it was published, or sought."""
        self.given_back: set[bytes] = set()
        """What comes when its wait is over, before or behind others."""
        self.in_doubt = False
        """The gateway was killed: what comes may have come before."""
        self.takers: list[Taker] = []
        self.last_of: dict[bytes, int] = {}
        """By key, of kinds where one consumer gets everything by b"": the number of the last message."""
        self.names = 0
        self.requests = 0
        self.paused = False

    @initialize(credit=st.integers(0, 3))
    def begin(self, credit: int) -> None:
        """Some of it is out from the start on, some of it waits."""
        self._open()
        self.publish(["a", "b", "c", "d"])
        self._grant(self.takers[0], credit, MANY_BYTES)
        self._check()

    def _open(self) -> None:
        self.sender = Client(self.world)
        told = self.sender.request("open_producer", handle=1, topic="t", create=True)
        assert "code" not in told
        if not self.names:
            self._join(0, MANY_BYTES, 0)

    def teardown(self) -> None:
        try:
            if hasattr(self, "sender"):
                self._drain()
        finally:
            self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _drain(self) -> None:
        """Settle everything: in the end nothing may be missing."""
        if self.paused:
            self.pause_or_resume()
        for quarter in range(4 if self.sticky else 1):
            if quarter not in {taker.quarter for taker in self.takers} and not (
                self.takers and not self.sticky
            ):
                self._join(0, MANY_BYTES, 0, quarter)
        for _ in range(60):
            for taker in self.takers:
                if taker.credit < 1000 or taker.credit_bytes < MANY_BYTES:
                    self._grant(taker, 1000, MANY_BYTES)
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
        self.world.pass_time(5)  # a take-over is done by now, and pulls are over
        self._check()
        assert not any(taker.pulls for taker in self.takers)
        if self.kind == "failover":
            (active,) = [taker for taker in self.takers if taker.active]
            assert active.priority == max(taker.priority for taker in self.takers)

    # What happens

    @rule(keys=st.one_of(st.lists(KEYS, min_size=1, max_size=8), st.lists(KEYS, min_size=16, max_size=24)))
    def publish(self, keys: list[str]) -> None:
        """Batches of 16 and more may be delivered as they are stored."""
        bodies = [(key, b"%s:%d" % (key.encode(), len(self.sent) + i)) for i, key in enumerate(keys)]
        self.sender.send(keyed(1, 0, bodies))
        self.sender.take()
        self.sent += [body for _, body in bodies]

    @rule(credit=st.integers(0, 6), size=st.sampled_from([50, 300, MANY_BYTES]), priority=st.integers(0, 1))
    def join(self, credit: int, size: int, priority: int) -> None:
        if len(self.takers) < 4:
            free = set(range(4)) - {taker.quarter for taker in self.takers}
            self._join(credit, size, priority, min(free))

    def _join(self, credit: int, size: int, priority: int, quarter: int = 0) -> None:
        self.names += 1
        stores = self.names % 3 != 0
        client = Client(self.world, capabilities=("stored",) if stores else ())
        sticky = {"sticky": True, "ranges": [QUARTERS[quarter]]} if self.sticky else {}
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
            **sticky,
        )
        if self.kind == "exclusive" and self.takers:
            assert told["code"] == "subscription_busy"
            client.lose()
            return
        assert told == {"handle": 7}
        taker = Taker(client, f"c{self.names}", priority, quarter, stores)
        self.takers.append(taker)
        self._grant(taker, credit, size)

    @rule(
        which=WHICH,
        credit=st.one_of(st.integers(1, 6), st.integers(16, 30)),
        size=st.sampled_from([1, 50, 300, MANY_BYTES]),
    )
    def grant(self, which: int, credit: int, size: int) -> None:
        if which < len(self.takers):
            self._grant(self.takers[which], credit, size)

    def _grant(self, taker: Taker, credit: int, size: int) -> None:
        if credit:
            size = MANY_BYTES if taker.stores else size
            taker.credit += credit
            taker.credit_bytes += size
            taker.client.send(wire.credit(7, credit, size))

    @rule(
        which=WHICH, most=st.integers(1, 5), least=st.integers(1, 3), wait_ms=st.sampled_from([0, 700, 3000])
    )
    def pull(self, which: int, most: int, least: int, wait_ms: int) -> None:
        if which < len(self.takers):
            self.requests += 1
            self.takers[which].pulls[1000 + self.requests] = [most, 0]
            self.takers[which].client.send(wire.pull(7, 1000 + self.requests, most, least, wait_ms))

    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        if which < len(self.takers):
            self._look(self.takers[which])
            taker = self.takers.pop(which)
            self._returned(taker)
            taker.client.lose()

    @precondition(lambda self: self.kind == "failover" and any(taker.held for taker in self.takers))
    @rule()
    def take_over_from_one_that_settles_nothing(self) -> None:
        """While it may settle it gets nothing more, whatever credit it has; nor does anybody else."""
        if len(self.takers) < 4:
            for taker in self.takers:
                self._grant(taker, 2, MANY_BYTES)
            self._check()
            self._join(6, MANY_BYTES, max(taker.priority for taker in self.takers) + 1)
            self.publish(["a", "b"])
            self._check()
            self.world.pass_time(1.1)

    def _returned(self, taker: Taker) -> None:
        """What it held comes again, and first."""
        for body in taker.held.values():
            self._again(body)
        taker.held.clear()

    def _again(self, body: bytes) -> None:
        group = self._group(body)
        self.last_of[group] = min(self.last_of.get(group, -1), number_of(body) - 1)

    def _group(self, body: bytes) -> bytes:
        return key_of(body) if self.kind == "key_shared" else b""

    @rule(which=WHICH, most=st.integers(1, 5))
    def acknowledge(self, which: int, most: int) -> None:
        if which < len(self.takers):
            taker = self.takers[which]
            self._settle(taker, sorted(taker.held)[:most])

    @rule(which=WHICH, every=st.integers(2, 3))
    def acknowledge_some_of_a_batch(self, which: int, every: int) -> None:
        if which < len(self.takers):
            taker = self.takers[which]
            self._settle(taker, sorted(taker.held)[::every])

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
            self.given_back.add(taker.held.pop(tag))
            taker.client.send(wire.nack(7, [(tag, tag)], delay_ms=delay_ms))

    @rule(seconds=st.sampled_from([0.4, 1.1, 2.5]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def run_into_the_timeout(self) -> None:
        for taker in self.takers:
            self._look(taker)
            self.given_back.update(taker.held.values())
            taker.held.clear()
        self.world.pass_time(TIMEOUT_S + 1)

    @precondition(lambda self: self.sent)
    @rule(share=st.sampled_from([0.0, 0.5]))
    def seek(self, share: float) -> None:
        """Back to the beginning, or to a message in the middle: then what is before it counts as settled."""
        at = int(len(self.sent) * share)
        to = "earliest" if at == 0 else f"pos:{self._position_of(at)}"
        told = self.sender.request("seek", topic="t", subscription="s", to=to)
        assert "position" in told
        for taker in self.takers:
            taker.held.clear()
        self.settled = set(self.sent[:at])
        self.came.clear()
        self.given_back.clear()
        self.last_of.clear()

    def _position_of(self, number: int) -> int:
        reader = Client(self.world)
        assert reader.request("read", handle=1, topic="t", start="earliest") == {"handle": 1}
        reader.send(wire.credit(1, number + 1, MANY_BYTES))
        found = [message["position"] for message in reader.delivered() if message["consumer"] == 1]
        reader.lose()
        return int(found[number])

    @rule()
    def pause_or_resume(self) -> None:
        paused, self.paused = self.paused, False
        told = self.sender.request("resume" if paused else "pause", topic="t", subscription="s")
        assert "code" not in told
        for taker in self.takers:
            self._look(taker)
        self.paused = not paused

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        for taker in self.takers:
            self._look(taker)
        self.takers.clear()
        self.given_back.clear()
        self.last_of.clear()
        self.in_doubt = self.in_doubt or not clean
        self.world.restart(clean=clean)
        self._open()

    # What must hold

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "sender"):
            self._check()

    def _look(self, taker: Taker) -> None:
        """What came to it."""
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
            assert taker.credit > 0, "messages of credit are not exceeded"
            assert taker.credit_bytes > 0, "bytes of credit are overdrawn by one message at most"
            taker.credit -= 1
            taker.credit_bytes -= 28 + sum(len(message[part]) for part in ("key", "props", "body"))
        assert not self.paused, "a pause holds"
        assert body not in self.settled, "what is settled does not come again"
        assert message["redelivered"] or body not in self.came, "what comes again is flagged"
        assert self.in_doubt or not message["redelivered"] or body in self.came, "what is new is not flagged"
        self.came.add(body)
        if self.kind == "failover":
            assert taker.active, "only the active one gets anything"
        if self.sticky:
            first, last = QUARTERS[taker.quarter]
            assert first <= slot(key_of(body)) <= last, "slots are those that were asked for"
        if body in self.given_back:
            self.given_back.remove(body)
        elif self.kind != "shared":
            group = self._group(body)
            assert number_of(body) > self.last_of.get(group, -1), "order is kept"
            self.last_of[group] = number_of(body)

    def _check(self) -> None:
        for taker in self.takers:
            self._look(taker)
        held = [body for taker in self.takers for body in taker.held.values()]
        assert len(held) == len(set(held)), "a message is at one consumer"
        waiting = set(self.sent) - self.settled - set(held) - self.given_back
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


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared", "sticky"])
def test_a_kind_keeps_its_promises(kind: str) -> None:
    sticky = kind == "sticky"
    machine = type(f"Kinds_{kind}", (Kinds,), {"kind": "key_shared" if sticky else kind, "sticky": sticky})
    case = machine.TestCase
    # A machine that stands still for a while is no mistake of ours.
    case.settings = settings(
        max_examples=histories(20),
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    case().runTest()
