"""The next messages to send, and the effect of answers; time is a number."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.http.webhooks.endpoint import Endpoint, Item, Outcome
from penstock.protocols.http.webhooks.settings import settings_of


def endpoint(**settings: Any) -> Endpoint:
    """One whose retries have no jitter."""
    base = {"source": {"queue": "q"}, "url": "https://h/", "max_inflight": 100, "format": "json"}
    return Endpoint(settings_of({**base, **settings}), chance=lambda: 0.5)


def add(one: Endpoint, *keys: str, now_s: float = 0.0) -> list[Item]:
    items = [Item(n, key, 100) for n, key in enumerate(keys)]
    for item in items:
        one.add(item, now_s)
    return items


def names(chosen: list[Item]) -> list[object]:
    return [item.name for item in chosen]


def test_without_order_everything_is_sent_as_fast_as_successes_allow() -> None:
    one = endpoint()
    add(one, *"aaaaaaaa")
    sizes = []
    while one.held:
        flights = []
        while chosen := one.next(0):
            flights.append(chosen)
        sizes.append(len(flights))
        for chosen in flights:
            assert one.answered(chosen, Outcome.DONE, 0).done == chosen
    assert sizes == [1, 2, 3, 2]  # one more for each round of successes


def test_a_key_has_one_request_under_way_and_keeps_its_order() -> None:
    one = endpoint(ordering="key", retry={"schedule_ms": [10_000]})
    a1, a2, b1 = add(one, "a", "a", "b")
    first = one.next(0)
    assert first == [a1] and one.next(0) == []
    one.answered(first, Outcome.FAILED, 0)
    second = one.next(0)
    assert second == [b1], "another key goes on"
    one.answered(second, Outcome.DONE, 0)
    assert one.next(9.9) == [] and one.wake_s(0) == 10
    third = one.next(10)
    assert third == [a1], "not the one behind it"
    one.answered(third, Outcome.DONE, 10)
    assert one.next(10) == [a2]


def test_strict_order_is_one_at_a_time() -> None:
    one = endpoint(ordering="strict")
    a, b = add(one, "x", "y")
    chosen = one.next(0)
    assert chosen == [a] and not one.next(0)
    one.answered(chosen, Outcome.DONE, 0)
    assert one.next(0) == [b]


def test_a_batch_is_filled_and_lingers_for_more() -> None:
    one = endpoint(batch={"max_messages": 3, "linger_ms": 500})
    add(one, "a", "b")
    assert one.next(0.2) == [] and one.wake_s(0.2) == 0.5
    assert len(one.next(0.5)) == 2
    add(one, "a", "b", "c", now_s=1)
    assert one.next(1) == [], "one request is under way, and nothing is known of the receiver yet"


def test_a_batch_that_is_refused_is_sent_one_by_one() -> None:
    one = endpoint(batch={"max_messages": 3}, retry={"schedule_ms": [0, 0], "refused_attempts": 2})
    items = add(one, "a", "b", "c")
    chosen = one.next(0)
    assert chosen == items
    one.answered(chosen, Outcome.REFUSED, 0)
    fates = []
    while one.held:
        chosen = one.next(0)
        assert len(chosen) == 1
        bad = chosen[0] is items[1]
        verdict = one.answered(chosen, Outcome.REFUSED if bad else Outcome.DONE, 0)
        fates.append((names(verdict.done), names(verdict.dead)))
    assert fates == [([0], []), ([], [1]), ([2], [])]


def test_a_message_dies_when_its_schedule_is_used_up_or_it_is_too_old() -> None:
    one = endpoint(retry={"schedule_ms": [1000, 1000]})
    (item,) = add(one, "a")
    for now_s in (0, 1):
        verdict = one.answered(one.next(now_s), Outcome.FAILED, now_s)
        assert verdict.again == [item] and item.due_s == now_s + 1
    assert one.answered(one.next(2), Outcome.FAILED, 2).dead == [item]
    assert one.held == one.held_bytes == 0
    one = endpoint(retry={"schedule_ms": [1000] * 50, "max_age_ms": 2500})
    (item,) = add(one, "a")
    fates = [one.answered(one.next(now_s), Outcome.FAILED, now_s).dead for now_s in (1, 2, 3, 4)]
    assert fates == [[], [], [], [item]]


def test_throttling_uses_up_no_attempt_and_rests_the_webhook() -> None:
    one = endpoint(retry={"schedule_ms": []})
    items = add(one, "a", "b")
    for at in range(5):
        now_s = at * 30.0
        verdict = one.answered(one.next(now_s), Outcome.THROTTLED, now_s, wait_s=30)
        assert not verdict.dead
        assert one.next(now_s + 29) == [] and one.capacity(now_s + 29) == 0
    assert items[0].attempts == 0
    assert one.next(150) != []


def test_ten_failures_in_a_row_open_the_breaker() -> None:
    one = endpoint(retry={"schedule_ms": [0] * 100})
    add(one, *"abcdefghijkl")
    for _ in range(10):
        one.answered(one.next(0), Outcome.FAILED, 0)
    assert one.is_open and one.concurrency == 1 and one.next(0.5) == []
    now_s = 0.0
    pauses = []
    for _ in range(12):
        wake_s = one.wake_s(now_s)
        assert wake_s is not None
        pauses.append(wake_s - now_s)
        now_s = wake_s
        one.answered(one.next(now_s), Outcome.FAILED, now_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    now_s = one.wake_s(now_s) or 0
    one.answered(one.next(now_s), Outcome.DONE, now_s)
    assert not one.is_open


def test_gone_and_failing_for_too_long_disable() -> None:
    one = endpoint()
    add(one, "a")
    verdict = one.answered(one.next(0), Outcome.GONE, 0)
    assert "410" in verdict.disable and not verdict.done and not verdict.dead
    one = endpoint(disable_after_ms=5000, retry={"schedule_ms": [3000] * 9})
    add(one, "a")
    said = [one.answered(one.next(now_s), Outcome.FAILED, now_s).disable for now_s in (1, 4, 7)]
    assert said[:2] == ["", ""] and "disable_after_ms" in said[2]


def test_messages_waiting_for_a_retry_take_no_reserve_until_the_window_is_full() -> None:
    one = endpoint(retry={"schedule_ms": [60_000] * 9})
    before = one.capacity(0)
    add(one, "a")
    assert one.capacity(0) == before - 1
    one.answered(one.next(0), Outcome.FAILED, 0)
    assert one.capacity(0) == before
    one.add(Item("big", "b", 16 << 20), 0)
    assert one.capacity(0) == 0


def test_a_pace_is_kept() -> None:
    one = endpoint()
    one.pace_s = 2.0
    add(one, "a", "b")
    one.answered(one.next(0), Outcome.DONE, 0)
    assert one.next(1.9) == [] and one.next(2) != []


@pytest.mark.parametrize("ordering", ["none", "key", "strict"])
def test_every_message_comes_to_an_end_whatever_is_answered(ordering: str) -> None:
    import random

    chance = random.Random(7)
    one = endpoint(ordering=ordering, batch={"max_messages": 3}, retry={"schedule_ms": [5, 10, 20]})
    total = 300
    items = [Item(n, str(n % 7), 10) for n in range(total)]
    ended: list[Item] = []
    flights: list[list[Item]] = []
    now_s, added = 0.0, 0
    while len(ended) < total:
        while added < total and one.capacity(now_s):
            one.add(items[added], now_s)
            added += 1
        while chosen := one.next(now_s):
            flights.append(chosen)
        if flights:
            chosen = flights.pop(chance.randrange(len(flights)))
            outcomes = [Outcome.DONE, Outcome.FAILED, Outcome.REFUSED, Outcome.THROTTLED]
            verdict = one.answered(chosen, chance.choice(outcomes), now_s)
            ended += verdict.done + verdict.dead
        elif (wake_s := one.wake_s(now_s)) is not None:
            now_s = max(wake_s, now_s + 0.001)
        else:
            now_s += 0.01
    assert one.held == one.held_bytes == one.in_flight == 0
    assert len({id(item) for item in ended}) == total
    if ordering == "strict":
        assert [item.name for item in ended] == list(range(total))
    if ordering == "key":
        for key in range(7):
            assert [item.name for item in ended if item.key == str(key)] == list(range(key, total, 7))
