"""Consumers whose beginning lies on the disk: nobody else waits, and what is sent to them keeps its order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.feeds._feed import Feed
from tests.reference import native_frames as wire
from tests.support.logs import held_readers, settle
from tests.support.native_session import Client, World

MESSAGES = 400
BODY = b"x" * 2000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, segment_bytes=1 << 18)
    yield world
    world.close()


@pytest.fixture
def middle(world: World, monkeypatch: pytest.MonkeyPatch) -> int:
    """Stream t and queue q by turns, whose older entries are on the disk only: a position in the middle."""
    client = Client(world)
    client.request("create_topic", topic="t")
    client.request("declare_queue", queue="q")
    keys = {"topic": "t"}, {"exchange": "", "routing_key": "q"}
    for handle, key in enumerate(keys):
        client.request("open_producer", handle=handle, **key)
    for i in range(MESSAGES):
        client.produce(i % 2, b"%d" % i + BODY, sequence=i // 2)
    settle(world.log)
    queues = world.broker.vhost("/").queues
    feeds: list[Feed] = [queues[name].queue.cursor.feeds[0] for name in "q"]
    feeds.append(queues["t"].queue.feed)  # type: ignore[attr-defined]
    for segment in world.log._segments.live[:-1]:
        assert segment.indexed
        for feed in feeds:
            feed.spill(segment.base_lsn)

    def on_the_loop(feed: Feed, base: int) -> bytes:
        raise AssertionError(f"the loop reads the entries of feed {feed.id} from the disk")

    monkeypatch.setattr(world.log._feeds, "load_chunk", on_the_loop)
    live = world.log._segments.live
    position = (live[1].base_lsn + live[1].next_lsn) // 2
    assert all(feed.missing(position) is not None for feed in feeds), "no entry is on the disk only"
    return position


def ask(client: Client, id: int, do: str, **fields: Any) -> bytes:
    return client.json_frame(0x05, {"do": do, **fields}, id)


def answers(client: Client, *ids: int) -> list[dict[str, Any]]:
    """Of these requests, in the order in which they came."""
    client.world.wait(lambda: len([id for kind, id, _ in client.frames if kind in (0x06, 0x0F)]) >= len(ids))
    found = [(id, json.loads(payload)) for kind, id, payload in client.frames if kind in (0x06, 0x0F)]
    client.frames = [frame for frame in client.frames if frame[0] not in (0x06, 0x0F)]
    assert [id for id, _ in found] == list(ids)
    return [answer for _, answer in found]


def bodies(client: Client, count: int) -> list[int]:
    got: list[bytes] = []

    def all_there() -> bool:
        got.extend(client.bodies())
        return len(got) >= count

    client.world.wait(all_there)
    return [int(body[: -len(BODY)]) for body in got]


def check_served(world: World) -> None:
    """Somebody else publishes and gets the confirm, and reads what comes."""
    other = Client(world)
    other.request("create_topic", topic="v")
    other.request("open_producer", handle=1, topic="v")
    assert "position" in other.request("read", handle=2, topic="v", start="latest")
    other.send(wire.credit(2, 10, 1 << 20))
    other.produce(1, b"meanwhile")
    assert other.bodies() == [b"meanwhile"]
    assert any(kind == 0x12 for kind, _, _ in other.take())
    other.lose()


OPENED = [
    ("read", {"topic": "t"}),
    ("read", {"queue": "q"}),
    ("subscribe", {"topic": "t", "subscription": "s", "durable": False}),
]


@pytest.mark.parametrize(("do", "what"), OPENED)
@pytest.mark.parametrize("by_time", [False, True])
def test_one_that_begins_on_the_disk_holds_nobody_and_gets_its_credit(
    world: World, middle: int, do: str, what: dict[str, Any], by_time: bool
) -> None:
    client = Client(world)
    start = int(world.clock.now * 1000) - 60_000 if by_time else f"pos:{middle}"
    with held_readers(world.log):
        client.send(ask(client, 1, do, handle=5, start=start, **what) + wire.credit(5, 1000, 1 << 30))
        check_served(world)
        assert client.take() == []
    (answer,) = answers(client, 1)
    assert answer["handle"] == 5
    first = 0 if by_time else middle
    records = [i for i in range(MESSAGES) if i % 2 == ("queue" in what)]
    got = bodies(client, len(records) // 2)
    assert got == records[-len(got) :]
    if by_time:
        assert len(got) == len(records)
    else:
        assert answer.get("position", first) == first


@pytest.mark.parametrize(("do", "what"), OPENED)
def test_requests_behind_an_open_are_answered_after_it(
    world: World, middle: int, do: str, what: dict[str, Any]
) -> None:
    """A close, above all: it may not find that there is nothing to close."""
    client = Client(world)
    with held_readers(world.log):
        client.send(
            ask(client, 1, do, handle=5, start=f"pos:{middle}", **what)
            + ask(client, 2, "topics")
            + ask(client, 3, "close", handle=5)
            + ask(client, 4, "topics")
        )
        answers(client, 2)
    told = answers(client, 1, 3, 4)
    assert told[:2] == [{"handle": 5, **({"position": middle} if do == "read" else {})}, {}]
    assert client.session.codec.handles() == 0
    check_nothing_left(world)


def check_nothing_left(world: World) -> None:
    queues = world.broker.vhost("/").queues
    assert [queues[name].queue.consumer_count for name in ("t", "q")] == [0, 0]
    assert Client(world).request("describe", topic="t")["subscriptions"] == {}


@pytest.mark.parametrize(("do", "what"), OPENED)
def test_a_client_that_goes_meanwhile_leaves_nothing_behind(
    world: World, middle: int, do: str, what: dict[str, Any]
) -> None:
    client = Client(world)
    with held_readers(world.log):
        frames = ask(client, 1, do, handle=5, start=f"pos:{middle}", **what) + wire.credit(5, 1000, 1 << 30)
        client.send(frames)
        client.lose()
    world.wait(lambda: client.session.opening._searches == 0)
    check_nothing_left(world)
    assert client.out.take() == b""


def test_a_subscription_that_is_sought_on_the_disk_holds_nobody(world: World, middle: int) -> None:
    client = Client(world)
    client.request("subscribe", handle=5, topic="t", subscription="s", start="latest")
    client.send(wire.credit(5, 1000, 1 << 30))
    with held_readers(world.log):
        client.send(ask(client, 1, "seek", topic="t", subscription="s", to=f"pos:{middle}"))
        check_served(world)
        assert client.take() == []
    assert answers(client, 1) == [{"position": middle}]
    got = bodies(client, MESSAGES // 4)
    assert got == list(range(got[0], MESSAGES, 2))


def test_a_refusal_lets_what_waited_for_it_go_on(
    world: World, middle: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in a reader thread is in the log lines, and its client is told."""

    def broken(time_ms: int) -> int:
        raise RuntimeError("a fault of this test")

    monkeypatch.setattr(world.log.reader, "position_for_time", broken)
    client = Client(world)
    client.send(ask(client, 1, "read", handle=5, topic="t", start=0) + ask(client, 2, "close", handle=5))
    refused, closed = answers(client, 1, 2)
    assert (refused["code"], refused["retryable"], closed) == ("log_failed", True, {})
    assert "a fault of this test" in caplog.text
    assert client.session.codec.handles() == 0
