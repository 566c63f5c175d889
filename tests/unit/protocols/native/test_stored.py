"""Batches delivered as they are stored: when they are, that they say the same, and how they are settled."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._inbox import Inbox
from penstock.protocols.native.codec._records import Record
from penstock.protocols.native.options import NativeOptions
from penstock.router.names import ENC_MQTT5, join_key_block
from penstock.sdk.message import properties_block
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World

BODIES = [b"%d %s" % (i, b"x" * (i % 7)) for i in range(100)]
CREDIT = wire.credit(2, 1000, 1 << 20)


def stored(world: World) -> Client:
    """A client that takes stored batches, with a producer of the topic t."""
    client = Client(world, capabilities=(kinds.STORED,))
    client.request("open_producer", handle=1, topic="t", create=True)
    return client


def reads(client: Client, credit: bytes = CREDIT) -> list[tuple[int, list[bytes]]]:
    """The deliveries of a reader from the beginning on: type of frame, bodies."""
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(credit)
    return deliveries(client)


def deliveries(client: Client) -> list[tuple[int, list[bytes]]]:
    found = []
    for kind, _, payload in client.take():
        delivery = wire.delivery(kind, payload)
        if delivery is not None:
            found.append((kind, [message["body"] for message in delivery[2]]))
    return found


def taken(payload: bytes) -> list[Record]:
    """The records that a client reads from a DELIVER_STORED frame."""
    inbox = Inbox(Record, None, 100, 1 << 20)
    inbox.deliver_stored(payload)
    return inbox.take(100)


def test_a_batch_goes_out_as_it_is_stored(world: World) -> None:
    client = stored(world)
    client.produce(1, *BODIES)
    assert reads(client) == [(kinds.DELIVER_STORED, BODIES)]


def test_a_delivery_says_the_same_in_both_forms(world: World) -> None:
    client = stored(world)
    items = [
        (properties_block(f"k{i % 3}", {"n": i}, None, i % 2 == 0), body) for i, body in enumerate(BODIES)
    ]
    client.send(wire.produce(1, 0, 2, items))
    other = Client(world)
    for one in (client, other):
        one.request("subscribe", handle=2, topic="t", subscription=f"s{id(one)}", start="earliest")
        one.send(CREDIT)
    mine, theirs = client.take(), other.take()
    assert [kind for kind, _, _ in mine if kind != kinds.CONFIRM] == [kinds.DELIVER_STORED]
    (payload,) = (payload for kind, _, payload in mine if kind == kinds.DELIVER_STORED)
    assert [kind for kind, _, _ in theirs] == [kinds.DELIVER]
    assert wire.deliver_stored(payload) == wire.deliver(theirs[0][2])
    for record, said in zip(taken(payload), wire.deliver(theirs[0][2])[2], strict=True):
        assert (record.position, record.timestamp_ms) == (said["position"], said["time_ms"])
        assert (record.key_block, record.block, record.body) == (said["key"], said["props"], said["body"])


def test_credit_counts_as_in_any_delivery(world: World) -> None:
    client = stored(world)
    client.produce(1, *BODIES)
    other = Client(world)
    for one in (client, other):
        one.request("read", handle=2, topic="t", start="earliest")
        one.send(CREDIT)
    first, second = (one.session.codec.consumer(2) for one in (client, other))
    assert first is not None and second is not None
    assert (first.messages, first.size) == (second.messages, second.size)


def test_a_batch_larger_than_the_credit_is_sent_message_by_message(world: World) -> None:
    client = stored(world)
    client.produce(1, *BODIES)
    assert reads(client, wire.credit(2, 30, 1 << 20)) == [(kinds.DELIVER, BODIES[:30])]
    client.produce(1, *BODIES)
    client.send(CREDIT)
    assert deliveries(client) == [(kinds.DELIVER, BODIES[30:]), (kinds.DELIVER_STORED, BODIES)]


def test_a_batch_that_is_small_beside_the_credit_may_overdraw_it(world: World) -> None:
    client = stored(world)
    client.produce(1, *BODIES)
    client.produce(1, *BODIES)
    found = reads(client, wire.credit(2, 110, 1 << 20))
    assert found == [(kinds.DELIVER_STORED, BODIES), (kinds.DELIVER, BODIES[:10])]  # 90 were too many
    client.send(wire.credit(2, 490, 1 << 20))
    assert deliveries(client) == [(kinds.DELIVER, BODIES[10:])]
    for _ in range(5):
        client.produce(1, *BODIES)
    assert deliveries(client) == [(kinds.DELIVER_STORED, BODIES)] * 4
    client.send(wire.credit(2, 50, 1 << 20))
    assert deliveries(client) == [(kinds.DELIVER_STORED, BODIES)]  # the credit was 490 once
    consumer = client.session.codec.consumer(2)
    assert consumer is not None
    assert consumer.messages == -50


def test_a_batch_that_is_large_beside_the_credit_in_bytes_goes_message_by_message(world: World) -> None:
    client = stored(world)
    for _ in range(5):
        client.produce(1, *BODIES)
    sizes = [28 + len(join_key_block("", "t")) + len(PLAIN) + len(body) for body in BODIES]
    batch = sum(sizes)
    assert reads(client, wire.credit(2, 10_000, batch - batch // 5 - 10))[0][0] == kinds.DELIVER
    client.request("close", handle=2)
    found = reads(client, wire.credit(2, 10_000, batch + sizes[0] + 1))
    assert found == [(kinds.DELIVER_STORED, BODIES), (kinds.DELIVER, BODIES[:2])]
    client.request("close", handle=2)
    found = reads(client, wire.credit(2, 10_000, 3 * batch + batch // 2))
    assert found == [(kinds.DELIVER_STORED, BODIES)] * 4
    consumer = client.session.codec.consumer(2)
    assert consumer is not None
    assert -batch // 2 - 1 <= consumer.size <= -batch // 2 + 1


@pytest.mark.parametrize("cold", [False, True])
def test_credit_is_overdrawn_by_a_quarter_at_most(tmp_path: Path, cold: bool) -> None:
    """Batches and grants of many sizes; what came is counted as the document says."""
    draw = random.Random(7)
    world = World(tmp_path / "drawn", segment_bytes=1 << 18)
    client = stored(world)
    sent = []
    for number in range(60):
        size = draw.choice((1, 5, 40))
        bodies = [b"%d" % number * draw.randint(1, size) for _ in range(draw.randint(1, 200))]
        client.produce(1, *bodies)
        sent += bodies
    if cold:
        world.restart()
        client = stored(world)
    overhead = 28 + len(join_key_block("", "t")) + len(PLAIN)
    frames: set[int] = set()
    for window, window_bytes in ((150, 1 << 20), (100_000, 5_000), (100_000, 20_000), (600, 60_000)):
        client.request("read", handle=2, topic="t", start="earliest")
        consumer = client.session.codec.consumer(2)
        assert consumer is not None
        came: list[bytes] = []
        left, left_bytes = 0, 0
        grant = window, window_bytes
        while True:
            client.send(wire.credit(2, *grant))
            left, left_bytes = left + grant[0], left_bytes + grant[1]
            world.wait(lambda one=consumer: min(one.messages, one.size) <= 0 or one.delivered == len(sent))
            for kind, bodies in deliveries(client):
                frames.add(kind)
                came += bodies
                left -= len(bodies)
                left_bytes -= sum(overhead + len(body) for body in bodies)
            assert (consumer.messages, consumer.size) == (left, left_bytes)
            assert left >= -(window // 4)
            assert left_bytes >= -(window_bytes // 4)
            if len(came) == len(sent):
                break
            grant = draw.randint(1, window - left), draw.randint(1, window_bytes - left_bytes)
        assert came == sent
        client.request("close", handle=2)
    assert frames == {kinds.DELIVER, kinds.DELIVER_STORED}
    world.close()


def test_a_batch_of_two_topics_is_taken_apart(world: World) -> None:
    client = stored(world)
    client.request("open_producer", handle=3, topic="other", create=True)
    frames = [wire.produce(handle, 0, 2, [(PLAIN, body) for body in BODIES]) for handle in (1, 3)]
    client.send(b"".join(frames))  # one read, so one batch
    assert reads(client) == [(kinds.DELIVER, BODIES)]


def test_batches_that_need_a_check_are_read(world: World) -> None:
    client = stored(world)
    items = [(properties_block(None, None, 500 if i == 50 else None, True), b) for i, b in enumerate(BODIES)]
    client.send(wire.produce(1, 0, 2, items))
    world.pass_time(1)
    client.request("subscribe", handle=3, topic="t", subscription="s", start="earliest")
    client.send(wire.credit(3, 1000, 1 << 20))
    assert deliveries(client) == [(kinds.DELIVER, BODIES[:50] + BODIES[51:])]
    # A reader gets what the stream keeps, whatever its time.
    assert reads(client) == [(kinds.DELIVER_STORED, BODIES)]


def test_properties_of_another_encoding_are_translated(world: World) -> None:
    client = stored(world)
    target = client.session.codec.route(join_key_block("", "t")).target
    for body in BODIES:
        world.log.appender.append_record(client.session.vhost.lp, target, b"a/b", b"", body, enc=ENC_MQTT5)
    assert reads(client) == [(kinds.DELIVER, BODIES)]


def test_acknowledged_by_ranges(world: World) -> None:
    client = stored(world)
    client.produce(1, *BODIES)
    subscribed = {"topic": "t", "subscription": "s", "kind": "exclusive"}
    client.request("subscribe", handle=2, start="earliest", **subscribed)
    client.send(CREDIT)
    assert deliveries(client) == [(kinds.DELIVER_STORED, BODIES)]
    client.send(wire.ack(2, [(1, 40), (51, 60)]) + wire.nack(2, [(61, 61)]))
    assert [kind for kind, _ in deliveries(client)] == [kinds.DELIVER]  # what was given back
    client.lose()
    again = Client(world, capabilities=(kinds.STORED,))
    again.request("subscribe", handle=2, **subscribed)
    again.send(CREDIT)
    assert again.bodies() == BODIES[40:50] + BODIES[60:]
    again.send(wire.ack(2, [(60, 60)], cumulative=True))
    described = again.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["backlog"], described["unacked"]) == (0, 0)


def test_no_more_is_out_than_allowed(tmp_path: Path) -> None:
    world = World(tmp_path / "data", NativeOptions(max_unacked=150))
    client = stored(world)
    client.produce(1, *BODIES)
    client.produce(1, *BODIES)
    client.request("subscribe", handle=2, topic="t", subscription="s", start="earliest")
    client.send(CREDIT)
    assert deliveries(client) == [(kinds.DELIVER_STORED, BODIES), (kinds.DELIVER, BODIES[:50])]
    client.send(wire.ack(2, [(1, 150)]))
    assert deliveries(client) == [(kinds.DELIVER, BODIES[50:])]
    world.close()


def test_of_what_is_read_from_disk_too(world: World) -> None:
    client = stored(world)
    for _ in range(40):  # some segments of 1 MiB
        client.produce(1, *(b"x" * 1000 for _ in range(100)))
    world.restart()
    client = Client(world, capabilities=(kinds.STORED,))
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(wire.credit(2, 10_000, 1 << 30))
    world.wait(lambda: sum(kind == kinds.DELIVER_STORED for kind, _, _ in client.frames) == 40)
    assert sum(len(bodies) for _, bodies in deliveries(client)) == 4000


def test_a_damaged_batch_is_noticed(world: World) -> None:
    client = stored(world)
    client.produce(1, *BODIES)
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(CREDIT)
    (payload,) = (payload for kind, _, payload in client.take() if kind == kinds.DELIVER_STORED)
    assert [record.body for record in taken(payload)] == BODIES
    end = 24 + 96 + 32 * len(BODIES) + sum(len(body) + 6 for body in BODIES)
    for at in range(8, end):  # the first tag is whatever it says
        broken = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        if 20 <= at < 24:
            continue  # the pull: 0 in version 1
        with pytest.raises(ValueError, match="stored batch"):
            taken(broken)
    for cut in range(len(payload)):
        with pytest.raises(ValueError, match="stored batch"):
            taken(payload[:cut])


def test_a_client_that_does_not_ask_for_it_gets_none(world: World) -> None:
    stored(world).produce(1, *BODIES)
    assert reads(Client(world)) == [(kinds.DELIVER, BODIES)]
    # A client that wants to save network gets the smaller form.
    (delivery,) = [kind for kind, _, _ in _frames_of(Client(world, capabilities=(kinds.STORED, kinds.ZSTD)))]
    assert delivery == kinds.DELIVER_PACKED


def _frames_of(client: Client) -> list[tuple[int, int, bytes]]:
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(CREDIT)
    return client.take()


def test_the_gateway_says_that_it_can(world: World) -> None:
    client = Client(world, login=False)
    client.send(b"PENSTOCK" + client.json_frame(0x01, {"versions": [1]}))
    ((_, _, welcome),) = client.take()
    assert kinds.STORED in json.loads(welcome)["capabilities"]


# Runs out of the page cache


@pytest.fixture
def large(tmp_path: Path) -> Iterator[World]:
    """Segments that are larger than what is read at once."""
    world = World(tmp_path / "data", segment_bytes=3 << 20)
    yield world
    world.close()


def filled(world: World, batches: int = 200) -> list[bytes]:
    """A topic of several segments that is in memory no more: its bodies."""
    client = stored(world)
    bodies = [b"%d %s" % (i, b"x" * 1000) for i in range(32 * batches)]
    for i in range(batches):
        client.produce(1, *bodies[32 * i : 32 * i + 32])
    world.restart()
    return bodies


def everything(
    world: World, count: int, credit: bytes = wire.credit(2, 1 << 30, 1 << 30), **place: str
) -> list[tuple[int, int, list[bytes]]]:
    """The deliveries to a new consumer of that many messages: type of frame, first tag, bodies."""
    client = Client(world, capabilities=(kinds.STORED,))
    client.request(place.pop("do", "read"), handle=2, topic="t", start="earliest", **place)
    client.send(credit)
    found: list[tuple[int, int, list[bytes]]] = []

    def complete() -> bool:
        for kind, _, payload in client.take():
            delivery = wire.delivery(kind, payload)
            if delivery is not None:
                found.append((kind, delivery[0], [message["body"] for message in delivery[2]]))
                client.send(credit)
        return sum(len(bodies) for _, _, bodies in found) >= count

    world.wait(complete)
    return found


def joined(found: list[tuple[int, int, list[bytes]]]) -> list[bytes]:
    """The bodies; their tags must have no gaps."""
    bodies: list[bytes] = []
    for _, first, some in found:
        assert first == len(bodies) + 1
        bodies += some
    return bodies


def test_data_in_the_page_cache_comes_in_runs_of_batches(large: World) -> None:
    bodies = filled(large)
    found = everything(large, len(bodies))
    assert joined(found) == bodies
    assert {kind for kind, _, _ in found} == {kinds.DELIVER_STORED}
    assert large.log.resident.runs > 0
    assert max(len(some) for _, _, some in found) > 32


def test_a_reader_of_a_file_stays_there_though_memory_has_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path / "data", segment_bytes=6 << 20, tail_cache_bytes=4 << 20)
    client = stored(world)
    bodies = [b"%d %s" % (i, b"x" * 1000) for i in range(32 * 250)]
    for i in range(250):
        client.produce(1, *bodies[32 * i : 32 * i + 32])
    closed = next(iter(world.log.segments_from(1)))
    found = everything(world, len(bodies))
    assert joined(found) == bodies
    behind = max(first + len(some) for _, first, some in found if len(some) > 32)  # the last run of batches
    assert world.log.cache.tail_start + 1000 < closed.next_lsn < behind + 64
    # A reader that begins in memory stays there.
    before = world.log.resident.bytes
    client.request("read", handle=3, topic="t", start=f"pos:{world.log.cache.tail_start}")
    client.send(wire.credit(3, 1000, 1 << 20))
    world.wait(lambda: deliveries(client))
    assert world.log.resident.bytes == before
    world.close()


def test_credit_ends_a_run(large: World) -> None:
    bodies = filled(large)
    for credit in (wire.credit(2, 96, 1 << 20), wire.credit(2, 1000, 50_000)):
        found = everything(large, len(bodies), credit)
        assert joined(found) == bodies
        assert max(len(some) for _, _, some in found) <= 96
    assert large.log.resident.runs > 0


def test_a_subscription_holds_runs_until_they_are_settled(large: World) -> None:
    bodies = filled(large)
    whole = {"do": "subscribe", "subscription": "s", "kind": "exclusive"}
    assert joined(everything(large, len(bodies), **whole)) == bodies
    client = large.clients[-1]
    client.send(wire.ack(2, [(1, len(bodies) - 40)]) + wire.nack(2, [(len(bodies) - 1, len(bodies))]))
    assert client.bodies() == bodies[-2:]
    described = client.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["unacked"], described["backlog"]) == (40, 0)


def test_runs_end_where_something_else_lies_between(large: World) -> None:
    client = stored(large)
    client.request("open_producer", handle=3, topic="other", create=True)
    bodies = [b"%d %s" % (i, b"x" * 1000) for i in range(32 * 200)]
    for i in range(200):
        mine = [(PLAIN, body) for body in bodies[32 * i : 32 * i + 32]]
        other = b"" if i % 60 != 50 else wire.produce(3, 0, 2, [(PLAIN, b"no")])
        client.send(wire.produce(1, 0, 2, mine) + other)  # one read, one batch
        if i % 5 == 0:
            client.request("subscribe", handle=4, topic="t", subscription=f"s{i}")  # a change of tables
            client.request("close", handle=4)
    large.restart()
    found = everything(large, len(bodies))
    assert joined(found) == bodies
    assert {kind for kind, _, _ in found} == {kinds.DELIVER, kinds.DELIVER_STORED}
    assert large.log.resident.runs > 0


def test_damage_is_not_handed_on(large: World) -> None:
    bodies = filled(large)
    damaged = bodies[32 * 100 + 7]
    for path in sorted((large.folder / "shard-000" / "wal").glob("*.wal")):
        data = bytearray(path.read_bytes())
        at = data.find(damaged)
        if at >= 0:
            data[at + 500] ^= 1
            path.write_bytes(data)
    rest = bodies[: 32 * 100] + bodies[32 * 101 :]
    assert joined(everything(large, len(rest))) == rest
    assert large.log.resident.runs > 0
    assert len(large.log.damages) == 1


def test_a_segment_that_nobody_reads_is_closed(large: World) -> None:
    bodies = filled(large)
    everything(large, len(bodies))
    client = Client(large)
    client.request("delete_topic", topic="t")

    def opened() -> list[str]:
        links = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        return [str(link) for link in links if str(large.folder) in str(link) and ".wal" in str(link)]

    before = opened()
    for _ in range(2):
        large.log.tend(None)
    large.settle()
    assert len(opened()) < len(before)
    assert not any(large.log.resident.has(segment.number) for segment in large.log.segments_from(1))
