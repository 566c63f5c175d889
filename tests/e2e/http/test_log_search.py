"""Searching the log over HTTP: by place, header, id, body and time; in pieces; with a tail's rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, make_queue, open_client, until
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ keeps no log")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("search"), settings=SERVED) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with open_client(gateway) as client:
        yield client


def search(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """All that is found, by as many requests as it takes."""
    found: list[dict[str, Any]] = []
    progress = -1.0
    while True:
        answer = http.post("log/search", json=body)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        found += told["messages"]
        assert progress <= told["progress"] <= 1 and told["damaged"] == 0
        progress = told["progress"]
        if "cursor" not in told:
            assert progress == 1
            return found
        body["cursor"] = told["cursor"]


def values(found: list[dict[str, Any]]) -> list[str]:
    return [one["value"] for one in found]


def publish_mqtt(gateway: Gateway, topic: str, payload: bytes, **user: str) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = list(user.items())
    client.publish(topic, payload, qos=1, properties=properties).wait_for_publish(LIMIT_S)
    client.disconnect()
    client.loop_stop()


def test_every_way_to_ask(gateway: Gateway, http: httpx.Client, unique: str) -> None:
    make_queue(gateway, unique)
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(5):
            properties = pika.BasicProperties(
                message_id=f"{unique}-{number}", correlation_id=f"c{number}{unique}",
                headers={"tenant": f"{unique}{number}", "n": number, "list": ["a", f"b{number}"]},
            )  # fmt: skip
            channel.basic_publish("", unique, b"amqp %d " % number + unique.encode(), properties)
        channel.queue_bind(unique, "amq.topic", f"{unique}.#")
        channel.basic_publish("amq.topic", f"{unique}.a.b", b"by key")
    publish_mqtt(gateway, f"{unique}/a/c", b"mqtt \xc3\xa6", tenant=f"{unique}m")
    assert http.post(
        f"queues/{unique}/messages", json={"value": "http", "headers": {"tenant": f"{unique}h"}}
    ).is_success
    here: dict[str, Any] = {"queue": unique}
    amqp = [f"amqp {number} {unique}" for number in range(5)]
    assert values(search(http, **here)) == [*amqp, "by key", "mqtt æ", "http"]
    assert values(search(http, **here, max=3)) == [*amqp, "by key", "mqtt æ", "http"]
    assert values(search(http, headers={"tenant": f"{unique}3"})) == [amqp[3]]
    assert values(search(http, headers={"tenant": f"{unique}m"})) == ["mqtt æ"]
    assert values(search(http, headers={"tenant": f"{unique}h"})) == ["http"]
    assert values(search(http, headers={"tenant": f"{unique}"})) == []
    assert values(search(http, **here, headers={"n": 2})) == [amqp[2]]
    assert values(search(http, **here, headers={"n": "2"})) == [amqp[2]]
    assert values(search(http, **here, headers={"list": "b4"})) == [amqp[4]]
    assert values(search(http, **here, headers={"n": None, "tenant": f"{unique}1"})) == [amqp[1]]
    assert values(search(http, message_id=f"{unique}-4")) == [amqp[4]]
    assert values(search(http, correlation_id=f"c0{unique}")) == [amqp[0]]
    assert values(search(http, body={"contains": f"2 {unique}"})) == [amqp[2]]
    assert values(search(http, **here, body={"contains": "æ"})) == ["mqtt æ"]
    assert values(search(http, exchange="", routing_key=unique)) == [*amqp, "http"]
    assert values(search(http, exchange="amq.default", routing_key=unique)) == [*amqp, "http"]
    assert values(search(http, routing_key=f"{unique}.*.b")) == ["by key"]
    assert values(search(http, topic=f"{unique}/#")) == ["by key", "mqtt æ"]
    assert values(search(http, topic=f"{unique}/+/c")) == ["mqtt æ"]
    found = search(http, **here)
    third = found[2]
    assert values(search(http, **here, **{"from": f"pos:{third['id'][2:]}"})) == values(found[2:])
    assert values(search(http, **here, to=f"pos:{third['id'][2:]}")) == values(found[:2])
    assert values(search(http, **here, **{"from": third["published_at"]}))[-1] == "http"
    assert values(search(http, **here, to="-1h")) == []
    assert third["headers"]["tenant"] == f"{unique}2" and third["message_id"] == f"{unique}-2"


def test_a_consumed_message_is_found_after_a_kill(gateway: Gateway, unique: str) -> None:
    make_queue(gateway, unique)
    with open_client(gateway) as http:
        assert http.post(f"queues/{unique}/messages", json={"value": unique}).is_success
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        assert channel.basic_get(unique, auto_ack=True)[2] == unique.encode()
    gateway.kill9()
    gateway.start()
    with open_client(gateway) as http:
        assert values(search(http, body={"contains": unique})) == [unique]


def test_rights_are_those_of_a_tail(gateway: Gateway, http: httpx.Client, unique: str) -> None:
    make_queue(gateway, unique)
    make_queue(gateway, f"{unique}x")
    for queue in (unique, f"{unique}x"):
        assert http.post(f"queues/{queue}/messages", json={"value": f"{unique} {queue}"}).is_success
    publish_mqtt(gateway, f"{unique}/open", unique.encode())
    publish_mqtt(gateway, f"{unique}/shut", unique.encode())
    with closing(Api(gateway)) as api:
        assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": ""}) == 201
        with open_client(gateway, unique) as other:
            assert other.post("log/search", json={}).status_code == 403
        rights = {"configure": "", "write": "", "read": rf"^({unique}|amq\.topic)$"}
        assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
        topics = {"exchange": "amq.topic", "write": "", "read": r"\.open$"}
        assert api.status("PUT", f"topic-permissions/%2F/{unique}", topics) == 201
        with open_client(gateway, unique) as other:
            seen = search(other, body={"contains": unique})
            assert [one["routing_key"] for one in seen] == [unique, f"{unique}.open"]
            assert other.post("log/search", json={"queue": f"{unique}x"}).status_code == 403
            assert len(search(other, queue=unique)) == 1
        # Nothing of another vhost is found.
        assert api.status("PUT", f"vhosts/{unique}") == 201
        elsewhere = httpx.post(
            f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/{unique}/log/search",
            auth=("guest", "guest"), json={}, timeout=LIMIT_S,
        )  # fmt: skip
        assert elsewhere.json()["messages"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"from": "yesterday"}, {"to": "1h"}, {"cursor": "1:2"}, {"cursor": 5}, {"headers": []},
        {"headers": {"": "x"}}, {"headers": {"a": {}}}, {"body": "x"}, {"body": {"regex": "x"}},
        {"message_id": ""}, {"topic": "a", "routing_key": "b"}, {"topic": "a", "exchange": "amq.direct"},
        {"queue": 1}, {"max": 0}, {"wait_ms": 1}, {"max_scan_bytes": 1}, {"nonsense": 1},
    ],
)  # fmt: skip
def test_mistakes_are_named(http: httpx.Client, body: dict[str, Any]) -> None:
    answer = http.post("log/search", json=body)
    assert answer.status_code == 400 and answer.json()["detail"]


def test_cursors_that_nobody_gave_do_no_harm(http: httpx.Client, unique: str) -> None:
    huge = "9" * 19
    for cursor in (f"{huge}:{huge}:{huge}", f"0:0:{huge}", f"5:1:{huge}", "7:7:7"):
        answer = http.post("log/search", json={"cursor": cursor, "body": {"contains": unique}})
        assert answer.status_code == 200 and answer.json()["messages"] == [], cursor


def test_a_count_is_what_a_replay_brings(gateway: Gateway, http: httpx.Client, unique: str) -> None:
    for number in range(150):
        assert http.post(
            "exchanges/amq.topic/messages",
            json={"value": str(number), "routing_key": f"{unique}.{number % 3}"},
        ).is_success
    publish_mqtt(gateway, f"{unique}/0", b"mqtt")
    every = search(http, topic=f"{unique}/#")
    begin = every[60]["id"].replace("0:", "pos:")
    wanted = {"topic": f"{unique}/0", "from": begin}
    counted = http.post("log/search", json={**wanted, "count": True}).json()
    expected = [one["value"] for one in every[60:] if one["routing_key"] == f"{unique}.0"]
    assert counted["count"] == len(expected) > 20 and "messages" not in counted
    answer = http.post(f"queues/{unique}/replay", json=wanted)
    assert answer.status_code == 201 and answer.json() == {"queue": unique, "ready": len(expected)}
    assert http.post(f"queues/{unique}/replay", json=wanted).status_code == 409
    publish_mqtt(gateway, f"{unique}/0", b"after")  # it gets nothing more
    pulled = http.post(f"queues/{unique}/pull", json={"max_messages": 1000}).json()["messages"]
    assert [one["value"] for one in pulled] == expected
    by_key = {"exchange": "amq.topic", "routing_key": f"{unique}.1", "from": "-1h"}
    assert http.post(f"queues/{unique}k/replay", json=by_key).json()["ready"] == 50
    # An MQTT client gets the same by $replay.
    received: list[str] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda *words: received.append(words[2].payload.decode())
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.subscribe(f"$replay/{begin}/{unique}/0", qos=1)
    client.loop_start()
    until(lambda: "" in received)  # the end of the replay
    assert received == [*expected, "after", ""]
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize(
    "body", [{}, {"from": "-1h"}, {"exchange": "amq.topic"}, {"topic": "a", "exchange": "b", "from": "-1h"},
             {"exchange": "amq.topic", "from": "x"}, {"exchange": 1, "from": "-1h"}],
)  # fmt: skip
def test_a_refused_replay_leaves_no_queue(http: httpx.Client, unique: str, body: dict[str, Any]) -> None:
    assert http.post(f"queues/{unique}/replay", json=body).status_code in (400, 409)
    assert http.post(f"queues/{unique}/replay", json={"exchange": unique, "from": "-1h"}).status_code == 404
    assert http.get(f"queues/{unique}").status_code == 404


def test_a_count_needs_no_look_at_messages(http: httpx.Client) -> None:
    assert http.post("log/search", json={"count": True, "headers": {"a": "b"}}).status_code == 400
    assert http.post("log/search", json={"count": 1}).status_code == 400
