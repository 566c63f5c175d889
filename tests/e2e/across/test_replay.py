"""Any message, from any protocol, replayable from any time, by any protocol."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pika.exceptions
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("no other broker reads again what was acknowledged")


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


class Subscriber:
    """A paho client that keeps what it gets."""

    def __init__(self, port: int, protocol: int, client_id: str = "") -> None:
        self.got: queue.SimpleQueue[mqtt.MQTTMessage] = queue.SimpleQueue()
        self.acks: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=protocol)
        self.client.on_message = lambda client, data, message: self.got.put(message)
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self.acks.put(reasons)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def subscribe(self, topic: str, qos: int = 0, identifier: int = 0) -> int:
        properties = None
        if identifier:
            properties = Properties(PacketTypes.SUBSCRIBE)
            properties.SubscriptionIdentifier = identifier
        self.client.subscribe(topic, qos, properties=properties)
        return int(self.acks.get(timeout=LIMIT_S)[0].value)

    def take(self, count: int) -> list[mqtt.MQTTMessage]:
        return [self.got.get(timeout=LIMIT_S) for _ in range(count)]

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def subscriber(mqtt_port: int) -> Iterator[Callable[..., Subscriber]]:
    made = []

    def make(protocol: int = mqtt.MQTTv5, client_id: str = "") -> Subscriber:
        made.append(Subscriber(mqtt_port, protocol, client_id))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def bodies(messages: list[mqtt.MQTTMessage]) -> list[bytes]:
    return [message.payload for message in messages]


def test_mqtt_reads_history_of_both_protocols_then_its_end_then_what_comes(
    channel: BlockingChannel, subscriber: Callable[..., Subscriber], unique: str
) -> None:
    publisher = subscriber()
    for i in range(20):
        if i % 2:
            publisher.client.publish(f"{unique}/a", str(i), qos=1).wait_for_publish(10)
        else:
            channel.basic_publish("amq.topic", f"{unique}.b", str(i).encode())
    reader = subscriber()
    topic = f"$replay/-1h/{unique}/+"
    assert reader.subscribe(topic, qos=2, identifier=7) == 0
    history = reader.take(20)
    assert bodies(history) == [str(i).encode() for i in range(20)]
    assert [message.topic for message in history[:2]] == [f"{unique}/b", f"{unique}/a"]
    assert history[0].properties.SubscriptionIdentifier == [7]
    (end,) = reader.take(1)
    assert (end.topic, end.payload) == ("$replay/end", b"")
    assert end.properties.UserProperty == [("penstock-replay-end", topic)]
    channel.basic_publish("amq.topic", f"{unique}.b", b"live")
    assert bodies(reader.take(1)) == [b"live"]


def test_history_and_live_meet_without_gap_or_duplicate(
    channel: BlockingChannel, subscriber: Callable[..., Subscriber], unique: str
) -> None:
    for i in range(300):
        channel.basic_publish("amq.topic", f"{unique}.x", str(i).encode())
    reader = subscriber()
    reader.client.subscribe(f"$replay/-1h/{unique}/#")
    for i in range(300, 600):
        channel.basic_publish("amq.topic", f"{unique}.x", str(i).encode())
    got = reader.take(601)
    assert [message.payload for message in got if message.payload] == [str(i).encode() for i in range(600)]
    assert [message.topic for message in got if not message.payload] == ["$replay/end"]


def test_an_empty_history_ends_at_once(subscriber: Callable[..., Subscriber], unique: str) -> None:
    reader = subscriber()
    reader.subscribe(f"$replay/-1h/{unique}")
    assert reader.take(1)[0].topic == "$replay/end"


def test_a_3_1_1_client_gets_history_without_the_mark(
    subscriber: Callable[..., Subscriber], channel: BlockingChannel, unique: str
) -> None:
    for i in range(3):
        channel.basic_publish("amq.topic", unique, str(i).encode())
    reader = subscriber(mqtt.MQTTv311)
    reader.subscribe(f"$replay/pos:1/{unique}")
    assert bodies(reader.take(3)) == [b"0", b"1", b"2"]
    channel.basic_publish("amq.topic", unique, b"live")
    assert bodies(reader.take(1)) == [b"live"]


def test_unsubscribing_ends_it_and_the_session_goes_on(
    subscriber: Callable[..., Subscriber], channel: BlockingChannel, unique: str
) -> None:
    reader = subscriber()
    reader.subscribe(f"$replay/-1h/{unique}")
    assert reader.take(1)[0].topic == "$replay/end"
    reader.subscribe(f"{unique}/own")
    done: queue.SimpleQueue[object] = queue.SimpleQueue()
    reader.client.on_unsubscribe = lambda *arguments: done.put(arguments)
    reader.client.unsubscribe(f"$replay/-1h/{unique}")
    done.get(timeout=LIMIT_S)
    channel.basic_publish("amq.topic", unique, b"not any more")
    channel.basic_publish("amq.topic", f"{unique}.own", b"mine")
    assert bodies(reader.take(1)) == [b"mine"]


@pytest.mark.parametrize(
    "topic", ["$replay/yesterday/a", "$replay/-1h/", "$replay/-1h", "$replay/-1h/$share/g/a"]
)
def test_a_replay_that_means_nothing_is_refused(subscriber: Callable[..., Subscriber], topic: str) -> None:
    assert subscriber().subscribe(topic) == 0x8F


def test_a_queue_is_read_again_without_taking_from_it(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, durable=True)
    for i in range(20):
        channel.basic_publish("", unique, str(i).encode())
    for _ in range(15):
        channel.basic_get(unique, auto_ack=True)
    got: list[bytes] = []

    def take(channel: BlockingChannel, method: Any, _: object, body: bytes) -> None:
        got.append(body)
        channel.basic_ack(method.delivery_tag)

    reader = channel.connection.channel()
    reader.basic_qos(prefetch_count=4)
    tag = reader.basic_consume(unique, take, arguments={"x-penstock-replay": "-1h"})
    channel.basic_publish("", unique, b"20")
    while len(got) < 21:
        channel.connection.process_data_events(time_limit=5)
    assert got == [str(i).encode() for i in range(21)]
    reader.basic_cancel(tag)
    assert channel.queue_declare(unique, passive=True).method.message_count == 6
    assert channel.basic_get(unique)[2] == b"15"
    channel.queue_delete(unique)


def test_a_replay_from_no_moment_is_refused(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_consume(unique, lambda *_: None, arguments={"x-penstock-replay": "soon"})
    assert refused.value.reply_code == 406
    assert "x-penstock-replay" in refused.value.reply_text
