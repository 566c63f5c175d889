"""Parts of the API that a page needs: topics level by level, what is blocked, clients by protocol, ends of
connections, and an import into one vhost tried before."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such thing")


def _retain(gateway: Gateway, **values: bytes) -> None:
    with connected(gateway.mqtt_port, version=5) as client:
        for topic, value in values.items():
            client.paho.publish(topic, value, 1, retain=True).wait_for_publish(60)


def _levels(api: Api, under: str) -> dict[str, Any]:
    found = api.get(f"topics/%2F?under={quote(under)}")
    assert (found["under"], found["more"]) == (under, False)
    return {one["name"]: one for one in found["levels"]}


def test_topics_level_by_level(gateway: Gateway, api: Api, unique: str) -> None:
    long = ("é" * 200).encode()
    values = {"a": b"at a", "a/x": b"\x00\xff", "a/x/deep/er": b"1", "a/long": long, "b//": b"empty levels"}
    _retain(gateway, **{f"{unique}/{topic}": value for topic, value in values.items()})
    first = _levels(api, unique)
    assert list(first) == ["a", "b"]
    assert (first["a"]["topic"], first["a"]["retained"], first["a"]["value"]) == (f"{unique}/a", True, "at a")
    assert first["a"]["below"] == 3
    assert (first["b"]["retained"], first["b"]["below"], first["b"]["value"]) == (False, 1, None)
    second = _levels(api, f"{unique}/a")
    assert list(second) == ["long", "x"]
    assert (second["x"]["value"], second["x"]["is_text"], second["x"]["below"]) == ("00 ff", False, 1)
    # The beginning of a long text, without half a letter at its end.
    assert second["long"]["size"] == 400
    assert (second["long"]["value"], second["long"]["is_text"]) == ("é" * 128, True)
    assert list(_levels(api, f"{unique}/b")) == [""]
    assert api.status("GET", f"topics/%2F?under={quote('a/#')}") == 400
    assert unique in _levels(api, "")
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    rights = {"configure": "", "write": "", "read": "^nothing$"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    with closing(Api(gateway, unique, "p")) as other:
        assert _levels(other, unique) == {}
    assert api.status("DELETE", f"users/{unique}") == 204


def test_clients_by_protocol_and_connections_that_ended(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    login = pika.PlainCredentials("guest", "guest")
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, "/", login)
    before = api.get("overview")["penstock"]["clients"].get("AMQP 0-9-1", 0)
    connection = pika.BlockingConnection(parameters)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker), closing(connection):
        with connected(gateway.mqtt_port, version=5):
            clients = api.get("overview")["penstock"]["clients"]
            assert clients["AMQP 0-9-1"] == before + 1 and clients["MQTT 5-0"] >= 1
        (open_,) = [one["name"] for one in api.get("connections") if one["protocol"] == "AMQP 0-9-1"]
        assert api.client.delete(f"connections/{quote(open_, safe='')}?reason=enough").status_code == 204
        until(lambda: open_ in [one["name"] for one in api.get("closed-connections")])
        ended = next(one for one in api.get("closed-connections") if one["name"] == open_)
        assert "enough" in ended["reason"] and ended["connected_at"] <= ended["closed_at"]
    times = [one["closed_at"] for one in api.get("closed-connections")]
    assert times == sorted(times, reverse=True)
    page = api.get("closed-connections?page=1&page_size=1")
    assert page["items"][0]["closed_at"] == times[0] and page["total_count"] == len(times)
    with closing(Api(gateway, unique, "p")) as other:
        assert other.get("closed-connections") == []
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_vhost_above_its_quota_is_blocked_and_why(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.get("overview")["penstock"]["blocked"] == []
    assert api.status("PUT", f"vhosts/{unique}") == 201
    assert api.status("PUT", f"queues/{unique}/q", {"durable": True}) == 201
    assert api.status("PUT", f"vhost-limits/{unique}/max-backlog-bytes-reject", {"value": 1000}) == 204
    message = {"routing_key": "q", "payload": "x" * 5000, "payload_encoding": "string", "properties": {}}
    assert api.status("POST", f"exchanges/{unique}/amq.default/publish", message) == 200

    def blocked() -> list[dict[str, str]]:
        found: list[dict[str, str]] = api.get("overview")["penstock"]["blocked"]
        return found

    until(blocked)
    told = {"what": "vhost", "name": unique, "effect": "refused", "reason": "max-backlog-bytes-reject"}
    assert blocked() == [told]
    assert api.status("DELETE", f"vhosts/{unique}") == 204
    until(lambda: not blocked())


def test_an_import_into_one_vhost_is_tried_before(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    assert api.status("PUT", f"queues/{unique}/there", {"durable": True}) == 201
    queue = {"durable": True, "auto_delete": False, "arguments": {}}
    body = {
        "queues": [
            {"name": "there", **queue, "arguments": {"x-max-length": 9}},
            {"name": "new", **queue},
        ]
    }
    answer = api.send("POST", f"definitions-dry-run/{unique}", body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["create"] == {"queues": [{"vhost": unique, "name": "new"}]}
    assert found["conflict"] == {"queues": [{"vhost": unique, "name": "there", "differs": ["arguments"]}]}
    assert [one["name"] for one in api.get(f"queues/{unique}")] == ["there"]
    assert api.status("POST", "definitions-dry-run/nowhere", body) in (403, 404)
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "policymaker"}) == 201
    with closing(Api(gateway, unique, "p")) as other:
        assert other.status("POST", f"definitions-dry-run/{unique}", body) == 401
    assert api.status("DELETE", f"users/{unique}") == 204
    assert api.status("DELETE", f"vhosts/{unique}") == 204


def test_figures_of_the_log(gateway: Gateway, api: Api, unique: str) -> None:
    before = api.get("overview")["penstock"]["log"]
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    message = {
        "routing_key": unique, "payload": "x" * 500_000, "payload_encoding": "string",
        "properties": {"delivery_mode": 2},
    }  # fmt: skip
    assert api.status("POST", "exchanges/%2F/amq.default/publish", message) == 200
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204  # kept by then
    after = api.get("overview")["penstock"]["log"]
    assert after["bytes"] - before["bytes"] >= 500_000
    assert after["sync_us"] > 0 and after["backlog_bytes"] >= 0
