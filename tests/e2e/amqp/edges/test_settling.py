"""Acknowledging and rejecting at their edges. Each holds on both brokers."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Channel, Queue

from tests.support.amqp_client import Closed
from tests.support.amqp_peer import Peer


def test_rejected_messages_come_back_at_their_place(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcd")
    for _ in range(3):
        peer.get(queue)
    peer.send(1, Basic.Reject(2, requeue=True), Basic.Reject(1, requeue=True))
    peer.until_ready(queue, 3)
    assert [peer.get(queue), peer.get(queue), peer.get(queue)] == [
        ("a", True, 4),
        ("b", True, 5),
        ("d", False, 6),
    ]


def test_nack_of_tag_zero_is_all(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    for _ in range(3):
        peer.get(queue)
    peer.send(1, Basic.Nack(0, multiple=True, requeue=True))
    peer.until_ready(queue, 3)


def test_ack_of_tag_zero_with_nothing_out_is_fine(peer: Peer, queue: str) -> None:
    peer.send(1, Basic.Ack(0, multiple=True))
    assert peer.ready(queue) == 0


def test_a_delivery_of_another_channel_cannot_be_acknowledged(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.put(queue, "a")
    peer.get(queue, channel=2)
    with pytest.raises(Closed) as closed:
        peer.send(1, Basic.Ack(1))
        peer.call(1, Channel.Flow(True))
    assert closed.value == Closed("channel", 406, "PRECONDITION_FAILED - unknown delivery tag 1", 60, 80)
    peer.send(2, Basic.Ack(1))
    assert isinstance(peer.call(2, Channel.Flow(True)), Channel.FlowOk)


def test_a_delivery_can_be_acknowledged_once(peer: Peer, queue: str) -> None:
    peer.put(queue, *"ab")
    peer.get(queue)
    peer.get(queue)
    peer.send(1, Basic.Ack(2, multiple=True))
    with pytest.raises(Closed) as closed:
        peer.send(1, Basic.Ack(1))
        peer.call(1, Channel.Flow(True))
    assert (closed.value.scope, closed.value.code) == ("channel", 406)


def test_deliveries_of_a_deleted_queue_can_be_acknowledged(peer: Peer, queue: str) -> None:
    peer.put(queue, *"ab")
    peer.get(queue)
    deleted = peer.call(1, Queue.Delete(queue=queue))
    assert isinstance(deleted, Queue.DeleteOk) and deleted.message_count == 1
    peer.send(1, Basic.Ack(1))
    assert isinstance(peer.call(1, Channel.Flow(True)), Channel.FlowOk)


def test_purge_leaves_what_is_out(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.get(queue)
    purged = peer.call(1, Queue.Purge(queue=queue))
    assert isinstance(purged, Queue.PurgeOk) and purged.message_count == 2
    peer.send(1, Basic.Nack(1, requeue=True))
    peer.until_ready(queue, 1)
