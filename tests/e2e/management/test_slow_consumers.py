"""Consumers that hold their queue back, and clients that do not read: listed as long as they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton.utils import BlockingConnection

from penstock import sync
from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such list")

MESSAGES = 5
WINDOW = 2


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SETTINGS, "native.listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("slow"), settings=settings) as running:
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


def _parameters(gateway: Gateway) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=600)


def _fill(gateway: Gateway, queue: str, *, count: int = MESSAGES, size: int = 1) -> None:
    with closing(pika.BlockingConnection(_parameters(gateway))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue)
        for _ in range(count):
            channel.basic_publish("", queue, bytes(size))


Settle = Callable[[], object]
"""Settles all that the consumer gets, until there is nothing more."""


@contextmanager
def _amqp(gateway: Gateway, queue: str) -> Iterator[Settle]:
    _fill(gateway, queue)
    with closing(pika.BlockingConnection(_parameters(gateway))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=WINDOW)
        tags: list[int] = []
        channel.basic_consume(queue, lambda _, method, *__: tags.append(method.delivery_tag))
        while len(tags) < WINDOW:
            connection.process_data_events(1)

        def settle() -> None:
            for at in range(MESSAGES):
                while len(tags) <= at:
                    connection.process_data_events(1)
                channel.basic_ack(tags[at])
            connection.process_data_events(0)

        yield settle


@contextmanager
def _amqp10(gateway: Gateway, queue: str) -> Iterator[Settle]:
    _fill(gateway, queue)
    url = f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}"
    with closing(BlockingConnection(url, timeout=LIMIT_S, allowed_mechs="PLAIN")) as connection:
        receiver = connection.create_receiver(f"/queues/{queue}")
        for _ in range(WINDOW):
            receiver.receive(timeout=LIMIT_S)

        def settle() -> None:
            for _ in range(WINDOW):
                receiver.accept()
            for _ in range(MESSAGES - WINDOW):
                receiver.receive(timeout=LIMIT_S)
                receiver.accept()
            receiver.close()

        yield settle


@contextmanager
def _mqtt(gateway: Gateway, topic: str) -> Iterator[Settle]:
    client = paho.Client(CallbackAPIVersion.VERSION2, f"c{topic}", protocol=paho.MQTTv5, manual_ack=True)
    most = Properties(PacketTypes.CONNECT)
    most.ReceiveMaximum = WINDOW
    got: list[paho.MQTTMessage] = []
    subscribed: list[object] = []
    client.on_message = lambda _, __, message: got.append(message)
    client.on_subscribe = lambda *words: subscribed.append(words)
    client.connect("127.0.0.1", gateway.mqtt_port, properties=most)
    client.loop_start()
    try:
        until(client.is_connected)
        client.subscribe(topic, 1)
        until(lambda: subscribed)
        with closing(pika.BlockingConnection(_parameters(gateway))) as connection:
            channel = connection.channel()
            for _ in range(MESSAGES):
                channel.basic_publish("amq.topic", topic, b"x", pika.BasicProperties(delivery_mode=2))
        until(lambda: len(got) == WINDOW)

        def settle() -> None:
            for at in range(MESSAGES):
                until(lambda at=at: len(got) > at)
                client.ack(got[at].mid, got[at].qos)

        yield settle
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def _native(gateway: Gateway, queue: str) -> Iterator[Settle]:
    _fill(gateway, queue)
    with (
        sync.connect(f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}") as client,
        client.subscribe(queue=queue, max_unacked=WINDOW) as consumer,
    ):
        held = [consumer.receive() for _ in range(WINDOW)]

        def settle() -> None:
            for message in held:
                consumer.ack(message)
            for _ in range(MESSAGES - WINDOW):
                consumer.ack(consumer.receive())

        yield settle


def _of(api: Api, queue: str) -> list[dict[str, Any]]:
    return [one for one in api.get("slow-consumers") if queue in one["queue"]]


@pytest.mark.parametrize("consuming", [_amqp, _amqp10, _mqtt, _native])
def test_a_consumer_that_settles_nothing_is_listed_until_it_does(
    gateway: Gateway, api: Api, unique: str, consuming: Callable[[Gateway, str], Any]
) -> None:
    with consuming(gateway, unique) as settle:
        (slow,) = until(lambda: _of(api, unique))
        assert slow["reason"] == "stuck" and "settled none" in slow["text"]
        assert (slow["unacknowledged"], slow["prefetch"]) == (WINDOW, WINDOW)
        assert (slow["messages_ready"], slow["vhost"], slow["user"]) == (MESSAGES - WINDOW, "/", "guest")
        assert slow["consumer"] and slow["for_ms"] >= 2000
        assert slow["connection"] in [one["name"] for one in api.get("connections")]
        assert api.get(f"queues/%2F/{slow['queue']}")["messages"] == MESSAGES
        # It is known for longer at the next look.
        longer = until(lambda: [one for one in _of(api, unique) if one["for_ms"] > slow["for_ms"]])
        assert longer[0]["reason"] == "stuck"
        settle()
        until(lambda: _of(api, unique) == [])


def test_a_client_that_does_not_read_is_listed_until_it_is_gone(
    gateway: Gateway, api: Api, unique: str
) -> None:
    _fill(gateway, unique, count=64, size=1 << 20)
    with closing(pika.BlockingConnection(_parameters(gateway))) as connection:
        connection.channel().basic_consume(unique, lambda *_: None, auto_ack=True)

        def stalled() -> list[dict[str, Any]]:
            return [one for one in api.get("slow-consumers") if one["reason"] == "stalled"]

        (slow,) = until(stalled)
        assert slow["waiting_bytes"] > 0 and (slow["queue"], slow["consumer"]) == ("", "")
        assert slow["connection"] in [one["name"] for one in api.get("connections")]
    until(lambda: stalled() == [])


def test_users_see_their_own(gateway: Gateway, api: Api, unique: str) -> None:
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    for name, tags in ((f"{unique}u", "management"), (f"{unique}m", "monitoring")):
        assert api.status("PUT", f"users/{name}", {"password": "p", "tags": tags}) == 201
    assert api.status("PUT", f"permissions/%2F/{unique}u", rights) == 201
    with (
        _amqp(gateway, unique),
        closing(Api(gateway, f"{unique}u", "p")) as other,
        closing(Api(gateway, f"{unique}m", "p")) as monitoring,
    ):
        until(lambda: _of(api, unique))
        assert _of(monitoring, unique) != []
        assert other.get("slow-consumers") == []
        assert other.status("GET", "findings") == 401
        assert monitoring.status("GET", "findings") == 200
