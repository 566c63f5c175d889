"""A client that is logged in and means harm: what the gateway does, holds and waits for has bounds."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocols.native import options
from penstock.protocols.native.codec._in_flight import Held
from penstock.protocols.native.codec.packing import pack
from penstock.protocols.native.options import CHOOSERS_MAX, SINGLES_MAX, NativeOptions
from penstock.protocols.native.session import opening, pulling, redelivery, requests
from penstock.router.authorization.identity import Identity
from penstock.router.messages import half
from penstock.router.rows import producer_name
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World

ALL = 2**64 - 1


def producer(world: World, topic: str = "t", **more: Any) -> Client:
    client = Client(world)
    client.request("open_producer", handle=1, topic=topic, create=True, **more)
    return client


def consumer(world: World, handle: int = 7, credit: int = 100_000, **more: Any) -> Client:
    client = Client(world)
    asked = {"topic": "t", "subscription": "s", "start": "earliest", "create": True, **more}
    assert client.request("subscribe", handle=handle, **asked) == {"handle": handle}
    if credit:
        client.send(wire.credit(handle, credit, 1 << 30))
    return client


def refusals(client: Client) -> list[dict[str, Any]]:
    return [json.loads(payload) for kind, _, payload in client.take() if kind in (0x0F, 0x13)]


# Work


def cost_s(work: Callable[[], object]) -> float:
    """CPU seconds of this thread, the least of three."""
    took = []
    for _ in range(3):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


def test_a_wide_range_of_what_is_settled_costs_no_more_than_a_narrow_one() -> None:
    held = Held()
    held.deliver(50_000)
    assert held.settle(2, ALL) == 49_999, "the first one stays out, so that none of their places goes"
    narrow = cost_s(lambda: [held.settle(2, 2) for _ in range(5000)])
    wide = cost_s(lambda: [held.settle(2 + i, ALL) for i in range(5000)])
    # It was 50,000 times as much: an ACK frame of 16 MiB took minutes.
    assert wide < 50 * narrow


def test_one_that_is_never_acknowledged_costs_a_place_and_not_all_behind_it(world: World) -> None:
    held = Held()
    held.deliver(1)
    for _ in range(1000):
        first = held.deliver(1000)
        held.settle(first, first + 999)
    assert held.places < 5000
    assert held.out(0, ALL) == [1]


def test_a_transaction_names_each_delivery_once(world: World) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, *[b""] * 10)
    for settled in ([(7, [(1, 5), (5, 6)])], [(7, [(1, 5)]), (7, [(4, 4)])], [(7, [(1, 2), (1, 2)])]):
        taker.take()
        taker.send(wire.transact(9, [], settled))
        (told,) = refusals(taker)
        assert told["code"] == "stale_delivery"
    taker.send(wire.transact(9, [], [(7, [(6, 10)]), (7, [(1, 5)])]))
    assert refusals(taker) == []
    assert taker.request("describe", topic="t")["subscriptions"]["s"]["unacked"] == 0


def test_a_transaction_has_so_many_ranges_and_no_more(world: World) -> None:
    taker = consumer(world)
    taker.send(wire.transact(9, [], [(7, [(1, 1)] * 60_000), (7, [(1, 1)] * 60_000)]))
    (told,) = refusals(taker)
    assert told["code"] == "too_large"
    head = struct.pack(">HH", 0, 65_535) + struct.pack(">II", 7, 0) * 65_535
    taker.send(wire.frame(0x14, 9, head))
    (told,) = refusals(taker)
    assert told["code"] == "too_large"


def test_a_delivery_extended_several_times_counts_once(world: World) -> None:
    sender, taker = producer(world), consumer(world, ack_timeout_ms=1000)
    sender.produce(1, *[b""] * 10)
    taker.take()
    assert taker.request("extend", handle=7, ranges=[[4, 2**63 - 1], [1, 5], [1, 5], [2, 2]]) == {
        "extended": 10
    }


def test_records_that_are_looked_at_one_by_one_are_so_many_and_no_more(world: World) -> None:
    client = Client(world)
    client.request("create_topic", topic="t")
    client.request("declare_queue", queue="q", arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    client.request("open_producer", handle=1, exchange="", routing_key="q")
    client.request("open_producer", handle=2, topic="t")
    n = SINGLES_MAX + 1
    packed = pack(wire.records([(b"\0\0", b"")] * n))
    later = struct.pack(">QBBHIq", 4, 2, 1, 0, n, 1_900_000_000_000)
    client.send(wire.produce_packed(1, 3, 2, n, packed) + wire.frame(0x11, 2, later + packed))
    for sequence, told in zip((3, 4), refusals(client), strict=True):
        assert (told["code"], told["sequence"], told["count"]) == ("too_large", sequence, n)
        assert "10,000" in told["remedy"]
    client.send(wire.produce_packed(2, 5, 2, n, packed))
    assert refusals(client) == [], "where nobody looks at them one by one they are as many as fit"


def test_a_read_that_asks_for_a_lot_is_served_in_turns(world: World) -> None:
    client = Client(world)
    for i in range(50):
        client.request("create_topic", topic=f"{i:02}" + "x" * 200)
    asked = bytearray(b"".join(client.json_frame(0x05, {"do": "topics"}, i) for i in range(1000)))
    turns = 0
    while asked:
        turns += 1
        consumed = client.session.receive(asked, len(asked))
        assert 0 < client.out.size < 5 << 20, "what one turn makes has a bound"
        del asked[:consumed]
        assert client.session.codec.more == bool(asked)
        client.look()
    assert turns >= 3
    answers = [id for kind, id, _ in client.take() if kind == 0x06]
    assert answers == list(range(1000))


def test_compressed_batches_are_unpacked_in_turns(world: World) -> None:
    client = producer(world)
    packed = pack(wire.records([(PLAIN, bytes(1 << 20))] * 5))
    frames = bytearray(b"".join(wire.produce_packed(1, i, 2, 5, packed) for i in range(4)))
    assert len(frames) < 10_000
    turns = 0
    while frames:
        turns += 1
        del frames[: client.session.receive(frames, len(frames))]
        world.settle()
    assert turns == 4
    assert [kind for kind, _, _ in client.take()] == [0x12] * 4


def test_an_ordinary_read_is_one_turn(world: World) -> None:
    client = producer(world)
    frames = bytearray(b"".join(wire.produce(1, i, 2, [(PLAIN, b"")] * 100) for i in range(200)))
    assert client.session.receive(frames, len(frames)) == len(frames)
    assert not client.session.codec.more


# Waiting


def timers(world: World) -> int:
    return sum(not handle.cancelled for _, _, handle, _, _ in world.loop._later)


def test_acknowledgement_timeouts_run_while_something_is_out(world: World) -> None:
    sender, taker = producer(world), Client(world)
    before = timers(world)
    for handle in range(10, 60):
        asked = {"topic": "t", "subscription": "s", "create": True, "ack_timeout_ms": 1}
        taker.request("subscribe", handle=handle, **asked)
    assert timers(world) < before + 5
    watched = taker.session.consuming._timers
    assert not watched
    taker.send(wire.credit(10, 10, 1000))
    sender.produce(1, b"a")
    assert taker.bodies() == [b"a"]
    assert len(watched) == 1
    taker.send(wire.ack(10, [(1, 1)]))
    world.pass_time(0.01)
    assert not watched
    sender.produce(1, b"b")
    assert taker.bodies() == [b"b"]
    world.pass_time(0.0011)
    assert taker.bodies() == [b"b"], "the next one has its time, too"


def test_messages_delayed_together_share_a_timer(world: World) -> None:
    sender, taker = producer(world), consumer(world)
    sender.produce(1, *[b"x"] * 1000)
    assert len(taker.bodies()) == 1000
    before = timers(world)
    taker.send(wire.nack(7, [(1, ALL)], 1500))
    assert timers(world) == before + 1
    world.pass_time(1.4)
    assert taker.bodies() == []
    world.pass_time(0.1)
    assert len(taker.bodies()) == 1000


def test_delays_that_all_differ_do_not_make_a_timer_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redelivery, "EXACT_MAX", 20)
    sender, taker = producer(world), consumer(world)
    sender.produce(1, *[b"x"] * 3000)
    assert len(taker.bodies()) == 3000
    before = timers(world)
    taker.send(b"".join(wire.nack(7, [(i, i)], 5000 + i) for i in range(1, 3001)))
    assert timers(world) - before < 60
    world.pass_time(5.001)
    assert len(taker.bodies()) == 1
    world.pass_time(2.999)
    assert 2000 < len(taker.bodies()) <= 2999
    world.pass_time(0.5)
    assert timers(world) == before
    assert taker.session.consuming._delayed_redelivery.timers == 0


def test_so_many_pulls_wait_on_a_connection_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "_PULLS_OF_ALL_MAX", 5)
    taker = consumer(world, 7, 0)
    taker.request("subscribe", handle=8, topic="t", subscription="s", create=True)
    for i in range(3):
        taker.send(wire.pull(7, 100 + i, 1, 1, 1000) + wire.pull(8, 200 + i, 1, 1, 1000))
    (told,) = refusals(taker)
    assert (told["code"], told["retryable"]) == ("limit_reached", True)
    world.pass_time(1)
    assert [kind for kind, _, _ in taker.take()] == [0x25] * 5
    taker.send(b"".join(wire.pull(7, 300 + i, 1, 1, 1000) for i in range(5)))
    taker.request("close", handle=7)
    assert [kind for kind, _, _ in taker.take()] == [0x25] * 5
    taker.send(wire.pull(8, 400, 1, 1, 0))
    assert [kind for kind, _, _ in taker.take()] == [0x25], "what ended makes room"


def test_so_many_wait_for_an_exclusive_place_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_SEARCHES_MAX", 3)
    holder = consumer(world, kind="exclusive")
    holder.alive = False
    asking = Client(world)
    asked = {"do": "subscribe", "topic": "t", "subscription": "s", "kind": "exclusive"}
    asking.send(b"".join(asking.json_frame(0x05, {**asked, "handle": i}, i) for i in range(5)))
    assert [told["code"] for told in refusals(asking)] == ["busy", "busy"]
    world.pass_time(6)
    codes = [json.loads(payload).get("code", "") for _, _, payload in asking.take()]
    assert codes == ["", "subscription_busy", "subscription_busy"]
    assert asking.session.opening._searches == 0


def test_a_consumer_whose_input_is_paused_is_not_replaced_for_its_silence(world: World) -> None:
    holder = consumer(world, kind="exclusive")
    holder.alive = False
    holder.session._deaf = lambda: True
    asking = Client(world)
    asking.send(
        asking.json_frame(
            0x05, {"do": "subscribe", "topic": "t", "subscription": "s", "kind": "exclusive", "handle": 1}, 9
        )
    )
    world.pass_time(6)
    assert [told["code"] for told in refusals(asking)] == ["subscription_busy"]
    assert holder.session.running


@pytest.mark.parametrize("kind", ["failover", "key_shared"])
def test_subscriptions_that_choose_among_all_have_so_many_consumers(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert CHOOSERS_MAX == 1000
    monkeypatch.setattr(requests, "CHOOSERS_MAX", 2)
    client = Client(world)
    asked = {"topic": "t", "subscription": "s", "create": True, "kind": kind}
    for handle in range(2):
        assert client.request("subscribe", handle=handle, **asked) == {"handle": handle}
    told = client.request("subscribe", handle=2, **asked)
    assert (told["code"], told["retryable"]) == ("limit_reached", True)
    client.request("close", handle=0)
    assert client.request("subscribe", handle=2, **asked) == {"handle": 2}


# State of other clients


def test_names_of_producers_do_not_push_out_those_of_others(world: World) -> None:
    client = producer(world, name="mine")
    client.produce(1, b"a")
    producers = world.log.producers
    producers._most = 100
    for i in range(50):
        producers.begin(producer_name("native", "/", "mallory", f"{i}").key)
    assert len(producers) == 11, "a tenth, and the one of somebody else"
    client.take()
    client.produce(1, b"a")
    (frame,) = client.take()
    assert struct.unpack(">QQII", frame[2])[3] == 1, "it is known still that this came before"


def test_a_name_that_is_forgotten_inside_of_a_unit_does_no_harm(world: World) -> None:
    producers = world.log.producers
    producers._most = 10
    client = producer(world, name="one")
    records = [(PLAIN, b"x")]
    opened = [client.json_frame(0x05, {"do": "open_producer", "handle": 9, "topic": "t", "name": "two"}, 5)]
    client.send(b"".join([wire.produce(1, 0, 2, records), *opened, wire.produce(1, 1, 2, records)]))
    assert [kind for kind, _, _ in client.take()] == [0x06, 0x12, 0x12]
    assert not producers.is_open


def test_half_messages_of_one_user_leave_room_for_those_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half, "HALVES_MAX", 4)
    mine = producer(world, group="g")
    kept = [mine.prepare(1, b"a"), mine.prepare(1, b"b")]
    told = mine.prepare(1, b"c")
    assert told["code"] == "too_many_halves"
    assert "user 'guest'" in told["message"]
    place = half.Place("/", "ann", "g", b"\0\1t")
    identity = Identity("ann", frozenset())
    world.broker.halves.prepare(identity, place, half.Rules(), half.HalfMessage(PLAIN, b"x"))
    mine.request("decide", transaction=kept[0]["transaction"])
    assert "transaction" in mine.prepare(1, b"d")


# Messages to other clients


def test_properties_that_no_amqp_client_could_be_given_are_refused(world: World) -> None:
    client = producer(world)
    table = b"\4long" + b"S" + struct.pack(">I", 131_052 - 2 - 4 - 10) + bytes(131_052 - 2 - 4 - 10)
    props = b"\x20\0" + struct.pack(">I", len(table)) + table
    assert len(props) == 131_052
    client.send(wire.produce(1, 0, 2, [(props, b"")]))
    assert [kind for kind, _, _ in client.take()] == [0x12]
    longer = b"\x20\0" + struct.pack(">I", len(table) + 1) + b"\5" + table[1:5] + b"r" + table[5:]
    client.send(wire.produce(1, 1, 2, [(longer, b"")]))
    (told,) = refusals(client)
    assert told["code"] == "properties_size"


# Numbers


def test_the_numbers_of_a_named_producer_begin_again_behind_the_last(world: World) -> None:
    client = producer(world, name="n")
    (known,) = world.log.producers._known
    log, last = world.log, 2**31 - 1
    log.producers.open()
    log.producers.note(known, last - 2, last - 2, 1, epoch=1)
    log.producers.close()

    def send(sequence: int, count: int) -> tuple[int, int] | str:
        client.take()
        client.produce(1, *[b"x"] * count, sequence=sequence)
        ((kind, _, payload),) = client.take()
        if kind == 0x13:
            return str(json.loads(payload)["code"])
        _, _, n, flags = struct.unpack(">QQII", payload)
        return n, flags

    assert send(last - 1, 3) == "out_of_sequence", "a batch does not go over the end"
    assert send(2**64 - 1, 1) == "out_of_sequence"
    assert send(last, 1) == "out_of_sequence", "one is missing"
    assert send(last - 1, 2) == (2, 0)
    assert send(last - 1, 2) == (2, 1)
    assert send(1, 1) == "out_of_sequence"
    assert send(0, 5) == (5, 0)
    assert send(0, 5) == (5, 1)
    assert send(last - 1, 2) == (2, 1), "also what came before the end"
    for sequence in range(5, 11):
        assert send(sequence, 1) == (1, 0)
    assert send(last - 1, 2) == (2, 1), "and what is not among the last five any more"
    assert send(12, 1) == "out_of_sequence"


def test_a_batch_may_leave_numbers_out_at_the_end(world: World) -> None:
    """Of 2 that do not fit in front of the end, both come behind it, as no batch goes over it."""
    client = producer(world, name="n")
    (known,) = world.log.producers._known
    world.log.producers.open()
    world.log.producers.note(known, 2**31 - 2, 2**31 - 2, 1, epoch=1)
    world.log.producers.close()
    client.produce(1, b"a", b"b", sequence=0)
    assert [kind for kind, _, _ in client.take()] == [0x12]


def test_limits_of_pages_are_those_of_the_code() -> None:
    assert (options.SINGLES_MAX, options.CHOOSERS_MAX, NativeOptions().max_unacked) == (10_000, 1000, 50_000)
