"""Replies keep their order; promises wait for the disk."""

from __future__ import annotations

from collections.abc import Callable

from penstock.protocols.amqp.channel.reply_order import ReplyOrder


def recorder(done: list[str], name: str, result: bool = True) -> Callable[[], bool]:
    def action() -> bool:
        done.append(name)
        return result

    return action


def test_a_reply_without_a_wait_is_sent_at_once() -> None:
    gate, done = ReplyOrder(), []  # type: tuple[Gate, list[str]]
    gate.submit(0, recorder(done, "a"), 0)
    gate.submit(5, recorder(done, "b"), 5)
    assert done == ["a", "b"]
    assert not gate.waiting and gate.take_awaited() == 0


def test_nothing_overtakes_a_promise() -> None:
    gate, done = ReplyOrder(), []  # type: tuple[Gate, list[str]]
    gate.submit(7, recorder(done, "promise"), 5)
    gate.submit(0, recorder(done, "plain"), 5)
    gate.submit(9, recorder(done, "later"), 5)
    assert done == [] and gate.waiting
    assert gate.take_awaited() == 9
    assert gate.take_awaited() == 0, "asked for once"
    gate.release(6)
    assert done == []
    gate.release(8)
    assert done == ["promise", "plain"]
    gate.release(9)
    assert done == ["promise", "plain", "later"]


def test_an_action_that_takes_its_time_holds_up_the_rest() -> None:
    gate, done = ReplyOrder(), []  # type: tuple[Gate, list[str]]
    gate.submit(0, recorder(done, "slow", result=False), 0)
    gate.submit(0, recorder(done, "next"), 0)
    gate.release(100)
    assert done == ["slow"]
    gate.go_on(100)
    assert done == ["slow", "next"]


def test_an_action_may_submit_another() -> None:
    gate, done = ReplyOrder(), []  # type: tuple[Gate, list[str]]

    def outer() -> bool:
        gate.submit(0, recorder(done, "inner"), 0)
        done.append("outer")
        return True

    gate.submit(0, outer, 0)
    assert done == ["outer", "inner"]


def test_a_closed_gate_does_nothing_more() -> None:
    gate, done = ReplyOrder(), []  # type: tuple[Gate, list[str]]
    gate.submit(7, recorder(done, "promise"), 0)
    gate.close()
    gate.release(100)
    gate.submit(0, recorder(done, "late"), 100)
    assert done == []
