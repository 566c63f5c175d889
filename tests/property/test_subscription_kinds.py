"""Subscriptions of every kind against what each promises, over whole native sessions without sockets.

Consumers join and leave, acknowledge, give back, run into their timeout, grant credit, pull, are paused;
messages are published at once, for later, with acknowledgements in a transaction, and as half messages; the
subscription is paused and sought by position and time, the gateway stopped or killed and started again. What
must hold meanwhile is in `Promises`.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from penstock.sdk.message import properties_block
from tests.property.promises import DELIVERIES, LOOKS_S, QUARTERS, Promises, Taker
from tests.reference import native_frames as wire
from tests.support.examples import histories
from tests.support.native_session import Client, keyed

KEYS = st.sampled_from(["a", "b", "c", "d"])
WHICH = st.integers(0, 3)
MANY_BYTES = 1 << 20
TIMEOUT_S = 1000.0
"""More than all the waits of a run together, so that only the rule for it runs into it."""


class Kinds(Promises):
    """The events of a subscription."""

    @initialize(credit=st.integers(0, 3), limited=st.booleans())
    def begin(self, credit: int, limited: bool) -> None:
        """Some of it is out from the start on, some of it waits."""
        self.limited = limited
        self._open()
        self.publish(["a", "b", "c", "d"])
        self._grant(self.takers[0], credit, MANY_BYTES)
        self._check()

    def _open(self) -> None:
        self.sender = Client(self.world)
        half = {"group": "g", "check_after_ms": 86_400_000}
        told = self.sender.request("open_producer", handle=1, topic="t", create=True, **half)
        assert "code" not in told
        assert "code" not in self.sender.request("create_topic", topic="dead")
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
        self.world.pass_time(5)  # everything is due
        if self.paused:
            self.pause_or_resume()
        for taker in self.takers:
            if taker.paused:
                self._pause(taker)
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
        assert described["backlog"] == described["unacked"] == 0
        dead = Counter(body for body, _ in self._read("dead"))
        assert self.dead - dead == Counter(), "who is too often delivered is dead-lettered"
        if not self.in_doubt:
            assert dead - self.dead - self.perhaps == Counter(), "nothing else is, and only once"
        self.world.pass_time(5)  # a take-over is done by now, and pulls are over
        self._check()
        assert not any(taker.pulls for taker in self.takers)
        if self.kind == "failover":
            (active,) = [taker for taker in self.takers if taker.active]
            assert active.priority == max(taker.priority for taker in self.takers)

    # Events

    @rule(keys=st.one_of(st.lists(KEYS, min_size=1, max_size=8), st.lists(KEYS, min_size=16, max_size=24)))
    def publish(self, keys: list[str]) -> None:
        """Batches of 16 and more may be delivered as they are stored."""
        bodies = self._made(keys)
        self.sender.send(keyed(1, 0, bodies))
        self.sender.take()
        self.sent += [body for _, body in bodies]

    def _made(self, keys: list[str]) -> list[tuple[str, bytes]]:
        """New messages: key and body."""
        self.made += len(keys)
        return [(key, b"%s:%d" % (key.encode(), self.made - len(keys) + i)) for i, key in enumerate(keys)]

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3), wait_s=st.sampled_from([0.0, 0.5, 3.0]))
    def publish_later(self, keys: list[str], wait_s: float) -> None:
        """A seek waits until these are due: it must know which messages are in the stream."""
        made = self._made(keys)
        due = self.world.clock.now + wait_s
        items = [(properties_block(key, None, None, True), body) for key, body in made]
        head = struct.pack(">QBBHIq", 0, 2, 0, 0, len(items), int(due * 1000))
        self.sender.send(wire.frame(0x11, 1, head + wire.records(items)))
        self.sender.take()
        for _, body in made:
            self.due[body] = int(due * 1000) / 1000
            self.unordered.add(body)
            self.sent.append(body)
        self.world.settle()

    @rule(key=KEYS)
    def prepare(self, key: str) -> None:
        ((_, body),) = self._made([key])
        told = self.sender.prepare(1, body, properties_block(key, None, None, True))
        self.halves[told["transaction"]] = body
        self.unordered.add(body)

    @precondition(lambda self: self.halves)
    @rule(commit=st.booleans())
    def decide(self, commit: bool) -> None:
        transaction, body = self.halves.popitem()
        if commit:
            self.sent.append(body)
        told = self.sender.request("decide", transaction=transaction, commit=commit)
        assert ("position" in told) == commit

    @rule(
        which=WHICH,
        keys=st.lists(KEYS, max_size=3),
        every=st.integers(1, 2),
        fails=st.sampled_from(["", "", "stale", "unknown"]),
    )
    def transact(self, which: int, keys: list[str], every: int, fails: str) -> None:
        """Messages that a consumer publishes while it acknowledges those that it has."""
        if which >= len(self.takers):
            return
        taker = self.takers[which]
        self._look(taker)
        made = self._made(keys)
        items = [(properties_block(key, None, None, True), body) for key, body in made]
        tags = sorted(taker.held)[::every]
        ranges = [(tag, tag) for tag in tags] + ([(10**6, 10**6)] if fails == "stale" else [])
        batches = [(2, items)] if items else []
        if fails == "unknown":
            batches.append((99, items))
        if not fails:
            self.settled |= {taker.held.pop(tag) for tag in tags}
            self.sent += [body for _, body in made]
        told = taker.client.answer_to(lambda request: wire.transact(request, batches, [(7, ranges)]))
        code = {"": None, "stale": "stale_delivery", "unknown": "unknown_handle"}[fails]
        assert told.get("code") == code

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
            **({"max_deliveries": DELIVERIES, "dead_letter": "dead"} if self.limited else {}),
        )
        if self.kind == "exclusive" and self.takers:
            assert told["code"] == "subscription_busy"
            client.lose()
            return
        assert told == {"handle": 7}
        assert "code" not in client.request("open_producer", handle=2, topic="t")
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
            taker.window = max(taker.window, taker.credit)
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
            body = taker.held.pop(tag)
            if self._gave_back(body):
                self.given_back.add(body)
            taker.client.send(wire.nack(7, [(tag, tag)], delay_ms=delay_ms))

    @rule(seconds=st.sampled_from([0.4, 1.1, 2.5]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def run_into_the_timeout(self) -> None:
        for taker in self.takers:
            self._look(taker)
            self.given_back.update(body for body in taker.held.values() if self._gave_back(body))
            taker.held.clear()
        self.world.pass_time(TIMEOUT_S + 1)

    @rule(share=st.sampled_from([0.0, 0.5]), by_time=st.booleans())
    def seek(self, share: float, by_time: bool) -> None:
        """Back to the beginning, or to a message in the middle: then what is before it counts as settled."""
        for taker in self.takers:
            self._look(taker)
        if any(due + LOOKS_S >= self.world.clock.now for due in self.due.values()):
            self.world.pass_time(5)  # so that it is known what is in the stream
            self._check()
        stream = self._read("t")
        at = int(len(stream) * share)
        if by_time:
            moment = stream[at][1]["time_ms"]
            at = min(i for i, (_, message) in enumerate(stream) if message["time_ms"] >= moment)
            to: Any = moment
        else:
            to = "earliest" if at == 0 else f"pos:{stream[at][1]['position']}"
        told = self.sender.request("seek", topic="t", subscription="s", to=to)
        assert "position" in told
        for taker in self.takers:
            taker.held.clear()
        self.settled = {body for body, _ in stream[:at]}
        self.perhaps.update(self.dying)
        self.dead.subtract(self.dying)
        self.dying.clear()
        for left in (self.came, self.given_back, self.last_of, self.counts):
            left.clear()

    def _read(self, topic: str) -> list[tuple[bytes, dict[str, Any]]]:
        """All that is in a topic: body and message."""
        reader = Client(self.world)
        assert "code" not in reader.request("read", handle=1, topic=topic, start="earliest")
        reader.send(wire.credit(1, 1 << 20, MANY_BYTES))
        found = [(message["body"], message) for message in reader.delivered()]
        reader.lose()
        return found

    @rule(which=WHICH)
    def pause_a_consumer_or_let_it_go_on(self, which: int) -> None:
        if which < len(self.takers):
            self._pause(self.takers[which])

    def _pause(self, taker: Taker) -> None:
        was, taker.paused = taker.paused, False
        assert "code" not in taker.client.request("resume" if was else "pause", handle=7)
        self._look(taker)
        taker.paused = not was

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
        if self.limited:
            # Messages on their way to the dead-letter topic would come again.
            clean = True
            if self.paused:
                self.pause_or_resume()
            self.world.pass_time(5)
            self._check()
        for taker in self.takers:
            self._look(taker)
            for body in taker.held.values():
                self._gave_back(body)
        self.takers.clear()
        self.given_back.clear()
        self.last_of.clear()
        self.in_doubt = self.in_doubt or not clean
        self.world.restart(clean=clean)
        self._open()


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
    )
    case().runTest()
