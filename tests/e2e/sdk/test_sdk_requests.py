"""Requests and replies of the SDK, with pika, paho and HTTP on the other side."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import penstock
import penstock.sync
from penstock.testing import Gateway
from tests.support.limits import LIMIT_S

WAIT_S = 60.0


@contextmanager
def amqp(gateway: Gateway) -> Iterator[Any]:
    """A channel of pika's."""
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def square(message: penstock.Message) -> str:
    return str(int(message.body) ** 2)


@contextmanager
def squares(gateway: Gateway, **place: Any) -> Iterator[None]:
    """A responder without asyncio, in a thread."""
    with (
        penstock.sync.connect(gateway.url) as client,
        client.subscribe(**(place or {"queue": "squares"})) as requests,
    ):
        thread = threading.Thread(target=requests.respond, args=(4, square))
        thread.start()
        try:
            yield
        finally:
            requests.stop()
            thread.join(WAIT_S)
            assert not thread.is_alive()


def pika_rpc(channel: Any, reply_queue: str, body: bytes) -> tuple[Any, bytes]:
    """The reply, as in RabbitMQ's tutorial; with its properties."""
    replies: list[tuple[Any, bytes]] = []
    channel.basic_consume(reply_queue, lambda *found: replies.append(found[2:]), auto_ack=True)
    asked = pika.BasicProperties(reply_to=reply_queue, correlation_id="pika-7")
    channel.basic_publish("", "squares", body, asked)
    channel.connection.process_data_events(time_limit=None)
    return replies[0]


async def test_many_requests_are_under_way_at_once(client: penstock.Client, gateway: Gateway) -> None:
    await client.admin.declare_queue("squares")
    entered, all_in = 0, asyncio.Event()

    async def handle(message: penstock.Message) -> str:
        nonlocal entered
        entered += 1
        if entered == 50:
            all_in.set()
        await all_in.wait()
        return square(message)

    async with (
        penstock.connect(gateway.url) as other,
        other.subscribe(queue="squares") as requests,
    ):
        responding = asyncio.create_task(requests.respond(100, handle))
        replies = await asyncio.gather(
            *(client.request(str(n), queue="squares", timeout_s=WAIT_S) for n in range(50))
        )
        assert [int(reply.body) for reply in replies] == [n**2 for n in range(50)]
        requests.stop()
        await responding
        assert (await client.admin.describe_queue("squares"))["ready"] == 0


@pytest.mark.parametrize("direct", [True, False])
def test_pika_requests(gateway: Gateway, direct: bool) -> None:
    with amqp(gateway) as channel:
        channel.queue_declare("squares")
        queue = "amq.rabbitmq.reply-to"
        if not direct:
            queue = channel.queue_declare("", exclusive=True).method.queue
        with squares(gateway):
            properties, body = pika_rpc(channel, queue, b"12")
        assert (body, properties.correlation_id) == (b"144", "pika-7")


async def test_pika_responds(client: penstock.Client, gateway: Gateway) -> None:
    await client.admin.declare_queue("squares")
    seen: list[Any] = []

    def respond() -> None:
        with amqp(gateway) as channel:
            for method, properties, body in channel.consume("squares", inactivity_timeout=WAIT_S):
                seen.append(properties)
                answer = pika.BasicProperties(correlation_id=properties.correlation_id)
                channel.basic_publish("", properties.reply_to, str(int(body) ** 2), answer)
                channel.basic_ack(method.delivery_tag)
                if len(seen) == 2:
                    break
            channel.cancel()

    responder = asyncio.create_task(asyncio.to_thread(respond))
    described = {"headers": {"n": 1}, "content_type": "text/plain"}
    one = await client.request("12", queue="squares", timeout_s=WAIT_S, **described)
    two = await client.request(b"13", exchange="", routing_key="squares", timeout_s=WAIT_S)
    await responder
    assert (one.body, two.body) == (b"144", b"169")
    assert (seen[0].headers, seen[0].content_type) == ({"n": 1}, "text/plain")
    assert 0 < int(seen[0].expiration) <= WAIT_S * 1000
    assert seen[0].reply_to == seen[1].reply_to and seen[0].correlation_id != seen[1].correlation_id


def test_mqtt_and_http_clients_take_part(gateway: Gateway) -> None:
    """An MQTT 5 client requests by a topic and is answered at another; HTTP answers a direct reply-to."""
    with (
        amqp(gateway) as channel,
        httpx.Client(base_url=gateway.http_url, auth=("guest", "guest"), timeout=LIMIT_S) as http,
    ):
        with squares(gateway, mqtt_filter="ask/square", subscription="squares"):
            told = threading.Event()
            replies: list[Any] = []
            mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
            mqtt.on_subscribe = lambda *_: told.set()
            mqtt.connect("127.0.0.1", gateway.mqtt_port)
            mqtt.loop_start()
            mqtt.subscribe("answers/me", 1)
            assert told.wait(WAIT_S)
            arrived = threading.Event()
            mqtt.on_message = lambda _c, _u, message: (replies.append(message), arrived.set())
            asked = Properties(PacketTypes.PUBLISH)
            asked.ResponseTopic, asked.CorrelationData = "answers/me", b"\x00\xff7"
            mqtt.publish("ask/square", "12", 1, properties=asked)
            assert arrived.wait(WAIT_S)
            mqtt.disconnect()
            mqtt.loop_stop()
            assert (replies[0].payload, replies[0].properties.CorrelationData) == (b"144", b"\x00\xff7")

        channel.queue_declare("by-http")
        answers: list[bytes] = []
        channel.basic_consume("amq.rabbitmq.reply-to", lambda *found: answers.append(found[3]), auto_ack=True)
        asked_by_amqp = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="9")
        channel.basic_publish("", "by-http", b"?", asked_by_amqp)
        pulled = http.post("/v1/vhosts/%2F/queues/by-http/pull", json={"wait_ms": 10_000}).json()
        address = pulled["messages"][0]["reply_to"]
        reply = f"/v1/vhosts/%2F/queues/{address}/messages?mandatory=true"
        kept = http.post(reply, json={"value": "!"})
        assert (kept.status_code, kept.json()["results"][0]["routed"]) == (200, True), kept.text
        channel.connection.process_data_events(time_limit=None)
        assert answers == [b"!"]
        channel.close()
        assert http.post(reply.partition("?")[0], json={"value": "?"}).status_code == 404


async def test_without_a_reply_the_request_says_why(client: penstock.Client, gateway: Gateway) -> None:
    await client.admin.declare_queue("squares")
    why = r"no reply came from queue 'squares' within 0\.05 s"
    with pytest.raises(penstock.NoReply, match=why) as raised:
        await client.request("1", queue="squares", timeout_s=0.05)
    assert raised.value.retryable
    gateway.advance(1)
    async with client.subscribe(queue="squares") as requests:
        assert await requests.receive(0.2) is None, "nobody waits for its reply, and it left the queue"
    with pytest.raises(penstock.NotFound, match="there is no topic or queue"):
        await client.request("1", queue="nowhere")
    with pytest.raises(penstock.Unroutable, match=r"exchange 'amq\.topic', key 'no'"):
        await client.request("1", exchange="amq.topic", routing_key="no")
    with pytest.raises(TypeError, match="says reply_to itself"):
        await client.request("1", queue="squares", reply_to="mine")
    with pytest.raises(TypeError, match="a producer needs one of"):
        await client.request("1")
    with penstock.sync.connect(gateway.url) as other:
        asking = asyncio.create_task(asyncio.to_thread(other.request, "1", queue="squares"))
        async with client.subscribe(queue="squares") as requests:
            request = await requests.receive()
            await asyncio.to_thread(other.close)
            with pytest.raises(penstock.Closed):
                await asking
            with pytest.raises(penstock.NotFound):
                await client.reply(request, "late")


async def test_a_lost_connection_fails_requests_and_the_next_ones_are_answered(
    client: penstock.Client, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.sdk")
    await client.admin.declare_queue("squares")
    async with penstock.connect(gateway.url) as other, other.subscribe(queue="squares") as requests:
        asking = asyncio.create_task(client.request("1", queue="squares", timeout_s=WAIT_S))
        request = await requests.receive()
        link = client._link
        assert link is not None
        link.abort()
        with pytest.raises(penstock.ConnectionLost, match="before the reply came"):
            await asking
        await client.link()
        with pytest.raises(penstock.NotFound):
            await other.reply(request, "nobody waits")
        responding = asyncio.create_task(requests.respond(1, square))
        assert (await client.request("12", queue="squares", timeout_s=WAIT_S)).body == b"144"
        async with client.producer(queue="squares") as producer:
            await producer.send("5")
            await producer.send("5", reply_to="gone", correlation_id="1")
        assert (await client.request("3", queue="squares", timeout_s=WAIT_S)).body == b"9"
        requests.stop()
        await responding
    assert "nobody waits for the reply" in caplog.text


async def test_replies_to_many_requesters_keep_few_producers_open(
    client: penstock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sdk.producing.producer_cache._MOST", 3)
    names = [f"replies-{n}" for n in range(8)]
    await client.admin.declare_queue("squares")
    for name in names:
        await client.admin.declare_queue(name)
    async with client.subscribe(queue="squares") as requests, client.producer(queue="squares") as producer:
        responding = asyncio.create_task(requests.respond(4, square))
        for _ in range(2):
            await asyncio.gather(*(producer.send("2", reply_to=name) for name in names))
        for name in names:
            async with client.subscribe(queue=name) as replies:
                assert [(await replies.receive()).body for _ in range(2)] == [b"4", b"4"]
        requests.stop()
        await responding
        assert len(client._members) <= 2 + 3
