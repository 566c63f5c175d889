"""More time before the acknowledgement timeout."""

from __future__ import annotations

import json

from tests.reference import native_frames as wire
from tests.support.native_golden import FRAMES
from tests.support.native_session import Client, World

CREDIT = wire.credit(2, 1000, 1 << 20)


def consumer(world: World) -> Client:
    client = Client(world)
    client.request("open_producer", handle=1, topic="t", create=True)
    client.request(
        "subscribe", handle=2, topic="t", subscription="s", start="earliest", ack_timeout_ms=10_000
    )
    client.send(CREDIT)
    return client


def test_extended_deliveries_stay_and_the_others_come_again(world: World) -> None:
    client = consumer(world)
    client.produce(1, b"a", b"b", b"c")
    assert client.bodies() == [b"a", b"b", b"c"]
    world.pass_time(6)
    assert client.request("extend", handle=2, ranges=[[1, 1], [3, 3]]) == {"extended": 2}
    world.pass_time(5)
    assert client.bodies() == [b"b"], "the one between two that were extended"
    world.pass_time(5.5)
    assert client.bodies() == [b"a", b"c"]
    assert client.request("extend", handle=2, ranges=[[1, 3]]) == {"extended": 0}, "they were given back"


def test_it_can_be_done_again_and_again(world: World) -> None:
    client = consumer(world)
    client.produce(1, b"a")
    assert client.bodies() == [b"a"]
    for _ in range(10):
        world.pass_time(9)
        assert client.request("extend", handle=2, ranges=[[1, 1]]) == {"extended": 1}
    client.send(wire.ack(2, [(1, 1)]))
    client.produce(1, b"b")
    assert client.bodies() == [b"b"]
    world.pass_time(11)
    assert client.bodies() == [b"b"], "the timeout is what it was"


def test_mistakes_are_named(world: World) -> None:
    client = consumer(world)
    assert client.request("extend", handle=9, ranges=[])["code"] == "unknown_handle"
    for ranges in (None, [1], [[1]], [[2, 1]], [[-1, 1]], [["a", "b"]], [[1, 2]] * 1001, [[1, 2**64]]):
        told = client.request("extend", handle=2, ranges=ranges)
        assert told["code"] == "bad_field", ranges


def test_the_golden_request(world: World) -> None:
    client = consumer(world)
    client.produce(1, *[b"x"] * 9)
    assert len(client.bodies()) == 9
    client.send(FRAMES["extend"])
    ((_, id, payload),) = [one for one in client.take() if one[1] == 20]
    assert (id, json.loads(payload)) == (20, {"extended": 3})
