"""AMQP and MQTT clients see each other's messages: topics are routing keys of amq.topic, with properties."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.limits import LIMIT_S

both_versions = pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])


@pytest.fixture(autouse=True)
def only_where_possible(request: pytest.FixtureRequest, broker_name: str) -> None:
    """RabbitMQ 3.10's plug-in speaks MQTT 3.1.1 only."""
    callspec = getattr(request.node, "callspec", None)
    if broker_name == "rabbitmq" and (callspec is None or callspec.params.get("version") != 4):
        pytest.skip("RabbitMQ 3.10 speaks MQTT 3.1.1 only")


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def bound_queue(channel: BlockingChannel, pattern: str) -> str:
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", pattern)
    return queue


def get(channel: BlockingChannel, queue: str) -> tuple[Any, pika.BasicProperties, bytes]:
    """The next message; QoS 0 and another connection may take a moment."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return method, properties, body
        assert time.monotonic() < deadline, "no message"
        time.sleep(0.01)


@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_to_amqp(mqtt_port: int, channel: BlockingChannel, unique: str, version: int, qos: int) -> None:
    queue = bound_queue(channel, f"{unique}.*.c")
    with connected(mqtt_port, version=version) as client:
        client.publish(f"{unique}/b/c", b"payload", qos)
        client.publish(f"{unique}/b/d", b"not bound", qos)
        method, properties, body = get(channel, queue)
    assert (method.exchange, method.routing_key, body) == ("amq.topic", f"{unique}.b.c", b"payload")
    assert properties.delivery_mode == (2 if qos else 1)
    assert channel.basic_get(queue)[0] is None


@both_versions
@pytest.mark.parametrize(("mode", "qos"), [(1, 0), (2, 1)])
def test_amqp_to_mqtt(
    mqtt_port: int,
    channel: BlockingChannel,
    unique: str,
    version: int,
    mode: int,
    qos: int,
    broker_name: str,
) -> None:
    if broker_name == "rabbitmq" and mode == 1:
        pytest.skip("RabbitMQ 3.10 delivers transient messages at QoS 1")
    with connected(mqtt_port, version=version) as client:
        client.subscribe(f"{unique}/+/c", 1)
        channel.basic_publish(
            "amq.topic", f"{unique}.b.c", b"payload", pika.BasicProperties(delivery_mode=mode)
        )
        message = client.next()
    assert (message.topic, message.payload, message.qos, message.retain) == (
        f"{unique}/b/c",
        b"payload",
        qos,
        False,
    )


@both_versions
def test_one_publish_reaches_both(
    mqtt_port: int, channel: BlockingChannel, unique: str, version: int
) -> None:
    queue = bound_queue(channel, f"{unique}.#")
    with connected(mqtt_port, version=version) as client:
        client.subscribe(f"{unique}/#", 1)
        client.publish(f"{unique}/x", b"from mqtt", 1)
        channel.basic_publish("amq.topic", f"{unique}.y", b"from amqp")
        assert client.payloads(2) == [b"from mqtt", b"from amqp"]
    assert [get(channel, queue)[2] for _ in range(2)] == [b"from mqtt", b"from amqp"]


@both_versions
def test_a_persistent_session_collects_what_amqp_publishes(
    mqtt_port: int, channel: BlockingChannel, unique: str, version: int
) -> None:
    options: dict[str, Any] = {"version": version, "clean": False}
    if version == 5:
        options["expiry_s"] = 600
    with connected(mqtt_port, unique, **options) as client:
        client.subscribe(f"{unique}/#", 1)
    for i in range(20):
        channel.basic_publish(
            "amq.topic", f"{unique}.{i}", str(i).encode(), pika.BasicProperties(delivery_mode=2)
        )
    with connected(mqtt_port, unique, **options) as client:
        assert client.payloads(20) == [str(i).encode() for i in range(20)]
    with connected(mqtt_port, unique, version=version):
        pass


def test_the_topic_comes_back_as_published(mqtt_port: int, channel: BlockingChannel, unique: str) -> None:
    """A dot in an MQTT topic survives MQTT to MQTT although routing keys are dotted."""
    queue = bound_queue(channel, f"{unique}.#")
    with connected(mqtt_port, version=5) as client:
        client.subscribe(f"{unique}/#", 1)
        client.publish(f"{unique}/a.b/c", b"x", 1)
        assert client.next().topic == f"{unique}/a.b/c"
    assert get(channel, queue)[0].routing_key == f"{unique}.a.b.c"


class TestProperties:
    def test_mqtt_to_amqp(self, mqtt_port: int, channel: BlockingChannel, unique: str) -> None:
        queue = bound_queue(channel, unique)
        with connected(mqtt_port, version=5) as client:
            client.publish(
                unique,
                b"{}",
                1,
                ContentType="application/json",
                CorrelationData=b"call-7",
                ResponseTopic="answers/of/me",
                UserProperty=[("tenant", "red"), ("trace", "1f")],
                MessageExpiryInterval=60,
            )
        _, properties, _ = get(channel, queue)
        assert properties.content_type == "application/json"
        assert properties.correlation_id == "call-7"
        assert properties.headers["tenant"] == "red"
        assert properties.headers["trace"] == "1f"
        assert properties.reply_to == "/topic/answers.of.me"
        assert properties.headers["x-reply-to-topic"] == "answers.of.me"
        assert 58_000 <= int(properties.expiration) <= 60_000

    def test_correlation_data_that_is_no_text(
        self, mqtt_port: int, channel: BlockingChannel, unique: str
    ) -> None:
        queue = bound_queue(channel, unique)
        with connected(mqtt_port, version=5) as client:
            client.publish(unique, b"x", 1, CorrelationData=b"\xff\x00\xfe")
        _, properties, _ = get(channel, queue)
        assert properties.correlation_id is None
        assert b"\xff\x00\xfe" in [
            value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
            for name, value in properties.headers.items()
            if "correlation" in name
        ]

    def test_amqp_to_mqtt(self, mqtt_port: int, channel: BlockingChannel, unique: str) -> None:
        with connected(mqtt_port, version=5) as client:
            client.subscribe(unique, 1)
            channel.basic_publish(
                "amq.topic",
                unique,
                b"{}",
                pika.BasicProperties(
                    content_type="application/json",
                    correlation_id="call-8",
                    expiration="60000",
                    headers={"tenant": "blue", "attempt": 3, "dry": True},
                    delivery_mode=2,
                ),
            )
            got = client.next().properties
        assert got.ContentType == "application/json"
        assert got.CorrelationData == b"call-8"
        user = dict(got.UserProperty)
        assert (user["tenant"], user["attempt"], user["dry"]) == ("blue", "3", "true")
        assert 58 <= got.MessageExpiryInterval <= 60

    def test_there_and_back(self, mqtt_port: int, channel: BlockingChannel, unique: str) -> None:
        """An AMQP program that forwards what it got, properties included, loses nothing of MQTT."""
        queue = bound_queue(channel, f"{unique}.in")
        with connected(mqtt_port, version=5) as client:
            client.subscribe(f"{unique}/out", 1)
            client.publish(
                f"{unique}/in",
                b"x",
                1,
                ContentType="text/plain",
                CorrelationData=b"call-9",
                ResponseTopic="answers/of/me",
                PayloadFormatIndicator=1,
                UserProperty=[("a", "1")],
            )
            _, properties, body = get(channel, queue)
            channel.basic_publish("amq.topic", f"{unique}.out", body, properties)
            got = client.next().properties
        assert (got.ContentType, got.CorrelationData) == ("text/plain", b"call-9")
        assert (got.ResponseTopic, got.PayloadFormatIndicator) == ("answers/of/me", 1)
        assert ("a", "1") in got.UserProperty
