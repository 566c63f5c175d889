"""Durable messages survive a stop and kill -9; the others are gone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.e2e.mqtt.mqtt_clients import Client, connected
from tests.support.brokers import Broker
from tests.support.limits import LIMIT_S

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def stop(broker: Broker) -> None:
    assert broker.terminate() == 0


def kill(broker: Broker) -> None:
    broker.kill9()


@pytest.fixture(params=[stop, kill], ids=["SIGTERM", "kill-9"])
def end(request: pytest.FixtureRequest) -> Callable[[Broker], None]:
    """How the broker ends."""
    how: Callable[[Broker], None] = request.param
    return how


@contextmanager
def confirming(broker: Broker) -> Iterator[BlockingChannel]:
    if not broker.amqp_port:
        pytest.skip(f"{broker.name} does not speak amqp here")
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    # The test may have ended the broker.
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


def mqtt(broker: Broker) -> int:
    if not broker.mqtt_port or broker.name == "rabbitmq":
        pytest.skip(f"{broker.name}: MQTT 3.1.1 and 5 with every QoS needed")
    return broker.mqtt_port


def test_queues_bindings_and_messages(own_broker: Broker, end: Callable[[Broker], None]) -> None:
    with confirming(own_broker) as channel:
        channel.exchange_declare("logs", "topic", durable=True)
        channel.exchange_declare("all", "fanout", durable=True)
        channel.exchange_bind("all", "logs", "#")
        channel.queue_declare("errors", durable=True)
        channel.queue_declare("everything", durable=True, arguments={"x-message-ttl": 3_600_000})
        channel.queue_declare("transient")
        channel.queue_bind("errors", "logs", "*.error")
        channel.queue_bind("everything", "all")
        for i in range(50):
            channel.basic_publish(
                "logs", f"{i}.{'error' if i % 5 == 0 else 'info'}", str(i).encode(), PERSISTENT
            )
        channel.basic_publish("logs", "x.error", b"not persistent", pika.BasicProperties(delivery_mode=1))
        held, _, body = channel.basic_get("errors", auto_ack=True)
        assert (held.redelivered, body) == (False, b"0")
        # Handled before the answer to a call made after it.
        channel.queue_declare("errors", passive=True)
        if end is kill:
            channel.connection.sleep(0.3)  # longer than the interval in which acknowledgements are written
    end(own_broker)
    own_broker.restart()
    with confirming(own_broker) as channel:
        for name, kind in (("logs", "topic"), ("all", "fanout")):
            channel.exchange_declare(name, kind, durable=True)
        channel.queue_declare("everything", durable=True, arguments={"x-message-ttl": 3_600_000})
        assert _bodies(channel, "errors") == [str(i).encode() for i in range(5, 50, 5)]
        assert _bodies(channel, "everything") == [str(i).encode() for i in range(50)]
        channel.basic_publish("logs", "new.error", b"new", PERSISTENT)
        assert _bodies(channel, "errors") == _bodies(channel, "everything") == [b"new"]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            channel.queue_declare("transient", passive=True)
        assert error.value.reply_code == 404


def test_deleted_objects_stay_deleted(own_broker: Broker, end: Callable[[Broker], None]) -> None:
    with confirming(own_broker) as channel:
        channel.exchange_declare("gone", "direct", durable=True)
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("gone", durable=True)
        channel.queue_bind("kept", "gone", "k")
        channel.queue_bind("kept", "amq.direct", "k")
        channel.basic_publish("", "kept", b"purged", PERSISTENT)
        channel.basic_publish("", "gone", b"x", PERSISTENT)
        channel.queue_purge("kept")
        channel.queue_unbind("kept", "amq.direct", "k")
        channel.queue_delete("gone")
        channel.exchange_delete("gone")
    end(own_broker)
    own_broker.restart()
    with confirming(own_broker) as channel:
        channel.basic_publish("amq.direct", "k", b"x")
        channel.basic_publish("", "gone", b"x")
        assert _bodies(channel, "kept") == []
        for kind in ("queue", "exchange"):
            doomed = channel.connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
                getattr(doomed, f"{kind}_declare")("gone", passive=True)
            assert error.value.reply_code == 404


def test_unacknowledged_messages_come_back_flagged(own_broker: Broker, end: Callable[[Broker], None]) -> None:
    with confirming(own_broker) as channel:
        channel.queue_declare("work", durable=True)
        for i in range(4):
            channel.basic_publish("", "work", str(i).encode(), PERSISTENT)
        tags = [channel.basic_get("work")[0].delivery_tag for _ in range(3)]
        channel.basic_ack(tags[1])
        channel.queue_declare("work", passive=True)
        if end is kill:
            channel.connection.sleep(0.3)  # longer than the interval in which acknowledgements are written
        end(own_broker)
    own_broker.restart()
    with confirming(own_broker) as channel:
        got = []
        while (answer := channel.basic_get("work", auto_ack=True))[0] is not None:
            got.append((answer[2], answer[0].redelivered))
    assert [body for body, _ in got] == [b"0", b"2", b"3"]
    assert dict(got)[b"0"] and dict(got)[b"2"]


@pytest.mark.not_on("mosquitto", "it saves its sessions at exit only")
@pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_sessions_and_their_messages(
    own_broker: Broker, end: Callable[[Broker], None], version: int, qos: int
) -> None:
    port = mqtt(own_broker)
    options: dict[str, Any] = {"version": version, "clean": False}
    if version == 5:
        options["expiry_s"] = 3600
    with connected(port, "reader", **options) as reader:
        reader.subscribe("a/+", qos)
        reader.subscribe("b", 0)
        reader.unsubscribe("b")
    with connected(port, "writer", version=version) as writer:
        for i in range(30):
            writer.publish("a/x", str(i), qos)
    end(own_broker)
    own_broker.restart()
    with connected(port, "reader", **options) as reader:
        assert reader.session_present
        assert [int(payload) for payload in reader.payloads(30)] == list(range(30))
        reader.publish("b", b"unsubscribed", 1)
        reader.publish("a/y", b"live", qos)
        assert reader.payloads(1) == [b"live"]


@pytest.mark.not_on("mosquitto", "it saves its messages at exit only")
def test_retained_messages(own_broker: Broker, end: Callable[[Broker], None]) -> None:
    port = mqtt(own_broker)
    with connected(port, version=5) as client:
        client.publish("kept/a", b"old", 1, retain=True)
        client.publish("kept/a", b"new", 1, retain=True, ContentType="text/plain")
        client.publish("kept/b", b"gone", 1, retain=True)
        client.publish("kept/b", b"", 1, retain=True)
    end(own_broker)
    own_broker.restart()
    with connected(port, version=5) as client:
        client.subscribe("kept/#", 1)
        message = client.next()
        assert (message.topic, message.payload, message.retain) == ("kept/a", b"new", True)
        assert message.properties.ContentType == "text/plain"
        assert client.quiet()


@pytest.mark.not_on("mosquitto", "it saves its sessions at exit only")
def test_an_unacknowledged_mqtt_delivery_comes_back_with_dup(
    own_broker: Broker, end: Callable[[Broker], None]
) -> None:
    port = mqtt(own_broker)
    reader = Client(port, "reader", clean=False)
    reader.paho.manual_ack_set(True)
    reader.subscribe("a", 1)
    with connected(port) as writer:
        writer.publish("a", b"x", 1)
    assert not reader.next().dup
    end(own_broker)
    reader.disconnects.get(timeout=LIMIT_S)
    reader.end()
    own_broker.restart()
    with connected(port, "reader", clean=False) as again:
        message = again.next()
        assert (message.payload, message.dup) == (b"x", True)


def _bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)
