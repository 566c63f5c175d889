"""Exchanges, bindings and single messages in the management API."""

from __future__ import annotations

import base64

import pytest

from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


def test_exchanges_and_bindings(api: Api) -> None:
    assert api.status("PUT", "exchanges/%2F/ex", {"type": "topic", "durable": True}) == 201
    assert api.status("PUT", "exchanges/%2F/ex", {"type": "topic", "durable": True}) == 204
    assert api.status("PUT", "exchanges/%2F/ex", {"type": "direct", "durable": True}) == 400
    unknown = api.send("PUT", "exchanges/%2F/ex2", {"type": "nope"}).json()["reason"]
    assert unknown.startswith("unknown exchange type 'nope'")
    predeclared = api.send("DELETE", "exchanges/%2F/amq.topic")
    assert (predeclared.status_code, predeclared.json()) == (
        401,
        {"error": "not_authorised", "reason": "Access refused."},
    )
    api.send("PUT", "queues/%2F/bound", {"durable": True})
    between = "bindings/%2F/e/ex/q/bound"
    places = {}
    for key, arguments in (("a.b c/%", {}), ("", {}), ("k", {"x": 1}), ("k", {"x": 2}), ("~", {})):
        made = api.send("POST", between, {"routing_key": key, "arguments": arguments})
        assert made.status_code == 201
        places[made.headers["location"]] = (key, arguments)
    assert len(places) == 5
    assert {b["routing_key"] for b in api.get(between)} == {"a.b c/%", "", "k", "~"}
    for place, (key, arguments) in places.items():
        one = api.get(f"bindings/%2F/e/ex/q/{place.partition('/')[2]}".replace("/q/", "/q/bound/", 1))
        assert (one["routing_key"], one["arguments"]) == (key, arguments)
        assert api.status("DELETE", f"{between}/{place.partition('/')[2]}") == 204
    assert api.get(between) == []
    assert api.status("POST", "bindings/%2F/e/ex/q/none", {"routing_key": "k"}) == 404
    assert api.status("DELETE", "exchanges/%2F/ex") == 204


def test_messages_are_published_and_got_one_by_one(api: Api) -> None:
    api.send("PUT", "queues/%2F/single", {"durable": True})
    body = {
        "routing_key": "single",
        "payload": base64.b64encode(b"\xff\0").decode(),
        "payload_encoding": "base64",
        "properties": {"delivery_mode": 2, "headers": {"a": 1, "b": ["x"]}, "content_type": "t/p"},
    }
    publish = "exchanges/%2F/amq.default/publish"
    assert api.send("POST", publish, body).json() == {"routed": True}
    assert api.send("POST", publish, {**body, "routing_key": "none"}).json() == {"routed": False}
    text = {**body, "payload": "héllo", "payload_encoding": "string", "properties": {}}
    assert api.send("POST", publish, text).json() == {"routed": True}
    missing = api.send("POST", publish, {"routing_key": "x", "payload": ""}).json()["reason"]
    assert missing == "[{key_missing,properties},{key_missing,payload_encoding}]"
    get = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    first, second = api.send("POST", "queues/%2F/single/get", get).json()
    assert first == {
        "payload_bytes": 2,
        "redelivered": False,
        "exchange": "",
        "routing_key": "single",
        "message_count": 1,
        "properties": {"delivery_mode": 2, "headers": {"a": 1, "b": ["x"]}, "content_type": "t/p"},
        "payload": base64.b64encode(b"\xff\0").decode(),
        "payload_encoding": "base64",
    }
    assert (second["payload"], second["payload_encoding"], second["properties"]) == ("héllo", "string", [])
    get["ackmode"] = "ack_requeue_false"
    again = api.send("POST", "queues/%2F/single/get", {**get, "count": 1}).json()
    assert [m["redelivered"] for m in again] == [True]
    assert api.status("DELETE", "queues/%2F/single/contents") == 204
    assert api.get("queues/%2F/single")["messages"] == 0
    assert api.send("POST", "queues/%2F/single/get", get).json() == []
