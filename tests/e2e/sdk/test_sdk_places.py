"""The SDK and AMQP's exchanges and queues, MQTT's topics and filters, by their names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import paho.mqtt.publish
import pika
import pytest

import penstock
import penstock.sync
from penstock.testing import Gateway

WAIT_S = 60.0


async def take(consumer: penstock.Consumer[Any], n: int) -> list[bytes]:
    """The bodies of the next n messages, which are acknowledged."""
    found: list[bytes] = []
    while len(found) < n:
        some = await consumer.receive_many(n - len(found), WAIT_S)
        assert some, f"{len(found)} of {n} messages came"
        found += [message.body for message in some]
        if consumer.takes:
            await consumer.ack(some, durable=True)
    return found


def mqtt(gateway: Gateway, topic: str, body: str) -> None:
    paho.mqtt.publish.single(topic, body, qos=1, hostname="127.0.0.1", port=gateway.mqtt_port)


async def test_an_mqtt_filter_is_subscribed_to_and_read_again(
    client: penstock.Client, gateway: Gateway
) -> None:
    mqtt(gateway, "weather/oslo/rain", "old")
    async with client.subscribe(mqtt_filter="weather/+/rain", subscription="rain") as rain:
        mqtt(gateway, "weather/oslo/rain", "new")
        mqtt(gateway, "weather/oslo/wind", "no")
        async with client.producer(mqtt_topic="weather/bergen/rain") as producer:
            await producer.send("native")
        assert await take(rain, 2) == [b"new", b"native"]
    mqtt(gateway, "weather/oslo/rain", "meanwhile")
    async with client.subscribe(mqtt_filter="weather/+/rain", subscription="rain") as rain:
        assert await take(rain, 1) == [b"meanwhile"], "the subscription outlives its consumers"
    async with client.reader(mqtt_filter="weather/#", start="-1h") as reader:
        assert await take(reader, 5) == [b"old", b"new", b"no", b"native", b"meanwhile"]
        mqtt(gateway, "weather/x", "live")
        assert await take(reader, 1) == [b"live"]
    assert await client.admin.queues() == ["rain"], "the reader's queue ended with it"


async def test_a_reader_of_an_exchange_goes_on_after_a_lost_connection(client: penstock.Client) -> None:
    async with (
        client.producer(exchange="amq.topic", routing_key="a.b") as producer,
        client.reader(exchange="amq.topic", routing_key="a.#", start="earliest") as reader,
    ):
        await producer.send_many([b"1", b"2", b"3"])
        assert await take(reader, 2) == [b"1", b"2"]
        (await client.link()).abort()
        await producer.send("4")
        assert await take(reader, 2) == [b"3", b"4"]
        assert client.reconnects == 1


async def test_amqp_and_the_sdk_share_a_queue(client: penstock.Client, gateway: Gateway) -> None:
    options: dict[str, Any] = {"max_deliveries": 2, "dead_letter": "work.dead", "nack_backoff_s": (0.0, 0.0)}
    async with (
        client.subscribe(exchange="amq.direct", routing_key="work", subscription="jobs", **options) as jobs,
        client.producer("work.dead"),
    ):
        with pika.BlockingConnection(pika.URLParameters(gateway.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("amq.direct", "work", b"job", pika.BasicProperties(delivery_mode=2))
        for _ in range(2):
            message = await jobs.receive(WAIT_S)
            assert message is not None and message.body == b"job"
            await jobs.nack(message)
        async with client.reader("work.dead", start="earliest") as dead:
            assert await take(dead, 1) == [b"job"]
    described = await client.admin.describe_queue("jobs")
    assert (described["durable"], described["arguments"]["x-delivery-limit"]) == (True, "1")


async def test_queues_are_administered(client: penstock.Client) -> None:
    admin = client.admin
    assert await admin.declare_queue("q", arguments={"x-max-length": 5}) == "q"
    await admin.bind("q", "amq.topic", "a.*")
    async with client.producer(exchange="amq.topic", routing_key="a.b") as producer:
        await producer.send_many([b"%d" % i for i in range(7)])
    assert (await admin.describe_queue("q"))["ready"] == 5
    async with client.subscribe(queue="q") as consumer:
        assert await take(consumer, 1) == [b"2"]
    await admin.unbind("q", "amq.topic", "a.*")
    assert await admin.purge_queue("q") == 4
    assert await admin.delete_queue("q", if_empty=True) == 0
    assert await admin.queues() == []
    with pytest.raises(penstock.NotFound, match="'q'"):
        await admin.purge_queue("q")
    async with client.subscribe("t", "s"):
        assert await admin.lag("t", "s") == 0
        with pytest.raises(penstock.NotFound, match="'other'"):
            await admin.lag("t", "other")


@pytest.mark.parametrize("of", ["a time", "an interval", "an id", "text"])
async def test_a_start_is_said_in_python_s_words(client: penstock.Client, of: str) -> None:
    async with client.producer("t") as producer:
        ids = await producer.send_many([b"1", b"2"])
        starts: dict[str, Any] = {
            "a time": datetime.now(UTC) - timedelta(hours=1),
            "an interval": timedelta(hours=1),
            "an id": ids[0],
            "text": str(ids[0]),
        }
        async with (
            client.reader("t", start=starts[of]) as reader,
            client.subscribe("t", "s") as subscribed,
        ):
            assert await take(reader, 2) == [b"1", b"2"]
            await subscribed.seek(starts[of])
            assert await take(subscribed, 2) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda c: c.subscribe("t"), "needs a name: subscription="),
        (lambda c: c.subscribe("t", "s", queue="q"), "needs one of topic, queue, exchange, mqtt_filter"),
        (lambda c: c.subscribe(), "given: none"),
        (lambda c: c.subscribe(queue="q", max_deliveries=3), "leave out max_deliveries"),
        (lambda c: c.subscribe(queue="q", start="earliest"), "leave out start"),
        (lambda c: c.subscribe(mqtt_filter="a/#"), "use reader"),
        (lambda c: c.subscribe(mqtt_filter="a/#", subscription="s", kind="key_shared"), "not 'key_shared'"),
        (lambda c: c.subscribe("t", "s", exclusive=True), 'kind="exclusive"'),
        (lambda c: c.subscribe("t", "s", start=5), "not int"),
        (lambda c: c.subscribe(7, "s"), "topic is text, not int"),
        (lambda c: c.reader("t", queue="q"), "a reader needs one of"),
        (lambda c: c.producer(), "a producer needs one of"),
        (lambda c: c.producer("t", schema=list[int]), "Schema"),
    ],
)
def test_conflicting_arguments_are_named(wrong: Any, says: str) -> None:
    with pytest.raises(TypeError) as raised:
        wrong(penstock.Client("penstock://localhost"))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda c: c.reader("t", start=datetime(2024, 1, 1)), "time zone"),
        (lambda c: c.subscribe(mqtt_filter="$share/g/a", subscription="s"), r"\$share"),
        (lambda c: c.producer(mqtt_topic="a/#"), "wildcards"),
        (lambda c: c.producer("t", acks="some"), "acks is one of"),
    ],
)
def test_values_that_cannot_be_are_named(wrong: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wrong(penstock.Client("penstock://localhost"))


def test_the_sync_face_has_them_too(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url) as client:
        with (
            client.subscribe(mqtt_filter="w/#", subscription="w") as consumer,
            client.producer(mqtt_topic="w/1") as producer,
        ):
            producer.send("x")
            message = consumer.receive(WAIT_S)
            assert message is not None and message.routing_key == "w.1"
            consumer.ack(message, durable=True)
        assert client.admin.describe_queue("w")["ready"] == 0
        client.admin.delete_queue("w")
