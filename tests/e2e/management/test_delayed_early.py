"""Delayed messages: how many are due by hour, and one that is sent before its time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, open_client, pull, until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such thing")

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("early"), settings=SERVED) as running:
        yield running


def _schedule(http: httpx.Client, queue: str, value: str, hours: int) -> None:
    message = {"value": value, "delay_ms": hours * HOUR_MS}
    assert http.post(f"queues/{queue}/messages", json=message).status_code == 200


def _waiting(http: httpx.Client) -> dict[str, str]:
    """Ids of those that wait, by their places."""
    return {one["id"]: one["routing_key"] for one in http.get("delayed?max=500").json()["messages"]}


def test_counts_by_hour(gateway: Gateway, unique: str) -> None:
    with open_client(gateway) as http:
        assert http.put(f"queues/{unique}", json={}).status_code == 201
        before = {one["at"]: one["messages"] for one in http.get("delayed-hours").json()["hours"]}
        for hours in (20, 20, 30):
            _schedule(http, unique, "x", hours)
        found = http.get("delayed-hours").json()
        assert "cursor" not in found  # all were counted
        after = {one["at"]: one["messages"] for one in found["hours"]}
        more = {at: n - before.get(at, 0) for at, n in after.items() if n != before.get(at, 0)}
        assert all(at % HOUR_MS == 0 for at in more) and sum(more.values()) == 3
        (late,) = (at for at in more if at >= min(more) + 9 * HOUR_MS)
        # An hour is a cursor, too: the list goes on there.
        listed = http.get(f"delayed?cursor={late}-0").json()["messages"]
        assert [one["routing_key"] for one in listed].count(unique) == 1
        for id, queue in _waiting(http).items():
            if queue == unique:
                assert http.delete(f"delayed/{id}").status_code == 204


def test_more_than_are_read_are_counted_by_hour(tmp_path: Path) -> None:
    """Without reading them, in all virtual hosts, of all workers; a cancelled one is not among them."""
    settings = {**SERVED, "server.workers": "2"}
    with Gateway(tmp_path, settings=settings) as mine, closing(Api(mine)) as api:
        assert api.status("PUT", "vhosts/other", {"worker": 1}) == 201
        due = _delay(mine, "/", {20: 3_000, 30: 2_500}) + _delay(mine, "other", {30: 10})
        with open_client(mine) as http:
            assert http.get("delayed-hours").json()["cursor"], "a virtual host has too many to be read"
            (first,) = http.get("delayed?max=1").json()["messages"]
            assert http.delete(f"delayed/{first['id']}").status_code == 204
        found = api.get("delayed-hours")
        assert found["more"] is False
        assert sum(one["messages"] for one in found["hours"]) == due.total() - 1
        near = [one["messages"] for one in found["hours"] if one["at"] < min(due) + 5 * HOUR_MS]
        assert sum(near) == 3_000 - 1
        assert api.status("PUT", "users/ann", {"password": "p", "tags": "management"}) == 201
        with closing(Api(mine, "ann", "p")) as ann:
            assert ann.status("GET", "delayed-hours") == 401


def _delay(gateway: Gateway, vhost: str, counts: dict[int, int]) -> Counter[int]:
    """Publish so many messages with delays of so many hours; how many, by the time when they are due."""
    due: Counter[int] = Counter()
    with pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, vhost)
    ) as connection:
        channel = connection.channel()
        channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
        for hours, count in counts.items():
            properties = pika.BasicProperties(headers={"x-delay": hours * HOUR_MS})
            for _ in range(count):
                channel.basic_publish("later", "", b"x", properties)
            due[int(time.time() * 1000) + (hours - 1) * HOUR_MS] += count
        channel.queue_declare("", exclusive=True)  # all before are taken by then
    return due


def test_one_is_sent_now_and_once(tmp_path: Path, unique: str) -> None:
    """It comes at once, not again at its time, and stays sent over a crash."""
    with Gateway(tmp_path, settings=SERVED) as mine:
        with open_client(mine) as http:
            assert http.put(f"queues/{unique}", json={}).status_code == 201
            _schedule(http, unique, "first", 20)
            _schedule(http, unique, "second", 21)
            first, second = _waiting(http)
            assert http.post(f"delayed/{second}/send").status_code == 204
            assert http.post(f"delayed/{second}/send").status_code == 404
            assert http.delete(f"delayed/{second}").status_code == 404
            assert list(_waiting(http)) == [first]
        mine.kill9()
        mine.start()
        with open_client(mine) as http:
            assert list(_waiting(http)) == [first]
            assert [one["value"] for one in pull(http, unique, max_messages=10)] == ["second"]


def test_a_user_who_may_not_publish_sends_nothing(gateway: Gateway, unique: str) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": ""}) == 201
    rights = {"configure": "", "write": "^nothing$", "read": ".*"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    with open_client(gateway) as http, open_client(gateway, unique) as other:
        assert http.put(f"queues/{unique}", json={}).status_code == 201
        _schedule(http, unique, "x", 20)
        (id,) = (id for id, queue in _waiting(http).items() if queue == unique)
        assert other.post(f"delayed/{id}/send").status_code == 404
        assert other.post("delayed/none/send").status_code == 404
        assert id in _waiting(http)
        assert http.post(f"delayed/{id}/send").status_code == 204
        until(lambda: api.get(f"queues/%2F/{unique}")["messages"] == 1)
    assert api.status("DELETE", f"users/{unique}") == 204
    api.close()
