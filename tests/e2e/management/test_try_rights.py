"""Questions about routes and rights, over the management API: the answers are those of a real publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, open_client
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such questions")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("rights"), settings=SERVED) as running:
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


def route(api: Api, exchange: str, key: str, **headers: Any) -> Any:
    answer = api.send("POST", f"exchanges/%2F/{exchange}/route", {"routing_key": key, "headers": headers})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_route_is_told_without_a_message(gateway: Gateway, api: Api, unique: str) -> None:
    for name in (unique, f"{unique}h"):
        assert api.status("PUT", f"queues/%2F/{name}", {"durable": True}) == 201
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    assert api.status("PUT", f"queues/%2F/{unique}s", stream) == 201
    for name in (unique, f"{unique}s"):
        bound = {"routing_key": f"{unique}.#", "arguments": {}}
        assert api.status("POST", f"bindings/%2F/e/amq.topic/q/{name}", bound) == 201
    matched = {"routing_key": "", "arguments": {"shop": unique}}
    assert api.status("POST", f"bindings/%2F/e/amq.headers/q/{unique}h", matched) == 201
    both = [{"name": unique, "kind": "queue"}, {"name": f"{unique}s", "kind": "stream"}]
    found = route(api, "amq.topic", f"{unique}.a.b")
    assert found["routed"] and sorted(found["places"], key=lambda place: place["name"]) == both
    assert route(api, "amq.topic", "elsewhere") == {"routed": False, "places": [], "delayed_by": []}
    assert route(api, "amq.default", unique)["places"] == both[:1]
    assert route(api, "amq.headers", "", shop=unique)["places"] == [{"name": f"{unique}h", "kind": "queue"}]
    assert route(api, "amq.headers", "", shop="other")["places"] == []
    assert api.status("POST", "exchanges/%2F/none/route", {}) == 404
    assert api.status("POST", "exchanges/%2F/amq.topic/route", {"routing_key": "x" * 256}) == 400
    assert api.get(f"queues/%2F/{unique}")["messages"] == 0


def test_the_verdict_is_that_of_a_publish(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": "management"}) == 201

    def may(name: str, key: str = "", operation: str = "write", by: Api = api) -> tuple[bool, list[str]]:
        asked = {"user": unique, "vhost": "/", "operation": operation, "name": name, "routing_key": key}
        told = by.get(f"may?{urlencode(asked)}")
        return told["allowed"], [rule["rule"] for rule in told["rules"]]

    assert may("amq.topic") == (False, ["vhost"])
    rights = {"configure": "", "write": "^amq[.]topic$", "read": f"^{unique}$"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    topics = {"exchange": "amq.topic", "write": "^open[.]", "read": ".*"}
    assert api.status("PUT", f"topic-permissions/%2F/{unique}", topics) == 201
    with open_client(gateway, unique) as http, closing(Api(gateway, unique, unique)) as own:
        for name, key, rules in (
            ("amq.topic", "open.a", ["permission", "topic-permission"]),
            ("amq.topic", "shut.a", ["permission", "topic-permission"]),
            ("amq.fanout", "", ["permission"]),
        ):
            answer = http.post(f"exchanges/{name}/messages", json={"value": "x", "routing_key": key})
            assert may(name, key) == (answer.is_success, rules), answer.text
            assert may(name, key, by=own) == (answer.is_success, rules)
        assert may(unique, operation="read") == (True, ["permission"])
        assert may("other", operation="read") == (False, ["permission"])
        of_another = {"user": "guest", "vhost": "/", "operation": "write", "name": "a"}
        assert own.status("GET", f"may?{urlencode(of_another)}") == 401
    assert api.status("GET", f"may?user=none{unique}&vhost=/&operation=write&name=a") == 404
    assert api.status("GET", "may?user=guest&vhost=/&operation=eat&name=a") == 400
