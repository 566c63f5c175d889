"""basic.recover and basic.cancel at their edges. Each holds on both brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Queue

from tests.support.amqp_client import Closed
from tests.support.amqp_peer import Peer

# basic.recover


def test_recover_gives_all_of_the_channel_back_in_order(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcd")
    for _ in range(3):
        peer.get(queue)
    peer.send(1, Basic.Ack(2))
    peer.call(1, Basic.Recover(True))
    peer.until_ready(queue, 3)
    got = [peer.get(queue) for _ in range(3)]
    assert [(body, again) for body, again, _ in got if body] == [("a", True), ("c", True), ("d", False)]  # type: ignore[misc]


def test_recover_gives_a_consumer_its_own_again(peer: Peer, queue: str) -> None:
    peer.put(queue, *"ab")
    peer.consume(queue)
    assert peer.take(2) == list("ab")
    peer.call(1, Basic.Recover(True))
    assert peer.take(2) == list("ab")
    assert [m.method.redelivered for m in peer.last] == [True, True]  # type: ignore[attr-defined]
    assert [m.method.delivery_tag for m in peer.last] == [3, 4]  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
def test_recover_async_has_no_reply(peer: Peer, queue: str) -> None:
    peer.put(queue, "a")
    peer.get(queue)
    peer.send(1, Basic.RecoverAsync(True))
    peer.until_ready(queue, 1)


@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
@pytest.mark.parametrize("method", [Basic.Recover, Basic.RecoverAsync])
def test_recover_without_requeue_is_not_implemented(
    peer: Peer, queue: str, method: Callable[[bool], Frame]
) -> None:
    with pytest.raises(Closed) as closed:
        peer.send(1, method(False))
        peer.call(1, Channel.Flow(True))
    assert (closed.value.scope, closed.value.code) == ("connection", 540)


# basic.cancel


def test_deliveries_of_a_cancelled_consumer_stay_unsettled_until_acknowledged(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.qos(2)
    peer.consume(queue, "c")
    assert peer.take(2) == list("ab")
    peer.call(1, Basic.Cancel("c"))
    assert peer.ready(queue) == 1
    peer.send(1, Basic.Ack(1), Basic.Nack(2, requeue=True))
    peer.until_ready(queue, 2)
    assert [peer.get(queue), peer.get(queue)] == [("b", True, 3), ("c", False, 4)]


def test_closing_the_channel_gives_back_what_a_cancelled_consumer_had(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.channel(2)
    peer.consume(queue, "c", channel=2)
    assert peer.take(3) == list("abc")
    peer.call(2, Basic.Cancel("c"))
    peer.call(2, Channel.Close(0, "", 0, 0))
    peer.until_ready(queue, 3)
    assert [peer.get(queue), peer.get(queue), peer.get(queue)] == [
        ("a", True, 1),
        ("b", True, 2),
        ("c", True, 3),
    ]


def test_a_cancelled_tag_can_be_used_again(peer: Peer, queue: str) -> None:
    peer.consume(queue, "c")
    peer.call(1, Basic.Cancel("c"))
    peer.consume(queue, "c")
    peer.put(queue, "a")
    assert peer.take(1) == ["a"]


def test_cancelling_an_unknown_tag_is_fine(peer: Peer) -> None:
    cancelled = peer.call(1, Basic.Cancel("nobody"))
    assert isinstance(cancelled, Basic.CancelOk) and cancelled.consumer_tag == "nobody"


def test_a_tag_used_twice_ends_the_connection(peer: Peer, queue: str) -> None:
    peer.consume(queue, "c")
    with pytest.raises(Closed) as closed:
        peer.consume(queue, "c")
    assert closed.value == Closed(
        "connection", 530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'", 60, 20
    )


def test_one_tag_on_two_channels_is_two_consumers(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.consume(queue, "c")
    peer.consume(queue, "c", channel=2)
    declared = peer.call(1, Queue.Declare(queue=queue, passive=True))
    assert isinstance(declared, Queue.DeclareOk) and declared.consumer_count == 2
