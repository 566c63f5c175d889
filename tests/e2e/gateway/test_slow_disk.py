"""A reader whose start time must be found on disk waits alone, over every protocol."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest

import penstock
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.testing import Gateway
from tests.support.logs import held_readers
from tests.support.pika_queues import confirming

WAIT_S = 120.0
HALF = 800
BODY = b"x" * 4000
STREAM = {"x-queue-type": "stream"}


def log_of(gateway: Gateway) -> Log:
    log = gateway._log
    assert log is not None
    return log


def on_loop(gateway: Gateway, call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return call()

    loop = gateway._loop
    assert loop is not None
    return asyncio.run_coroutine_threadsafe(run(), loop).result(WAIT_S)


def amqp_port(gateway: Gateway) -> int:
    return gateway.listener("amqp")


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(settings={"log.segment_bytes": "1MiB"}) as gateway:
        yield gateway


@pytest.fixture
def since_ms(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> int:
    """Stream s and queue q by turns, whose older entries are on the disk only: a time in the middle."""
    with confirming(amqp_port(gateway)) as channel:
        channel.queue_declare("s", durable=True, arguments=STREAM)
        channel.queue_bind("s", "amq.topic", "plant.#")
        channel.queue_declare("q", durable=True)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port(gateway))) as connection:
        channel = connection.channel()
        for i in range(2 * HALF):
            if i == HALF:
                channel.queue_declare("q", passive=True)  # all before was handled
                gateway.advance(60)
            channel.basic_publish("amq.topic", "plant.a", b"%d " % i + BODY)
            channel.basic_publish("", "q", BODY)
        channel.queue_declare("q", passive=True)
    log = log_of(gateway)

    def spill() -> bool:
        closed = log._segments.live[:-1]
        if not all(segment.indexed for segment in closed):
            return False
        for segment in closed:
            for feed in segment.feeds:
                feed.spill(segment.base_lsn)
        return True

    until(lambda: on_loop(gateway, spill))

    def on_the_loop(feed: Feed, base: int) -> bytes:
        raise AssertionError(f"the loop reads the entries of feed {feed.id} from the disk")

    monkeypatch.setattr(log._feeds, "load_chunk", on_the_loop)
    return int(gateway.now() * 1000) - 30_000


# Readers that begin in the middle: each gets the second half, in order.


def number_of(body: bytes) -> int:
    return int(body.split(b" ", 1)[0])


def by_amqp(gateway: Gateway, since_ms: int) -> list[int]:
    found: list[int] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port(gateway))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        start = {"x-stream-offset": f"{int(gateway.now() - since_ms / 1000)}s"}
        for method, body in iter_consumed(channel, start):
            found.append(number_of(body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == HALF:
                break
    return found


def iter_consumed(channel: Any, arguments: dict[str, Any]) -> Iterator[tuple[Any, bytes]]:
    for method, _, body in channel.consume("s", arguments=arguments, inactivity_timeout=WAIT_S):
        assert method is not None, "nothing came"
        yield method, body


def by_native(gateway: Gateway, since_ms: int) -> list[int]:
    async def read() -> list[int]:
        async with (
            penstock.connect(gateway.url) as client,
            client.reader("s", start=datetime.fromtimestamp(since_ms / 1000, UTC)) as reader,
        ):
            found: list[int] = []
            while len(found) < HALF:
                message = await reader.receive(timeout_s=WAIT_S)
                assert message is not None
                found.append(number_of(message.body))
            return found

    return asyncio.run(read())


def by_http(gateway: Gateway, since_ms: int) -> list[int]:
    with httpx.Client(
        base_url=f"{gateway.http_url}/v1/vhosts/%2F/", auth=("guest", "guest"), timeout=WAIT_S
    ) as http:
        found: list[int] = []
        start = rfc3339(since_ms)
        while len(found) < HALF:
            answer = http.get("streams/s/messages", params={"from": start, "max": "200"})
            assert answer.status_code == 200, answer.text
            found += [number_of(one["value"].encode()) for one in answer.json()["messages"]]
            start = str(answer.json()["next"])
    return found


def by_mqtt(gateway: Gateway, since_ms: int) -> list[int]:
    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    client = mqtt_client(gateway)
    client.on_message = lambda *told: got.put(number_of(told[2].payload))
    client.on_connect = lambda *_: client.subscribe(f"$replay/{rfc3339(since_ms)}/plant/#")
    client.loop_start()
    try:
        return [got.get(timeout=WAIT_S) for _ in range(HALF)]
    finally:
        client.disconnect()
        client.loop_stop()


def rfc3339(since_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since_ms / 1000))


def mqtt_client(gateway: Gateway) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
    client.username_pw_set("guest", "guest")
    client.connect("127.0.0.1", gateway.mqtt_port)
    return client


# Other clients meanwhile


def amqp_is_served(gateway: Gateway) -> None:
    with confirming(amqp_port(gateway)) as channel:
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", name, b"meanwhile")
        assert channel.basic_get(name)[2] == b"meanwhile"


def native_is_served(gateway: Gateway) -> None:
    async def talk() -> None:
        async with penstock.connect(gateway.url) as client:
            await client.admin.create_topic("native")
            async with client.reader("native") as reader, client.producer("native") as producer:
                await producer.send(b"meanwhile")
                message = await reader.receive(timeout_s=WAIT_S)
                assert message is not None and message.body == b"meanwhile"

    asyncio.run(talk())


def http_is_served(gateway: Gateway) -> None:
    base = f"{gateway.http_url}/v1/vhosts/%2F/"
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=WAIT_S) as http:
        assert http.put("streams/http").status_code in (200, 201)
        assert http.get("streams/http/messages", params={"from": "next"}).json()["messages"] == []


def mqtt_is_served(gateway: Gateway) -> None:
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    client = mqtt_client(gateway)
    client.on_message = lambda *told: got.put(told[2].payload)
    client.on_subscribe = lambda *_: client.publish("meanwhile", b"meanwhile", qos=1)
    client.on_connect = lambda *_: client.subscribe("meanwhile", qos=1)
    client.loop_start()
    try:
        assert got.get(timeout=WAIT_S) == b"meanwhile"
    finally:
        client.disconnect()
        client.loop_stop()


def test_nobody_else_waits_for_what_one_reads_from_the_disk(gateway: Gateway, since_ms: int) -> None:
    readers = [by_amqp, by_native, by_http, by_mqtt]
    log = log_of(gateway)
    with ThreadPoolExecutor(len(readers)) as threads:
        with held_readers(log):
            waiting = [threads.submit(partial(read, gateway, since_ms)) for read in readers]
            until(
                lambda: (
                    log.reader._pool._work_queue.qsize() >= len(readers) or any(one.done() for one in waiting)
                )
            )
            for serve in (amqp_is_served, native_is_served, http_is_served, mqtt_is_served):
                serve(gateway)
            assert [one.done() for one in waiting] == [False] * len(readers)
        for one in waiting:
            assert one.result(WAIT_S) == list(range(HALF, 2 * HALF))


def test_a_failed_search_for_a_start_time_is_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody thought of, in a reader thread: each is told, in its protocol's words."""
    with confirming(amqp_port(gateway)) as channel:
        channel.queue_declare("s", durable=True, arguments=STREAM)

        def broken(time_ms: int) -> int:
            raise RuntimeError("a fault of this test")

        monkeypatch.setattr(log_of(gateway).reader, "position_for_time", broken)
        channel.basic_qos(prefetch_count=1)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.basic_consume("s", lambda *_: None, arguments={"x-stream-offset": "1h"})
        assert refused.value.reply_code == 541
    base = f"{gateway.http_url}/v1/vhosts/%2F/"
    answer = httpx.get(
        f"{base}streams/s/messages", params={"from": "-1h"}, auth=("guest", "guest"), timeout=WAIT_S
    )
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")

    async def read() -> None:
        async with penstock.connect(gateway.url) as client, client.reader("s", start=timedelta(hours=1)):
            pass

    with pytest.raises(penstock.ClientError, match="the disk could not be read"):
        asyncio.run(read())
    assert "a fault of this test" in caplog.text
