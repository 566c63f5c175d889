"""Delayed messages through unchanged clients: pika with the delayed exchange, paho with $delayed."""

from __future__ import annotations

import time

import pika
import pytest

from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.brokers import Broker
from tests.support.limits import LIMIT_S

pytestmark = [
    pytest.mark.penstock_only("RabbitMQ needs a plugin for it, Mosquitto has none"),
]


def opened(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))


def test_pika_gets_delayed_messages_in_time_and_over_a_restart(own_broker: Broker) -> None:
    with opened(own_broker.amqp_port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
        )
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "later", "a.*")
        began = time.time()
        for delay_ms in (1500, 100, 4000):
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay_ms})
            channel.basic_publish("later", "a.b", b"%d" % delay_ms, properties, mandatory=True)
        came = []
        for method, properties, body in channel.consume("q"):
            assert method.delivery_tag and body
            late_ms = (time.time() - began) * 1000 - int(body)
            came.append((int(body), properties.headers["x-delay"]))
            assert late_ms >= 0
            channel.basic_ack(method.delivery_tag)
            if len(came) == 2:
                break
        assert came == [(100, -100), (1500, -1500)]
    assert own_broker.terminate() == 0
    own_broker.launch()
    own_broker.wait_until_serving()
    with opened(own_broker.amqp_port) as connection:
        channel = connection.channel()
        for _, properties, body in channel.consume("q"):
            assert (body, properties.headers) == (b"4000", {"x-delay": -4000})
            assert time.time() - began >= 4
            break


@pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])
def test_paho_gets_what_was_published_to_delayed(mqtt_port: int, unique: str, version: int) -> None:
    with connected(mqtt_port, version=version) as client:
        client.subscribe(unique, 2)
        began = time.time()
        client.publish(f"$delayed/3/{unique}", b"later", 2)
        client.publish(unique, b"now", 2)
        assert client.next().payload == b"now"
        message = client.next()
        assert (message.topic, message.payload, message.qos) == (unique, b"later", 2)
        assert 3 <= time.time() - began < LIMIT_S


def test_a_delay_crosses_the_protocols(amqp_port: int, mqtt_port: int, unique: str) -> None:
    with connected(mqtt_port) as client, opened(amqp_port) as connection:
        client.subscribe(f"{unique}/t", 1)
        headers = {"x-penstock-deliver-after": 300}
        began = time.monotonic()
        connection.channel().basic_publish(
            "amq.topic", f"{unique}.t", b"x", pika.BasicProperties(headers=headers, delivery_mode=2)
        )
        message = client.next()
        assert (message.topic, message.payload) == (f"{unique}/t", b"x")
        assert time.monotonic() - began >= 0.3
