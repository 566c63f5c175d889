"""The management API counts as RabbitMQ does, and calls the same things queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def counted(api: Api, queue: str) -> dict[str, Any]:
    stats = api.get(f"queues/%2F/{queue}")["message_stats"]
    names = ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "deliver_get", "ack")
    return {name: stats[name] for name in names if stats[name]}


def test_automatic_acknowledgements_are_neither_deliver_nor_ack(
    gateway: Gateway, api: Api, unique: str
) -> None:
    before = api.get("overview")["message_stats"]
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.queue_declare(unique)
        for number in range(10):
            channel.basic_publish("", unique, str(number).encode())
        channel.basic_get(unique, auto_ack=True)
        method, _, _ = channel.basic_get(unique)
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        taken: list[bytes] = []
        tag = channel.basic_consume(unique, lambda *got: taken.append(got[3]), auto_ack=True)
        while len(taken) < 8:
            connection.process_data_events(1)
        assert counted(api, unique) == {
            "publish": 10, "deliver_no_ack": 8, "get": 1, "get_no_ack": 1, "deliver_get": 10, "ack": 1,
        }  # fmt: skip
        channel.basic_cancel(tag)
        channel.basic_publish("", unique, b"last")
        channel.basic_consume(unique, lambda ch, got, *_: ch.basic_ack(got.delivery_tag))
        until(lambda: connection.process_data_events(0.01) or counted(api, unique).get("ack") == 2)
        assert counted(api, unique)["deliver"] == 1
        after = api.get("overview")["message_stats"]
        moved = {name: after[name] - before[name] for name in counted(api, unique)}
        assert moved == counted(api, unique)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204
    kept = api.get("overview")["message_stats"]
    assert kept["deliver_no_ack"] >= after["deliver_no_ack"]  # totals never fall


def client(gateway: Gateway, name: str) -> paho.Client:
    made = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
    made.username_pw_set("guest", "guest")
    made.connect("127.0.0.1", gateway.mqtt_port)
    made.loop_start()
    return made


def test_a_client_that_only_publishes_has_no_queue(gateway: Gateway, api: Api, unique: str) -> None:
    name = f"mqtt-subscription-{unique}qos1"
    queues = api.get("overview")["object_totals"]["queues"]
    publisher = client(gateway, unique)
    publisher.publish("a", b"1", qos=1).wait_for_publish(LIMIT_S)
    assert [one["variable_map"] for one in api.get("connections")] == [{"client_id": unique}]
    assert api.get("queues") == api.get("queues/%2F") == []
    assert api.status("GET", f"queues/%2F/{name}") == 404
    assert api.get("overview")["object_totals"]["queues"] == queues
    publisher.subscribe("b", qos=0)
    until(lambda: [one["name"] for one in api.get("queues")] == [name])
    assert api.get("overview")["object_totals"]["queues"] == queues + 1
    publisher.publish("b", b"1", qos=1).wait_for_publish(LIMIT_S)
    until(lambda: counted(api, name) == {"publish": 1, "deliver_no_ack": 1, "deliver_get": 1})
    publisher.unsubscribe("b")
    until(lambda: api.get("queues") == [])
    assert api.get("overview")["object_totals"]["queues"] == queues
    publisher.disconnect()
    publisher.loop_stop()


def test_queues_are_sorted_by_policy_and_by_what_they_do_not_have(api: Api, unique: str) -> None:
    names = [f"{unique}-{letter}" for letter in "abc"]
    for name in names:
        assert api.status("PUT", f"queues/%2F/{name}", {}) == 201
    for policy, at in (("p1", "c"), ("p2", "a")):
        rule = {"pattern": f"^{unique}-{at}$", "definition": {"max-length": 9}, "apply-to": "queues"}
        assert api.status("PUT", f"policies/%2F/{unique}{policy}", rule) == 201

    def listed(sort: str) -> str:
        page = api.get(f"queues?page=1&name={unique}&sort={sort}")
        return "".join(one["name"][-1] for one in page["items"])

    assert listed("policy") == "bca"  # none goes first
    assert listed("policy&sort_reverse=true") == "acb"
    assert listed("memory") == listed("head_message_timestamp") == "abc"
    for name in names:
        assert api.status("DELETE", f"queues/%2F/{name}") == 204
