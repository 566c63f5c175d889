"""During an alarm publishers wait, and everything that frees the resource goes on, on the same connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

import penstock
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("the alarm is a limit of penstock's")

COUNT = 300


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SETTINGS, "native.listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("alarm"), settings=settings) as running:
        yield running


@pytest.fixture
def vhost(gateway: Gateway, unique: str) -> Iterator[str]:
    """A vhost of its own."""
    api = Api(gateway)
    assert api.status("PUT", f"vhosts/{unique}") == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.status("PUT", f"permissions/{unique}/guest", everything) in (201, 204)
    yield unique
    api.status("DELETE", f"vhosts/{unique}")
    api.close()


def set_limit(gateway: Gateway, vhost: str, nbytes: int) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"vhost-limits/{vhost}/max-backlog-bytes", {"value": nbytes}) == 204
    api.close()


def test_an_amqp_worker_drains_the_backlog_that_it_helped_to_make(gateway: Gateway, vhost: str) -> None:
    login = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, vhost)
    with pika.BlockingConnection(login) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_qos(prefetch_count=10)
        channel.confirm_delivery()
        for _ in range(COUNT):
            channel.basic_publish("", "q", bytes(1000))
        set_limit(gateway, vhost, 1000)
        handled = 0
        for method, _, _ in channel.consume("q", inactivity_timeout=LIMIT_S):
            assert method is not None, f"{handled} of {COUNT} were handled"
            channel.basic_ack(method.delivery_tag)
            handled += 1
            if handled == COUNT:
                break
        channel.cancel()
        # The vhost is below its limit again: the same connection publishes.
        channel.basic_publish("", "q", b"after")


def test_an_mqtt_client_acknowledges_what_it_published(gateway: Gateway, vhost: str) -> None:
    came = threading.Semaphore(0)
    connected = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "worker", protocol=paho.MQTTv5, manual_ack=True)
    client.username_pw_set(f"{vhost}:guest", "guest")
    client.max_inflight_messages_set(20)
    held: list[paho.MQTTMessage] = []
    client.on_connect = lambda *_: connected.set()
    client.on_message = lambda _client, _data, message: (held.append(message), came.release())
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    assert connected.wait(LIMIT_S)
    client.subscribe("t", options=SubscribeOptions(qos=1))
    for _ in range(COUNT):
        last = client.publish("t", bytes(1000), 1)
    last.wait_for_publish(LIMIT_S)
    set_limit(gateway, vhost, 1000)
    for n in range(COUNT):
        assert came.acquire(timeout=LIMIT_S), f"{n} of {COUNT} came"
        message = held[n]
        client.ack(message.mid, message.qos)
    client.publish("t", b"after", 1).wait_for_publish(LIMIT_S)
    client.disconnect()
    client.loop_stop()


async def test_a_client_of_the_sdk_drains_the_backlog_that_it_made(gateway: Gateway, vhost: str) -> None:
    url = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}/{vhost}"
    async with penstock.connect(url) as client:
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, vhost)
        ) as connection:
            connection.channel().queue_declare("q", durable=True)
        async with client.producer(queue="q") as producer:
            for _ in range(COUNT):
                await producer.send(bytes(1000))
            set_limit(gateway, vhost, 1000)
            async with client.subscribe(queue="q", prefetch=10) as consumer:
                for _ in range(COUNT):
                    message = await consumer.receive(LIMIT_S)
                    await consumer.ack(message, durable=True)
            await producer.send(b"after")
