"""Requests that look for a position on the disk: what may happen before it is found, and how many at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.protocols.native.session import opening
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World


@pytest.fixture
def client(world: World) -> Client:
    client = Client(world)
    client.request("create_topic", topic="t")
    return client


def together(client: Client, *asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Send requests in one read; their answers, in the order of the requests."""
    frames = [client.json_frame(0x05, one, 1000 + i) for i, one in enumerate(asked)]
    client.send(b"".join(frames))
    answers: dict[int, dict[str, Any]] = {}

    def all_there() -> bool:
        for kind, id, payload in client.take():
            assert kind in (0x06, 0x0F)
            answers[id] = json.loads(payload)
        return len(answers) == len(asked)

    client.world.wait(all_there)
    return [answers[id] for id in sorted(answers)]


READ = {"do": "read", "topic": "t", "start": "-1h"}
SUBSCRIBE = {"do": "subscribe", "topic": "t", "subscription": "s", "durable": False, "start": "-1h"}


@pytest.mark.parametrize("second", [READ, SUBSCRIBE])
@pytest.mark.parametrize("first", [READ, SUBSCRIBE])
def test_a_handle_is_one_consumers_though_both_were_asked_for_before_either_was_there(
    world: World, client: Client, first: dict[str, Any], second: dict[str, Any]
) -> None:
    answers = together(client, {**first, "handle": 7}, {**second, "handle": 7})
    assert sorted(answer.get("code", "") for answer in answers) == ["", "handle_in_use"]
    client.request("open_producer", handle=1, topic="t")
    client.produce(1, b"x")
    client.send(wire.credit(7, 10, 1000))
    assert client.bodies() == [b"x"]
    client.request("close", handle=7)
    queue = client.session.vhost.queues["t"].queue
    assert queue.consumer_count == 0, "nobody is left behind who has no handle"
    assert client.request("describe", topic="t")["subscriptions"] == {}


def test_no_more_positions_are_looked_for_at_once_than_may_be(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_SEARCHES_MAX", 3)
    answers = together(client, *({**READ, "handle": handle} for handle in range(2, 10)))
    assert [answer.get("code") for answer in answers] == [None] * 3 + ["busy"] * 5
    assert all(answer["retryable"] for answer in answers if "code" in answer)
    assert client.session.opening._searches == 0
    again = together(client, *({**READ, "handle": handle} for handle in range(20, 23)))
    assert [answer.get("code") for answer in again] == [None] * 3
