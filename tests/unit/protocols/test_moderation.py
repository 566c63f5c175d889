"""The decision to wait for more sockets, on a clock and with loads of the test's own."""

from __future__ import annotations

import random

import pytest

from penstock.protocols.net._moderation import Moderation

SPAN_NS = 150_000
MS = 1_000_000


class Load:
    """Rounds of a poller over simulated time; `gap_ns` is how long after a round the next socket is ready."""

    def __init__(self, span_ns: int = SPAN_NS) -> None:
        self.moderation = Moderation()
        self.moderation.span_ns = span_ns
        self.now = 0
        self.rounds = self.waits = self.reads = 0

    def open(self, per_s: float, for_ms: float, *, seed: int = 1) -> None:
        """Sockets become ready at a rate of their own, whatever the gateway does; a round takes 20 us."""
        chance = random.Random(seed)
        due = self.now + chance.expovariate(per_s / 1e9)
        end = self.now + for_ms * MS
        while self.now < end:
            self.now = max(self.now, int(due))
            ready = 0
            while due <= self.now:
                ready += 1
                due += chance.expovariate(per_s / 1e9)
            wait = self.moderation.wait_ns(ready, self.now)
            if wait:
                self.now += wait
                more = ready
                while due <= self.now:
                    more += 1
                    due += chance.expovariate(per_s / 1e9)
                self.moderation.waited(ready, more, self.now)
                ready = more
                self.waits += 1
            self.rounds += 1
            self.reads += ready
            self.now += 20_000

    def closed(self, clients: int, for_ms: float, *, answer_ns: int = 15_000) -> None:
        """Each client sends its next message some time after its last one was answered."""
        due = [self.now + answer_ns] * clients
        end = self.now + for_ms * MS
        while self.now < end:
            self.now = max(self.now, min(due))
            ready = sum(at <= self.now for at in due)
            wait = self.moderation.wait_ns(ready, self.now)
            if wait:
                self.now += wait
                more = sum(at <= self.now for at in due)
                self.moderation.waited(ready, more, self.now)
                self.waits += 1
            read = [i for i, at in enumerate(due) if at <= self.now]
            self.now += 5_000 * len(read) + 10_000
            for i in read:
                due[i] = self.now + answer_ns
            self.rounds += 1
            self.reads += len(read)


def test_many_clients_that_send_on_their_own_share_rounds() -> None:
    load = Load()
    load.open(20_000, 2000)
    assert load.moderation.waiting
    assert load.reads / load.rounds > 3
    assert load.reads == pytest.approx(40_000, rel=0.05)


def test_a_load_that_is_too_thin_is_never_waited_for() -> None:
    load = Load()
    load.open(5_000, 1000)
    assert load.waits == 0


def test_rounds_that_have_many_sockets_anyway_are_not_waited_for() -> None:
    load = Load()
    load.open(2_000_000, 100)
    assert load.waits == 0


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_clients_that_wait_for_answers_keep_their_rate(clients: int) -> None:
    plain, moderated = Load(span_ns=0), Load()
    plain.closed(clients, 10_000)
    moderated.closed(clients, 10_000)
    assert moderated.waits > 0  # it was tried
    assert moderated.reads > 0.97 * plain.reads
    assert not moderated.moderation.waiting


def test_a_failed_trial_is_repeated_less_and_less_often() -> None:
    load = Load()
    waits = []
    for _ in range(5):
        before = load.waits
        load.closed(1, 1000)
        waits.append(load.waits - before)
    assert waits[0] > waits[4]
    assert sum(waits) <= 8 * 8  # 0.1, 0.2, 0.4, 0.8, 1.6, 3.2 s of rest between trials of 8 waits


def test_waiting_ends_soon_when_the_load_becomes_one_that_waits_for_answers() -> None:
    load = Load()
    load.open(20_000, 500)
    assert load.moderation.waiting
    load.closed(1, 45)
    assert not load.moderation.waiting


def test_waiting_ends_when_the_load_ends() -> None:
    load = Load()
    load.open(20_000, 500)
    before = load.waits
    load.open(1000, 500)
    assert not load.moderation.waiting
    assert load.waits - before < 25


def test_a_span_of_0_switches_it_off() -> None:
    load = Load(span_ns=0)
    load.open(20_000, 1000)
    assert load.waits == 0
    assert not load.moderation.waiting
