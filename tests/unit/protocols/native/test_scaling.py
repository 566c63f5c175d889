"""The cost of pulls, deliveries and consumers of native clients is proportional to their number."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable

import pytest

from penstock.protocols.native.session import pulling
from penstock.subscriptions.queue import empty_check
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World
from tests.support.scaling import assert_linear

PULLED = 0x25


def subscriber(world: World, name: str, handles: int = 1, **more: object) -> Client:
    client = Client(world)
    asked = {"topic": "t", "subscription": name, "start": "latest", "create": True, **more}
    for handle in range(1, handles + 1):
        assert client.request("subscribe", handle=handle, **asked) == {"handle": handle}
    return client


def pulled(client: Client) -> list[int]:
    """How many messages each pull got that ended."""
    return [struct.unpack(">II", payload)[1] for kind, _, payload in client.take() if kind == PULLED]


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "_PULLS_MAX", 1 << 30)
    monkeypatch.setattr(pulling, "_PULLS_OF_ALL_MAX", 1 << 30)


def waiting(world: World, n: int, handles: int = 1, *, reverse: bool = False, name: str = "s") -> Client:
    """A client with `n` pulls that wait, up to a minute; `reverse`: the last one ends first."""
    client = subscriber(world, name, handles)
    pulls = [wire.pull(1 + i % handles, i, 1, 1, 60_000 - i if reverse else 60_000) for i in range(n)]
    client.send(b"".join(pulls))
    assert client.session.codec.outgoing.pulls == n
    return client


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize("end", ["time", "reverse", "deleted", "closed", "lost", "message", "messages"])
def test_pulls_that_end_at_once_cost_the_same_each(world: World, end: str) -> None:
    producer = Client(world)
    producer.request("open_producer", handle=1, topic="t", create=True)
    names = (f"s{i}" for i in itertools.count())

    def prepare(n: int) -> Callable[[], object]:
        for other in world.clients[1:]:
            other.lose()
        name = next(names)
        client = waiting(world, n, reverse=end == "reverse", name=name)

        def work() -> None:
            if end in ("time", "reverse"):
                world.pass_time(60)
                assert pulled(client) == [0] * n
            elif end == "deleted":
                producer.request("delete_subscription", topic="t", subscription=name)
                assert pulled(client) == [0] * n
            elif end == "closed":
                client.request("close", handle=1)
                assert pulled(client) == [0] * n
            elif end == "lost":
                client.lose()
            elif end == "message":
                producer.produce(1, b"")
                world.pass_time(60)
                assert sum(pulled(client)) == 1
            else:
                producer.produce(1, *[b""] * n)
                assert pulled(client) == [1] * n

        return work

    assert_linear(prepare, 1000)


@pytest.mark.usefixtures("unlimited")
def test_pulls_of_many_consumers_that_end_at_once_cost_the_same_each(world: World) -> None:
    def prepare(n: int) -> Callable[[], object]:
        for other in list(world.clients):
            other.lose()
        client = waiting(world, n, handles=n)

        def work() -> None:
            world.pass_time(60)
            assert pulled(client) == [0] * n

        return work

    assert_linear(prepare, 200)


@pytest.mark.usefixtures("unlimited")
def test_pulls_that_end_at_once_leave_turns_to_others(world: World) -> None:
    client = waiting(world, 5000)
    outgoing, most = client.session.codec.outgoing, 0
    world.loop._now += 60
    while outgoing.pulls:
        before = outgoing.pulls
        assert world.loop.turn(), "nothing is due, and some wait"
        most = max(most, before - outgoing.pulls)
    assert most <= empty_check.SLICE < 5000 / 5
    assert pulled(client) == [0] * 5000


@pytest.mark.parametrize("end", ["one by one", "cumulative", "nacks", "timeouts", "seek", "closed", "lost"])
def test_deliveries_end_at_the_same_cost_each(world: World, end: str) -> None:
    producer = Client(world)
    producer.request("open_producer", handle=1, topic="t", create=True)
    names = (f"s{i}" for i in itertools.count())

    def prepare(n: int) -> Callable[[], object]:
        for other in world.clients[1:]:
            other.lose()
        name = next(names)
        kind = "exclusive" if end == "cumulative" else "shared"
        more = {"ack_timeout_ms": 10_000} if end == "timeouts" else {}
        client = subscriber(world, name, kind=kind, **more)
        session = client.session
        client.send(wire.credit(1, n, 1 << 30))
        producer.produce(1, *[b""] * n)
        taker = session.codec.consumer(1)
        assert taker is not None and taker.unacked == n
        tags = list(range(1, n + 1))
        random.Random(1).shuffle(tags)
        queue = taker.queue

        def work() -> None:
            if end == "one by one":
                client.send(wire.ack(1, [(tag, tag) for tag in tags]))
                assert queue.cursor.outstanding == queue.ready_count == 0
            elif end == "cumulative":
                client.send(wire.ack(1, [(0, n)], cumulative=True))
                assert queue.cursor.outstanding == queue.ready_count == 0
            elif end == "nacks":
                client.send(wire.nack(1, [(tag, tag) for tag in tags], -1))
                assert queue.ready_count == 0
                world.pass_time(1)
                assert queue.ready_count == n
            elif end == "timeouts":
                world.pass_time(11)
                assert queue.ready_count == n
            elif end == "seek":
                producer.request("seek", topic="t", subscription=name, to="latest")
                assert queue.cursor.outstanding == queue.ready_count == 0
            elif end == "closed":
                client.request("close", handle=1)
                assert queue.ready_count == n
            else:
                client.lose()
                assert queue.ready_count == n

        return work

    assert_linear(prepare, 1500)
