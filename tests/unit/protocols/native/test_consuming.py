"""Subscriptions over the native protocol, without sockets: credit, settling, pulls, seeks, restarts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.reference import native_frames as wire
from tests.support.native_session import Client, World


def producer(world: World, topic: str = "t") -> Client:
    client = Client(world)
    client.request("open_producer", handle=1, topic=topic, create=True)
    return client


def consumer(world: World, handle: int = 7, credit: int = 1000, **more: Any) -> Client:
    client = Client(world)
    fields = {"topic": "t", "subscription": "s", "start": "earliest", "create": True, **more}
    assert client.request("subscribe", handle=handle, **fields) == {"handle": handle}
    if credit:
        client.send(wire.credit(handle, credit, 1 << 20))
    return client


def described(client: Client, name: str = "s") -> dict[str, Any]:
    found: dict[str, Any] = client.request("describe", topic="t")["subscriptions"][name]
    return found


# Credit


def test_messages_come_as_credit_says_and_no_more(world: World) -> None:
    sender, taker = producer(world), consumer(world, credit=0)
    sender.produce(1, *(b"%d" % i for i in range(10)))
    assert taker.bodies() == []
    taker.send(wire.credit(7, 3, 1000))
    assert taker.bodies() == [b"0", b"1", b"2"]
    taker.send(wire.ack(7, [(1, 3)]))
    assert taker.bodies() == []
    taker.send(wire.credit(7, 100, 1000))
    assert taker.bodies() == [b"%d" % i for i in range(3, 10)]
    assert described(sender)["acknowledged"] == 3


def test_bytes_of_credit_are_overdrawn_by_one_message_at_most(world: World) -> None:
    sender, taker = producer(world), consumer(world, credit=0)
    sender.produce(1, *(bytes(1000) for _ in range(10)))
    taker.send(wire.credit(7, 100, 1))
    assert len(taker.bodies()) == 1
    taker.send(wire.credit(7, 0, 1500))
    # The first overdrew by about a thousand, so 500 are left for one more.
    assert len(taker.bodies()) == 1
    taker.send(wire.credit(7, 0, 1 << 20))
    assert len(taker.bodies()) == 8


def test_a_consumer_holds_no_more_than_the_gateway_lets_it(world: World) -> None:
    from penstock.protocols.native.options import NativeOptions

    world.options = NativeOptions(max_unacked=4)
    sender, taker = producer(world), consumer(world)
    sender.produce(1, *(b"%d" % i for i in range(10)))
    assert len(taker.bodies()) == 4
    taker.send(wire.ack(7, [(2, 3)]))
    assert taker.bodies() == [b"4", b"5"]


# Acknowledging


def test_unacknowledged_messages_come_again_flagged_and_in_order(world: World) -> None:
    sender, first = producer(world), consumer(world)
    sender.produce(1, *(b"%d" % i for i in range(6)))
    assert len(first.bodies()) == 6
    first.send(wire.ack(7, [(2, 2), (5, 6)]))
    first.lose()
    again = consumer(world).delivered()
    assert [one["body"] for one in again] == [b"0", b"2", b"3"]
    assert all(one["redelivered"] and one["given_back"] == 1 for one in again)


def test_an_acknowledgement_may_be_asked_for_a_receipt(world: World) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, b"a")
    taker.take()
    taker.send(wire.ack(7, [(1, 1)], request=33))
    assert [(kind, id) for kind, id, _ in taker.take()] == [(0x06, 33)]
    world.restart(clean=False)
    assert consumer(world).bodies() == []


def test_cumulative_acknowledgements_are_for_exclusive_subscriptions(world: World) -> None:
    sender, taker = producer(world), consumer(world, kind="exclusive")
    sender.produce(1, *(b"%d" % i for i in range(6)))
    taker.take()
    taker.send(wire.ack(7, [(0, 4)], cumulative=True))
    assert described(sender)["unacked"] == 2
    shared = consumer(world, subscription="other")
    shared.take()
    shared.send(wire.ack(7, [(0, 4)], cumulative=True))
    assert shared.ended()["code"] == "not_cumulative"


def test_acknowledging_twice_or_what_never_was_does_nothing(world: World) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, b"a", b"b")
    taker.take()
    for _ in range(2):
        taker.send(wire.ack(7, [(1, 1), (1, 1), (5, 900), (2**63, 2**64 - 1), (4, 3)]))
    assert (described(sender)["acknowledged"], described(sender)["unacked"]) == (1, 1)


def test_requeued_messages_come_at_once_or_after_their_delay(world: World) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, b"a", b"b", b"c")
    taker.take()
    taker.send(wire.nack(7, [(1, 1)]))
    assert taker.bodies() == [b"a"]
    taker.send(wire.nack(7, [(2, 2)], delay_ms=5000))
    world.pass_time(4.9)
    assert taker.bodies() == []
    world.pass_time(0.2)
    assert taker.bodies() == [b"b"]


def test_the_backoff_of_a_subscription_doubles_up_to_its_bound(world: World) -> None:
    sender = producer(world)
    taker = consumer(world, nack_min_ms=1000, nack_max_ms=3000)
    sender.produce(1, b"a")
    tag = 1
    for waits_s in (1, 2, 3, 3):
        (one,) = taker.delivered()
        assert one["tag"] == tag
        taker.send(wire.nack(7, [(tag, tag)], delay_ms=-1))
        world.pass_time(waits_s - 0.1)
        assert not [frame for frame in taker.frames if frame[0] == 0x21]
        world.pass_time(0.2)
        tag += 1


def test_messages_not_acknowledged_in_time_go_to_another_consumer(world: World) -> None:
    sender = producer(world)
    slow = consumer(world, credit=1, ack_timeout_ms=2000)
    sender.produce(1, b"a")
    assert slow.bodies() == [b"a"]
    other = consumer(world, ack_timeout_ms=2000)
    world.pass_time(1.5)
    assert other.bodies() == []
    world.pass_time(1)
    assert other.bodies() == [b"a"]
    slow.send(wire.ack(7, [(1, 1)]))
    assert described(sender)["unacked"] == 1


def test_only_what_is_too_old_runs_into_the_timeout(world: World) -> None:
    sender, taker = producer(world), consumer(world, ack_timeout_ms=10_000)
    sender.produce(1, b"old")
    world.pass_time(6)
    sender.produce(1, b"young", sequence=1)
    assert taker.bodies() == [b"old", b"young"]
    world.pass_time(5)
    assert taker.bodies() == [b"old"]
    world.pass_time(6)
    assert taker.bodies() == [b"young"]


def test_after_so_many_deliveries_a_message_goes_to_the_dead_letter_topic(world: World) -> None:
    sender = producer(world)
    sender.request("create_topic", topic="dead")
    taker = consumer(world, max_deliveries=2, dead_letter="dead")
    sender.produce(1, b"bad", b"good")
    assert taker.bodies() == [b"bad", b"good"]
    taker.send(wire.nack(7, [(1, 1)]))
    (again,) = taker.delivered()
    assert (again["body"], again["given_back"]) == (b"bad", 1)
    taker.send(wire.nack(7, [(again["tag"],) * 2]))
    assert taker.bodies() == []
    taker.request("read", handle=8, topic="dead", start="earliest")
    taker.send(wire.credit(8, 10, 1000))
    assert taker.bodies() == [b"bad"]


def test_a_rejected_message_goes_to_the_dead_letter_topic_at_once(world: World) -> None:
    sender = producer(world)
    sender.request("create_topic", topic="dead")
    taker = consumer(world, dead_letter="dead")
    sender.produce(1, b"bad")
    taker.take()
    taker.send(wire.nack(7, [(1, 1)], reject=True))
    taker.request("read", handle=8, topic="dead", start="earliest")
    taker.send(wire.credit(8, 10, 1000))
    (dead,) = taker.delivered()
    assert dead["body"] == b"bad"
    assert b"x-death" in dead["props"]


# Pulling


def pulled(client: Client) -> list[tuple[int, int]]:
    """(request, messages) of the pulls that are over."""
    client.world.settle()
    found = [struct.unpack(">II", payload) for kind, _, payload in client.frames if kind == 0x25]
    client.frames = [one for one in client.frames if one[0] != 0x25]
    return [(request, got) for request, got in found]


def test_a_pull_ends_when_it_has_enough_and_takes_no_more_than_it_may(world: World) -> None:
    sender, taker = producer(world), consumer(world, credit=0)
    taker.send(wire.pull(7, 5, most=3, least=2, wait_ms=10_000))
    sender.produce(1, b"a")
    assert (taker.bodies(), pulled(taker)) == ([b"a"], [])
    sender.produce(1, b"b", b"c", b"d", sequence=1)
    found = taker.delivered()
    assert [(one["body"], one["pull"]) for one in found] == [(b"b", 5), (b"c", 5)]
    assert pulled(taker) == [(5, 3)]
    taker.send(wire.pull(7, 6, most=10, least=1, wait_ms=10_000))
    assert (taker.bodies(), pulled(taker)) == ([b"d"], [(6, 1)])


def test_a_pull_ends_when_its_time_is_over(world: World) -> None:
    sender, taker = producer(world), consumer(world, credit=0)
    taker.send(wire.pull(7, 5, most=3, least=2, wait_ms=1000))
    sender.produce(1, b"a")
    world.pass_time(0.9)
    assert pulled(taker) == []
    world.pass_time(0.2)
    assert (taker.bodies(), pulled(taker)) == ([b"a"], [(5, 1)])
    sender.produce(1, b"b", sequence=1)
    assert taker.bodies() == []


def test_push_and_pull_take_from_one_subscription(world: World) -> None:
    sender, pusher, puller = producer(world), consumer(world, credit=2), consumer(world, credit=0)
    sender.produce(1, *(b"%d" % i for i in range(5)))
    puller.send(wire.pull(7, 5, most=10, least=3, wait_ms=10_000))
    pushed, got = pusher.bodies(), puller.bodies()
    assert sorted(pushed + got) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(pushed) == 2
    assert pulled(puller) == [(5, 3)]


def test_a_pull_on_a_handle_that_is_none_is_refused(world: World) -> None:
    taker = consumer(world)
    taker.send(wire.pull(99, 5, most=3, least=2, wait_ms=1000))
    ((kind, id, payload),) = taker.take()
    assert (kind, id, json.loads(payload)["code"]) == (0x0F, 5, "unknown_handle")


# Subscriptions


def test_an_exclusive_subscription_has_one_consumer(world: World) -> None:
    first = consumer(world, kind="exclusive")
    second = Client(world)
    fields = {"topic": "t", "subscription": "s", "kind": "exclusive"}
    refused = second.request("subscribe", handle=1, **fields)
    assert (refused["code"], refused["retryable"]) == ("subscription_busy", True)
    first.lose()
    assert second.request("subscribe", handle=1, **fields) == {"handle": 1}


def test_a_subscription_is_joined_as_it_is_or_not_at_all(world: World) -> None:
    consumer(world)
    other = Client(world)
    for wrong in ({"kind": "exclusive"}, {"durable": False}, {"ack_timeout_ms": 5}):
        refused = other.request("subscribe", handle=1, topic="t", subscription="s", **wrong)
        assert refused["code"] == "inequivalent"


@pytest.mark.parametrize("clean", [True, False])
def test_a_durable_subscription_goes_on_after_a_restart(world: World, clean: bool) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, *(b"%d" % i for i in range(4)))
    taker.take()
    taker.send(wire.ack(7, [(1, 2)], request=1))
    taker.take()
    world.restart(clean=clean)
    late = producer(world)
    late.produce(1, b"4")
    again = consumer(world).delivered()
    assert [one["body"] for one in again] == [b"2", b"3", b"4"]
    assert [one["redelivered"] for one in again[:2]] == [True, True]


def test_a_subscription_that_is_not_durable_goes_with_its_last_consumer(world: World) -> None:
    sender, taker = producer(world), consumer(world, durable=False)
    sender.produce(1, b"a")
    assert taker.bodies() == [b"a"]
    taker.lose()
    assert sender.request("describe", topic="t")["subscriptions"] == {}
    assert consumer(world, durable=False).bodies() == [b"a"]


def test_a_subscription_begins_where_it_was_asked_to(world: World) -> None:
    sender = producer(world)
    sender.produce(1, b"a")
    world.pass_time(100)
    sender.produce(1, b"b", sequence=1)
    at = struct.unpack(">QQII", sender.take()[-1][2])[1]
    world.pass_time(100)
    sender.produce(1, b"c", sequence=2)
    starts = {"earliest": b"abc", f"pos:{at}": b"bc", "latest": b"", f"pos:{at + 10**6}": b""}
    for i, (start, wanted) in enumerate(starts.items()):
        taker = consumer(world, subscription=f"s{i}", start=start)
        assert b"".join(taker.bodies()) == wanted
    sender.produce(1, b"d", sequence=3)
    assert taker.bodies() == [b"d"]


@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_a_seek_makes_what_is_out_void(world: World, to: str) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, *(b"%d" % i for i in range(5)))
    taker.take()
    taker.send(wire.ack(7, [(1, 3)]))
    assert "position" in sender.request("seek", topic="t", subscription="s", to=to)
    assert taker.events() == [{"event": "void", "next_tag": 6}]
    assert taker.bodies() == ([b"0", b"1", b"2", b"3", b"4"] if to == "earliest" else [])
    taker.send(wire.ack(7, [(4, 5)]))
    assert described(sender)["acknowledged"] == 0
    sender.produce(1, b"5", sequence=5)
    assert taker.bodies() == [b"5"]
    world.restart(clean=False)
    again = consumer(world).bodies()
    assert again == ([b"0", b"1", b"2", b"3", b"4", b"5"] if to == "earliest" else [b"5"])


def test_a_topic_takes_its_subscriptions_with_it(world: World) -> None:
    sender, taker = producer(world), consumer(world)
    assert sender.request("delete_topic", topic="t") == {}
    assert [event["event"] for event in taker.events()] == ["closed"]
    world.restart()
    assert world.broker.vhost("/").subscriptions.entries == {}
    assert Client(world).request("topics") == {"topics": []}


def test_a_subscription_can_be_deleted(world: World) -> None:
    sender, _ = producer(world), consumer(world)
    assert sender.request("delete_subscription", topic="t", subscription="s") == {}
    assert sender.request("delete_subscription", topic="t", subscription="s")["code"] == "not_found"


# Readers


def test_a_reader_takes_nothing_from_a_queue(world: World) -> None:
    client = Client(world)
    client.session.vhost.declare_queue("q", client.session.actor, durable=True)
    client.request("open_producer", handle=1, exchange="", routing_key="q")
    client.produce(1, b"a", b"b")
    client.request("read", handle=2, queue="q", start="earliest")
    client.send(wire.credit(2, 10, 1000))
    assert client.bodies() == [b"a", b"b"]
    client.request("subscribe", handle=3, queue="q")
    client.send(wire.credit(3, 10, 1000))
    found = client.delivered()
    assert [(one["body"], one["redelivered"]) for one in found] == [(b"a", False), (b"b", False)]


def test_a_reader_follows_what_comes(world: World) -> None:
    sender = producer(world)
    reader = Client(world)
    reader.request("read", handle=2, topic="t", start="latest")
    reader.send(wire.credit(2, 2, 1000))
    sender.produce(1, b"a", b"b", b"c")
    assert reader.bodies() == [b"a", b"b"]
    reader.send(wire.credit(2, 1, 1000))
    assert reader.bodies() == [b"c"]


def test_a_long_topic_is_read_though_its_positions_have_no_room_in_memory(tmp_path: Path) -> None:
    """With a budget smaller than what one segment has: each is read once for each turn of housekeeping."""
    world = World(tmp_path / "long", segment_bytes=1 << 17)
    sent = [b"%d" % i for i in range(20_000)]
    sender = producer(world)
    for at in range(0, len(sent), 400):
        sender.produce(1, *sent[at : at + 400])
    world.restart()
    segments = len(world.log._segments.live)
    assert segments > 5
    feeds, reads = world.log._feeds, []
    feeds._memory._limit = 1
    load_entries = world.log.reader.load_entries

    def counted(segment: Any, *rest: Any) -> None:
        reads.append(segment.number)
        load_entries(segment, *rest)

    setattr(world.log.reader, "load_entries", counted)  # noqa: B010
    client = Client(world)
    client.request("read", handle=2, topic="t", start="earliest")
    got: list[bytes] = []
    turns = 0
    while len(got) < len(sent):
        client.send(wire.credit(2, 700, 1 << 20))
        turns += 1

        def came(most: int = min(len(sent), 700 * turns)) -> bool:
            got.extend(client.bodies())
            return len(got) >= most

        world.wait(came)
        feeds.trim()
        assert feeds.resident_bytes <= 1
    assert got == sent
    assert segments - 1 <= len(reads) <= segments + turns
    world.close()
