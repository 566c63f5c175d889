"""A queue made today gets yesterday's messages, from whatever protocol they came."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers import Broker

pytestmark = pytest.mark.penstock_only("no other broker keeps what nobody waited for")
SINCE = "x-penstock-backfill"
HOUR = {SINCE: "-1h"}


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    got = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return got
        got.append(body)


def test_a_bound_queue_gets_what_matches_and_then_what_comes(channel: BlockingChannel, unique: str) -> None:
    for i in range(50):
        channel.basic_publish("amq.topic", f"{unique}.{'a' if i % 2 else 'b'}.x", str(i).encode())
    channel.queue_declare(unique)
    channel.queue_bind(unique, "amq.topic", f"{unique}.a.#", arguments=HOUR)
    channel.basic_publish("amq.topic", f"{unique}.a.y", b"after")
    assert channel.queue_declare(unique, passive=True).method.message_count == 26
    assert drain(channel, unique) == [str(i).encode() for i in range(1, 50, 2)] + [b"after"]


def test_messages_that_others_acknowledged_come_too(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique + "first", exclusive=True)
    channel.queue_bind(unique + "first", "amq.direct", unique)
    for i in range(10):
        channel.basic_publish("amq.direct", unique, str(i).encode())
    assert len(drain(channel, unique + "first")) == 10
    channel.queue_declare(unique, exclusive=True, arguments=HOUR)
    channel.queue_bind(unique, "amq.direct", unique)  # as the queue was declared
    assert drain(channel, unique) == [str(i).encode() for i in range(10)]


def test_messages_sent_before_the_queue_existed_are_found(channel: BlockingChannel, unique: str) -> None:
    for i in range(5):
        channel.basic_publish("", unique, str(i).encode())
    declared = channel.queue_declare(unique, exclusive=True, arguments=HOUR)
    assert declared.method.message_count == 5
    assert drain(channel, unique) == [str(i).encode() for i in range(5)]
    # Declared again it is the same queue: nothing comes twice.
    assert channel.queue_declare(unique, exclusive=True, arguments=HOUR).method.message_count == 0


@pytest.mark.parametrize("form", ["RFC 3339", "milliseconds", "interval"])
def test_only_what_was_published_since_then(channel: BlockingChannel, unique: str, form: str) -> None:
    channel.basic_publish("amq.direct", unique, b"before")
    before = time.time()
    while time.time() < before + (1.05 if form == "interval" else 0.02):
        channel.connection.process_data_events(time_limit=0.01)
    moment = time.time()
    channel.basic_publish("amq.direct", unique, b"after")
    since: Any = {
        "RFC 3339": dt.datetime.fromtimestamp(moment, dt.UTC).isoformat(timespec="milliseconds"),
        "milliseconds": int(moment * 1000),
        "interval": "-1s",
    }[form]
    channel.queue_declare(unique, exclusive=True)
    channel.queue_bind(unique, "amq.direct", unique, arguments={SINCE: since})
    assert drain(channel, unique) == [b"after"]


def test_through_a_headers_exchange_and_an_exchange_behind_another(
    channel: BlockingChannel, unique: str
) -> None:
    channel.exchange_declare(unique, "headers")
    channel.exchange_bind(unique, "amq.fanout")
    for i in range(6):
        properties = pika.BasicProperties(headers={"test": unique, "even": i % 2 == 0})
        channel.basic_publish("amq.fanout", "", str(i).encode(), properties)
    channel.queue_declare(unique, exclusive=True)
    channel.queue_bind(unique, unique, arguments={"test": unique, "even": True, **HOUR})
    assert drain(channel, unique) == [b"0", b"2", b"4"]


def test_mqtt_messages_are_found(channel: BlockingChannel, mqtt_port: int, unique: str) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", mqtt_port)
    client.loop_start()
    for i in range(10):
        client.publish(f"{unique}/sensor/{i % 3}", str(i).encode(), qos=i % 3).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()
    channel.queue_declare(unique, exclusive=True)
    channel.queue_bind(unique, "amq.topic", f"{unique}.sensor.1", arguments=HOUR)
    assert drain(channel, unique) == [b"1", b"4", b"7"]


def test_a_durable_queue_keeps_its_history_over_restarts(own_broker: Broker, unique: str) -> None:
    def connect() -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", own_broker.amqp_port))

    with connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for i in range(100):
            channel.basic_publish("amq.direct", unique, str(i).encode())
        channel.queue_declare(unique, durable=True)
        channel.queue_bind(unique, "amq.direct", unique, arguments=HOUR)
        for i in range(100, 110):
            channel.basic_publish(
                "amq.direct", unique, str(i).encode(), pika.BasicProperties(delivery_mode=2)
            )
    own_broker.kill9()
    own_broker.start()
    with connect() as connection:
        channel = connection.channel()
        assert [channel.basic_get(unique, auto_ack=True)[2] for _ in range(60)] == [
            str(i).encode() for i in range(60)
        ]
    own_broker.restart()
    with connect() as connection:
        channel = connection.channel()
        assert drain(channel, unique) == [str(i).encode() for i in range(60, 110)]
    own_broker.restart()
    assert not list(own_broker.folder.rglob("*.his")), "what was read to its end is gone"


@pytest.mark.parametrize("since", ["yesterday", "15m", "2024-05-01T10:00:00", True, -5])
def test_a_moment_that_is_none_is_refused(channel: BlockingChannel, unique: str, since: Any) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare(unique, arguments={SINCE: since})
    assert refused.value.reply_code == 406
    assert "is no moment" in refused.value.reply_text


def test_a_queue_that_handed_out_messages_cannot_go_back(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, exclusive=True)
    channel.basic_publish("", unique, b"x")
    assert drain(channel, unique) == [b"x"]
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_bind(unique, "amq.direct", unique, arguments=HOUR)
    assert refused.value.reply_code == 406
    assert "handed out messages already" in refused.value.reply_text


def test_a_stream_cannot_be_backfilled(channel: BlockingChannel, unique: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare(unique, durable=True, arguments={"x-queue-type": "stream", **HOUR})
    assert refused.value.reply_code == 406
