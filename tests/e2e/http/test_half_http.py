"""Half messages by HTTP: prepared, decided, and asked about at a URL, over a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.testing import Gateway
from tests.support.receiver import Got, Receiver, Reply

SETTINGS = {"webhooks.allow_networks": "127.0.0.0/8"}
SOON = {"check_after_ms": 100, "check_each_ms": 100}
MESSAGE = {"value": {"order": 7}, "message_id": "m"}
WAIT_S = 60.0


@contextmanager
def opened(gateway: Gateway) -> Iterator[httpx.Client]:
    base = f"{gateway.http_url}/v1/vhosts/%2F"
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=WAIT_S) as client:
        assert client.put("/streams/orders", json={}).status_code in (200, 201)
        yield client


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data", settings=SETTINGS) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with opened(gateway) as client:
        yield client


def prepare(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/half", json={"queue": "orders", "message": MESSAGE, **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["name"])


def published(client: httpx.Client, stream: str = "orders") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/streams/{stream}/messages").json()["messages"]
    return found


def wait_for(client: httpx.Client, count: int, stream: str = "orders") -> list[dict[str, Any]]:
    ends = time.monotonic() + WAIT_S
    while len(found := published(client, stream)) < count:
        assert time.monotonic() < ends, f"{len(found)} of {count} messages"
        time.sleep(0.02)
    return found


def test_it_is_published_when_it_is_committed(client: httpx.Client) -> None:
    name = prepare(client)
    assert published(client) == []
    answer = client.post(f"/half/{name}/commit")
    assert answer.status_code == 200 and answer.json()["id"].startswith("0:")
    (message,) = published(client)
    assert (json.loads(message["value"]) if isinstance(message["value"], str) else message["value"]) == {
        "order": 7
    }
    again = client.post(f"/half/{name}/commit")
    assert again.status_code == 404 and "committed, rolled back or given up" in again.text


def test_it_is_forgotten_when_it_is_rolled_back(client: httpx.Client) -> None:
    name = prepare(client, name="mine")
    assert name == "mine" == prepare(client, name="mine")
    assert client.post("/half/mine/rollback").status_code == 200
    assert client.post("/half/mine/commit").status_code == 404
    assert published(client) == []


def test_a_url_is_asked_until_somebody_knows_also_after_a_restart(tmp_path: Path) -> None:
    """The producer dies between its local commit and its answer; the URL knows of it the third time."""
    answers = iter([Reply(503), Reply(200, body=b'{"commit": null}'), Reply(200, body=b'{"commit": true}')])
    asked: list[dict[str, Any]] = []

    def reply(got: Got) -> Reply:
        asked.append(json.loads(got.body))
        return next(answers, Reply(200, body=b'{"commit": true}'))

    with Receiver(reply) as receiver:
        with Gateway(tmp_path / "data", settings=SETTINGS) as gateway, opened(gateway) as client:
            prepare(client, name="order-7", ask=f"{receiver.url}/check", **SOON)
        with Gateway(tmp_path / "data", settings=SETTINGS) as gateway, opened(gateway) as client:
            wait_for(client, 1)
    assert len(asked) >= 3
    assert {name: asked[0][name] for name in ("half", "vhost", "exchange", "routing_key", "message_id")} == {
        "half": "order-7",
        "vhost": "/",
        "exchange": "",
        "routing_key": "orders",
        "message_id": "m",
    }
    assert json.loads(asked[0]["value"]) == {"order": 7}


def test_a_url_may_say_that_it_did_not_happen(client: httpx.Client) -> None:
    with Receiver(lambda got: Reply(200, body=b'{"commit": false}')) as receiver:
        prepare(client, name="a", ask=receiver.url, **SOON)
        ends = time.monotonic() + WAIT_S
        while (shown := client.get("/half/a")).status_code != 404:
            assert time.monotonic() < ends, shown.text
            time.sleep(0.02)
        assert receiver.got
    assert published(client) == []


def test_a_half_message_without_an_answer_is_given_up(client: httpx.Client) -> None:
    assert client.put("/streams/dead", json={}).status_code == 201
    with Receiver(lambda got: Reply(204)) as receiver:
        prepare(client, ask=receiver.url, max_checks=2, dead_letter="dead", **SOON)
        wait_for(client, 1, "dead")
        assert [json.loads(got.body)["checks"] for got in receiver.got] == [1, 2]
    assert published(client) == []


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"ask": "http://10.0.0.1/"}, 400, "allow_networks"),
        ({"ask": "ftp://127.0.0.1/"}, 400, "https"),
        ({"max_checks": 0}, 400, "from 1 to 1000"),
        ({"name": ""}, 400, "1 to 255"),
        ({"colour": "red"}, 400, "no such field"),
        ({"exchange": "amq.direct"}, 400, "one of exchange, queue and stream"),
        ({"queue": "nowhere"}, 404, "nowhere"),
        ({"message": {"value": "a", "delay_ms": 1000}}, 400, "no delay"),
        ({"message": {"value": "a", "headers": {"x-penstock-half": "a"}}}, 400, "POST half"),
    ],
)
def test_invalid_half_messages_are_refused(
    client: httpx.Client, fields: dict[str, Any], status: int, says: str
) -> None:
    answer = client.post("/half", json={"queue": "orders", "message": MESSAGE, **fields})
    assert answer.status_code == status and says in answer.text


def test_a_header_of_amqp_publishers_is_not_passed_over(client: httpx.Client) -> None:
    message = {"value": "a", "headers": {"x-penstock-half": "a", "x-penstock-check-queue": "q"}}
    answer = client.post("/queues/orders/messages", json={"messages": [message]})
    assert answer.status_code == 400 and "POST half" in answer.text
