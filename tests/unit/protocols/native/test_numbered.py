"""Producers that number their messages themselves: an outbox may send anything again."""

from __future__ import annotations

from typing import Any

from penstock.protocols.properties.properties import encode_properties
from tests.reference import native_frames as wire
from tests.support.native_golden import FRAMES
from tests.support.native_session import PLAIN, Client, World


def producer(world: World, **more: Any) -> Client:
    client = Client(world)
    told = client.request(
        "open_producer", handle=6, topic="t", create=True, name="box", numbered=True, **more
    )
    assert (told["handle"], told["epoch"]) == (6, 0)
    return client


def send(client: Client, number: int, *bodies: bytes) -> tuple[int, bool]:
    """(type of the answer, whether it had come before)."""
    client.send(wire.produce(6, number, 2, [(PLAIN, body) for body in bodies]))
    client.world.wait(lambda: any(one[0] in (0x12, 0x13) for one in client.frames))
    ((kind, _, payload),) = client.take()
    return kind, payload[-1:] == b"\1"


def kept(world: World) -> list[bytes]:
    reader = Client(world)
    reader.request("read", handle=2, topic="t", start="earliest")
    reader.send(wire.credit(2, 1000, 1 << 20))
    return reader.bodies()


def test_a_number_is_kept_once_over_restarts_of_either_side(world: World) -> None:
    client = producer(world)
    assert [send(client, number, b"%d" % number) for number in (3, 4, 9)] == [(0x12, False)] * 3
    assert send(client, 4, b"4") == (0x12, True)
    client.lose()
    again = producer(world)
    assert [send(again, number, b"%d" % number) for number in (4, 9, 10)] == [
        (0x12, True),
        (0x12, True),
        (0x12, False),
    ]
    world.restart(clean=False)
    assert [send(one := producer(world), number, b"%d" % number) for number in (10,)] == [(0x12, True)]
    assert send(one, 12, b"12") == (0x12, False)
    assert kept(world) == [b"3", b"4", b"9", b"10", b"12"]


def test_nothing_passes_what_was_refused(world: World) -> None:
    client = producer(world)
    reserved = wire.produce(6, 1, 2, [(encode_properties({"headers": {"CC": "x"}}), b"no")])
    client.send(reserved + wire.produce(6, 2, 2, [(PLAIN, b"2")]))
    world.settle()
    assert [kind for kind, _, _ in client.take()] == [0x13, 0x13]
    assert send(client, 1, b"1") == (0x12, False)
    assert send(client, 2, b"2") == (0x12, False)
    assert kept(world) == [b"1", b"2"]


def test_a_batch_of_several_has_one_number(world: World) -> None:
    client = producer(world)
    assert send(client, 5, b"a", b"b") == (0x12, False)
    assert send(client, 5, b"a", b"b") == (0x12, True)
    assert send(client, 6, b"c") == (0x12, False)
    world.restart(clean=False)
    again = producer(world)
    assert send(again, 5, b"a", b"b") == (0x12, True)
    assert send(again, 8, b"d", b"e") == (0x12, False)
    assert kept(world) == [b"a", b"b", b"c", b"d", b"e"]


def test_numbers_have_an_end(world: World) -> None:
    client = producer(world)
    assert send(client, 2**63, b"a")[0] == 0x13
    assert kept(world) == []


def test_it_has_a_name_and_is_not_the_one_with_epochs(world: World) -> None:
    client = Client(world)
    asked = {"topic": "orders", "create": True, "numbered": True}
    assert client.request("open_producer", handle=1, **asked)["code"] == "bad_field"
    client.send(FRAMES["open_numbered"])
    assert [(kind, id) for kind, id, _ in client.take()] == [(0x06, 24)]
    assert client.request("open_producer", handle=1, topic="orders", name="outbox") == {
        "handle": 1,
        "epoch": 1,
    }


def open_again(client: Client, **more: Any) -> dict[str, Any]:
    return client.request(
        "open_producer", handle=6, topic="t", create=True, name="box", numbered=True, **more
    )


def test_the_last_number_is_told_when_it_is_opened(world: World) -> None:
    assert open_again(Client(world))["number"] is None
    client = producer(world)
    for number in (7, 12):
        send(client, number, b"x")
    assert open_again(Client(world))["number"] == 12
    world.restart(clean=False)
    assert open_again(Client(world))["number"] == 12


def test_an_exclusive_one_fences_off_those_before_it(world: World) -> None:
    older, newer, shared = producer(world, exclusive=True), Client(world), producer(world)
    assert send(older, 1, b"1") == (0x12, False)
    assert open_again(newer, exclusive=True)["number"] == 1
    assert send(older, 2, b"from before")[0] == 0x13
    assert send(newer, 3, b"3") == (0x12, False)
    newer.lose()
    assert send(older, 4, b"from before")[0] == 0x13
    assert send(shared, 5, b"5") == (0x12, False)
    assert kept(world) == [b"1", b"3", b"5"]


def test_only_a_numbered_one_may_be_exclusive(world: World) -> None:
    told = Client(world).request("open_producer", handle=6, topic="t", create=True, name="p", exclusive=True)
    assert told["code"] == "bad_field"
