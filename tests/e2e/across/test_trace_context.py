"""A trace context (W3C: traceparent, tracestate) comes out as it went in, by whatever protocols."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import penstock.sync
from penstock.testing import Gateway
from tests.support.receiver import Receiver

pytestmark = [
    pytest.mark.penstock_only("this is about what crosses protocols"),
]

STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
Context = dict[str, str]


def context(n: int) -> Context:
    """Of one publisher."""
    return {"traceparent": f"00-{n:032x}-{n:016x}-01", "tracestate": STATE}


def of(headers: Any) -> Context:
    """The context in some headers."""
    return {name: value for name, value in dict(headers).items() if name in ("traceparent", "tracestate")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"webhooks.allow_networks": "127.0.0.0/8"}
    with Gateway(tmp_path_factory.mktemp("traced"), settings=settings) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    base = f"{gateway.http_url}/v1/vhosts/%2F/"
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=90) as client:
        yield client


def by_amqp(gateway: Gateway, key: str, sent: Context) -> None:
    with pika.BlockingConnection(pika.URLParameters(gateway.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", key, b"amqp", pika.BasicProperties(headers=sent))


def by_mqtt(gateway: Gateway, key: str, sent: Context) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = list(sent.items())
    client.publish(key.replace(".", "/"), b"mqtt", 1, properties=properties).wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


def by_http(gateway: Gateway, key: str, sent: Context) -> None:
    answer = httpx.post(
        f"{gateway.http_url}/v1/vhosts/%2F/exchanges/amq.topic/messages?routing_key={key}",
        auth=("guest", "guest"),
        json={"value": "http"},
        headers=sent,
        timeout=90,
    )
    assert answer.status_code == 200


def by_native(gateway: Gateway, key: str, sent: Context) -> None:
    with (
        penstock.sync.connect(gateway.url) as client,
        client.producer(exchange="amq.topic", routing_key=key) as producer,
    ):
        producer.send(b"native", headers=sent)


PUBLISHERS: tuple[Callable[[Gateway, str, Context], None], ...] = (by_amqp, by_mqtt, by_http, by_native)


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_context_crosses_every_pair_of_protocols_unchanged(
    gateway: Gateway, http: httpx.Client, unique: str
) -> None:
    key = f"{unique}.a"
    seen: dict[str, list[Context]] = {name: [] for name in ("amqp", "mqtt", "http", "native", "webhook")}

    def on_message(_: Any, __: Any, message: paho.MQTTMessage) -> None:
        seen["mqtt"].append(of(message.properties.UserProperty))  # type: ignore[union-attr]

    subscribed: list[Any] = []
    listener = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    listener.on_message = on_message
    listener.on_subscribe = lambda *_: subscribed.append(True)
    listener.connect("127.0.0.1", gateway.mqtt_port)
    listener.loop_start()
    listener.subscribe(key.replace(".", "/"), qos=1)
    until(lambda: subscribed)
    with (
        Receiver() as receiver,
        pika.BlockingConnection(pika.URLParameters(gateway.amqp_url)) as connection,
        penstock.sync.connect(gateway.url) as client,
    ):
        channel = connection.channel()
        for name in ("amqp", "http"):
            channel.queue_declare(f"{unique}.{name}", durable=True)
            channel.queue_bind(f"{unique}.{name}", "amq.topic", key)
        channel.queue_declare(unique, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(unique, "amq.topic", key)
        body = {"source": {"exchange": "amq.topic", "routing_key": key}, "url": receiver.url}
        assert http.put(f"webhooks/{unique}", json={**body, "verify": "none"}).status_code == 201
        for n, publish in enumerate(PUBLISHERS, 1):
            publish(gateway, key, context(n))
        wanted = [context(n) for n in range(1, len(PUBLISHERS) + 1)]
        for _, properties, _ in channel.consume(f"{unique}.amqp", auto_ack=True):
            seen["amqp"].append(of(properties.headers))
            if len(seen["amqp"]) == len(wanted):
                break
        while len(seen["http"]) < len(wanted):
            answer = http.post(f"queues/{unique}.http/pull", json={"wait_ms": 30_000}).json()
            seen["http"] += [of(one["headers"]) for one in answer["messages"]]
        with client.reader(unique, start="earliest") as reader:
            for message in reader:
                seen["native"].append(of(message.headers))
                if len(seen["native"]) == len(wanted):
                    break
        seen["webhook"] = [of(got.headers) for got in receiver.wait_count(len(wanted))]
        until(lambda: len(seen["mqtt"]) == len(wanted))
    listener.disconnect()
    listener.loop_stop()
    for name, found in seen.items():
        assert sorted(found, key=lambda one: one.get("traceparent", "")) == wanted, name


def test_a_message_keeps_its_own_context(http: httpx.Client, gateway: Gateway, unique: str) -> None:
    assert http.put(f"streams/{unique}").status_code == 201
    body = {"messages": [{"value": "own", "headers": context(7)}, {"value": "the request's"}]}
    sent = http.post(f"streams/{unique}/messages", json=body, headers=context(8))
    assert sent.status_code == 200
    read = http.get(f"streams/{unique}/messages?wait_ms=30000&max=2").json()["messages"]
    assert [of(one["headers"]) for one in read] == [context(7), context(8)]


def test_a_context_in_a_cloudevent_is_an_extension_of_it(
    http: httpx.Client, gateway: Gateway, unique: str, tmp_path: Path
) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {}, **context(9)}
    with Receiver() as receiver:
        body = {"source": {"exchange": "amq.topic", "routing_key": unique}, "url": receiver.url}
        http.put(f"webhooks/{unique}", json={**body, "verify": "none", "format": "cloudevents-binary"})
        answer = http.post(
            f"exchanges/amq.topic/messages?routing_key={unique}",
            json=event,
            headers={"content-type": "application/cloudevents+json"},
        )
        assert answer.status_code == 200
        (got,) = receiver.wait_count(1)
    assert of(got.headers) == context(9)
    assert got.headers["ce-traceparent"] == context(9)["traceparent"]
