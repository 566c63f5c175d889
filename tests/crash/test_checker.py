"""The checker itself: clean histories pass, and each planted fault is found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.crash.checker import CURSOR_SAVE_S, History, check, make_body, read_body

KILL_AT = 100.0


def clean_history(count: int = 50, *, exactly_once: bool = False) -> History:
    """All messages sent, acked, received once, and settled, before a kill at 100 s with one in flight."""
    history = History("p", exactly_once=exactly_once)
    for sequence in range(count):
        history.attempt(sequence, at=sequence - 0.01)
        history.ack(sequence, at=float(sequence))
        history.receive(make_body("p", sequence), flagged=False, at=float(sequence))
        history.settled[sequence] = float(sequence)
    history.in_flight_at_fault.append(1)
    return history


def verdict_of(history: History) -> str:
    return str(check([history], fault_times=[KILL_AT], acked_min=10))


def test_a_clean_history_passes() -> None:
    verdict = check([clean_history()], fault_times=[KILL_AT], acked_min=10)
    assert verdict.word == "PASS", str(verdict)


def test_bodies_are_read_back_and_a_changed_byte_is_found() -> None:
    body = make_body("p", 123)
    assert read_body(body) == ("p", 123)
    for at in range(len(body)):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        with pytest.raises(ValueError):
            read_body(changed)
    with pytest.raises(ValueError):
        read_body(body[:-1])


def test_an_acked_message_that_never_arrives_is_lost() -> None:
    history = clean_history()
    del history.receipts[7]
    assert "FAIL" in verdict_of(history)
    assert "lost 1 (first: p 7)" in verdict_of(history)


def test_an_unanswered_message_may_arrive_or_not() -> None:
    history = clean_history()
    history.attempt(50, at=50.0)
    history.attempt(51, at=51.0)
    history.receive(make_body("p", 51), flagged=False, at=101.0)
    verdict = check([history], fault_times=[KILL_AT], acked_min=10)
    assert verdict.word == "PASS", str(verdict)
    assert verdict.unknown == 2


def test_a_refused_message_is_not_lost() -> None:
    history = clean_history()
    history.attempt(50, at=50.0)
    history.refused.add(50)
    assert "PASS" in verdict_of(history)


def test_a_message_that_nobody_sent_is_unexpected() -> None:
    history = clean_history()
    history.receive(make_body("p", 999), flagged=False, at=60.0)
    history.receive(make_body("q", 1), flagged=False, at=60.0)
    history.receive(b"p 1 00000000 a", flagged=False, at=60.0)
    assert "unexpected 3" in verdict_of(history)


def test_a_swap_is_reordered() -> None:
    history = clean_history()
    history.receipts[3], history.receipts[4] = history.receipts[4], history.receipts[3]
    assert "reordered 1 (first: p 3 after 4)" in verdict_of(history)


def test_order_holds_within_a_connection_of_the_publisher() -> None:
    history = clean_history()
    history.receipts[3], history.receipts[4] = history.receipts[4], history.receipts[3]
    history.connections = [0, 4]
    assert "reordered 0" in verdict_of(history)
    history.connections = [0, 5]
    assert "reordered 1 (first: p 3 after 4)" in verdict_of(history)


def test_messages_that_another_consumer_had_before_come_later() -> None:
    history = clean_history()
    history.receipts[3], history.receipts[4] = history.receipts[4], replace(history.receipts[3], flagged=True)
    assert "reordered 1 (first: p 3 after 4)" in verdict_of(history)
    history.connections = [0]
    assert "reordered 0" in verdict_of(history)


def test_repetitions_and_swaps_that_a_broker_may_do_are_no_finding() -> None:
    history = clean_history()
    history.receipts[3], history.receipts[4] = history.receipts[4], history.receipts[3]
    history.receive(make_body("p", 9), flagged=False, at=101.0)
    history.ordered, history.at_least_once = False, True
    assert "PASS" in verdict_of(history)


def test_a_repetition_without_the_flag_is_a_duplicate() -> None:
    history = clean_history()
    history.receive(make_body("p", 9), flagged=False, at=101.0)
    assert "duplicated 1 (first: p 9)" in verdict_of(history)


def test_a_flagged_repetition_after_a_crash_is_allowed() -> None:
    history = clean_history()
    history.receive(make_body("p", 49), flagged=True, at=101.0)
    verdict = check([history], fault_times=[KILL_AT], acked_min=10)
    assert (verdict.word, verdict.flagged) == ("PASS", 1), str(verdict)


def test_a_message_settled_long_before_the_crash_must_not_return() -> None:
    history = clean_history()
    history.receive(make_body("p", 9), flagged=True, at=101.0)
    assert "returned 1 (first: p 9)" in verdict_of(history)


@pytest.mark.parametrize(
    ("later", "allowed"),
    [
        ((0.1, 0.2 + CURSOR_SAVE_S, 0.3 + CURSOR_SAVE_S), False),
        ((0.1, 0.05 + CURSOR_SAVE_S, 0.3 + CURSOR_SAVE_S), True),
        ((0.1, 0.2 + CURSOR_SAVE_S), True),
        ((), True),
    ],
)
def test_how_long_the_broker_may_forget_is_told_by_what_it_did(
    later: tuple[float, ...], allowed: bool
) -> None:
    """`later`: when messages were sent after the acknowledgement; each is confirmed 0.05 s after that."""
    history = clean_history()
    history.settled[49] = 60.0
    for sequence, after in enumerate(later, 50):
        history.attempt(sequence, at=60.0 + after)
        history.ack(sequence, at=60.05 + after)
        history.receive(make_body("p", sequence), flagged=False, at=60.1 + after)
    history.receive(make_body("p", 49), flagged=True, at=101.0)
    assert ("returned 1 (first: p 49)" in verdict_of(history)) != allowed


def test_a_publisher_that_sent_twice_may_cause_two_copies_but_not_three() -> None:
    history = clean_history()
    history.attempt(9, at=99.0)
    history.receive(make_body("p", 9), flagged=False, at=101.0)
    assert "PASS" in verdict_of(history)
    history.receive(make_body("p", 9), flagged=False, at=102.0)
    assert "duplicated 1" in verdict_of(history)


def test_exactly_once_allows_no_repetition_at_all() -> None:
    history = clean_history(exactly_once=True)
    history.attempt(49, at=99.0)
    history.receive(make_body("p", 49), flagged=True, at=101.0)
    assert "duplicated 1 (first: p 49)" in verdict_of(history)


def test_runs_that_prove_nothing_are_invalid() -> None:
    assert check([clean_history()], fault_times=[], acked_min=10).word == "INVALID"
    assert check([clean_history(5)], fault_times=[KILL_AT], acked_min=10).word == "INVALID"
    idle = clean_history()
    idle.in_flight_at_fault = [0]
    assert check([idle], fault_times=[KILL_AT], acked_min=10).word == "INVALID"


def test_a_failure_in_a_small_run_is_still_a_failure() -> None:
    history = clean_history(5)
    del history.receipts[2]
    assert check([history], fault_times=[], acked_min=10).word == "FAIL"
