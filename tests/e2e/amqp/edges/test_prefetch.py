"""basic.qos at its edges: what counts against a prefetch, and for whom. Each holds on both brokers."""

from __future__ import annotations

from pamqp.commands import Basic

from tests.support.amqp_peer import Peer

# basic.qos


def test_a_prefetch_of_zero_is_no_limit(peer: Peer, queue: str) -> None:
    peer.qos(1)
    peer.qos(0)
    peer.consume(queue)
    peer.put(queue, *(str(i) for i in range(50)))
    assert peer.take(50) == [str(i) for i in range(50)]


def test_a_prefetch_is_each_new_consumers_own(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdefghi")
    peer.qos(2)
    peer.consume(queue, "two")
    peer.until_ready(queue, 7)
    peer.qos(3)
    peer.consume(queue, "three")
    peer.until_ready(queue, 4)
    assert sorted(peer.take(5)) == list("abcde")
    per = [message.method.consumer_tag for message in peer.last]  # type: ignore[attr-defined]
    assert (per.count("two"), per.count("three")) == (2, 3)


def test_a_global_prefetch_is_shared_by_the_channels_consumers(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdef")
    peer.qos(3, shared=True)
    peer.consume(queue, "one")
    peer.consume(queue, "other")
    peer.until_ready(queue, 3)
    peer.take(3)
    peer.send(1, Basic.Ack(1))
    peer.until_ready(queue, 2)


def test_both_prefetches_hold_together(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdefgh")
    peer.qos(2)
    peer.qos(3, shared=True)
    peer.consume(queue, "one")
    peer.until_ready(queue, 6)
    peer.consume(queue, "other")
    peer.until_ready(queue, 5)


def test_a_global_prefetch_that_grows_or_ends_holds_at_once(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdefgh")
    peer.qos(1, shared=True)
    peer.consume(queue)
    peer.until_ready(queue, 7)
    peer.qos(3, shared=True)
    peer.until_ready(queue, 5)
    peer.qos(0, shared=True)
    peer.until_ready(queue, 0)
    assert peer.take(8) == list("abcdefgh")


def test_a_global_prefetch_below_what_is_out_waits_for_acknowledgements(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdef")
    peer.qos(4, shared=True)
    peer.consume(queue)
    assert peer.take(4) == list("abcd")
    peer.qos(2, shared=True)
    peer.send(1, Basic.Ack(2, multiple=True))
    assert peer.ready(queue) == 2, "two are out, and two may be"
    peer.send(1, Basic.Ack(3))
    peer.until_ready(queue, 1)


def test_messages_of_basic_get_do_not_count(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.qos(1)
    assert peer.get(queue) == ("a", False, 1)
    peer.consume(queue)
    peer.until_ready(queue, 1)
    assert peer.take(1) == ["b"]


def test_without_acknowledgements_there_is_no_prefetch(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcde")
    peer.qos(1)
    peer.consume(queue, no_ack=True)
    assert peer.take(5) == list("abcde")
    assert peer.ready(queue) == 0


def test_the_prefetch_of_one_channel_is_not_anothers(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.put(queue, *"abcdef")
    peer.qos(1)
    peer.consume(queue, channel=2)
    peer.until_ready(queue, 0)
    assert peer.take(6) == list("abcdef")
