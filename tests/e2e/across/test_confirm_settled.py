"""`log.confirm_settled`: only a message that all its queues have settled is confirmed without the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest

from penstock.testing import Gateway

WAIT_S = 120.0
SHORT_S = 0.3
"""So long a confirm is watched that must not come: one that came would be noticed, if not always."""
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class HeldCommitter:
    """A committer whose syncs wait until `release`; everything else is the real one's."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._wanted: list[tuple[Any, ...]] | None = []

    def want(self, *what: Any) -> None:
        """Sync, or note that it is wanted."""
        if self._wanted is None:
            self._real.want(*what)
        else:
            self._wanted.append(what)

    def release(self) -> None:
        """Let all syncs go on, those that are wanted by now at once."""
        wanted, self._wanted = self._wanted, None
        for what in wanted or ():
            self._real.want(*what)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Disk:
    """The disk of a gateway in this process."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._held: HeldCommitter | None = None

    def _on_loop(self, call: Callable[[], None]) -> None:
        async def run() -> None:
            call()

        assert self._gateway._loop is not None
        asyncio.run_coroutine_threadsafe(run(), self._gateway._loop).result(WAIT_S)

    def hold(self) -> None:
        """Sync nothing from now on."""

        def call() -> None:
            log: Any = self._gateway._log
            self._held = HeldCommitter(log.committer)
            log.committer = self._held

        self._on_loop(call)

    def release(self) -> None:
        """Sync again."""
        if self._held is not None:
            self._on_loop(self._held.release)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(settings={"log.confirm_settled": "true", "log.fsync": "group"}) as gateway:
        yield gateway


@pytest.fixture
def disk(gateway: Gateway) -> Iterator[Disk]:
    disk = Disk(gateway)
    yield disk
    disk.release()


class Publisher:
    """Publishes in a thread of its own, and waits for each confirm."""

    def __init__(self, gateway: Gateway) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._channel: Any = self._pool.submit(self._open, gateway.listener("amqp")).result(WAIT_S)

    @staticmethod
    def _open(port: int) -> Any:
        channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
        channel.confirm_delivery()
        return channel

    def publish(self, exchange: str, key: str) -> Future[None]:
        """Done once it is confirmed."""
        return self._pool.submit(self._channel.basic_publish, exchange, key, b"x", PERSISTENT)

    def close(self) -> None:
        self._pool.submit(self._channel.connection.close).result(WAIT_S)
        self._pool.shutdown()


@pytest.fixture
def publisher(gateway: Gateway) -> Iterator[Publisher]:
    publisher = Publisher(gateway)
    yield publisher
    publisher.close()


class Consumer:
    """Consumes in a thread of its own, with or without automatic acknowledgement."""

    def __init__(self, gateway: Gateway, queue: str, *, auto_ack: bool) -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.listener("amqp"))
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.queue_declare(queue, durable=True)
        self._channel.queue_bind(queue, "amq.fanout")
        self.got = 0
        self._channel.basic_consume(queue, self._on_message, auto_ack=auto_ack)
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._channel.start_consuming)

    def _on_message(self, *_: Any) -> None:
        self.got += 1

    def close(self) -> None:
        self._connection.add_callback_threadsafe(self._channel.stop_consuming)
        self._running.result(WAIT_S)
        self._connection.close()
        self._pool.shutdown()


def is_held(confirm: Future[None]) -> bool:
    """Whether the confirm does not come while the disk is held."""
    try:
        confirm.result(SHORT_S)
    except Late:
        return True
    return False


def settle_first(publisher: Publisher, disk: Disk, exchange: str, key: str) -> None:
    """Have nothing wait for the disk but what comes from now on; the first of a route writes state."""
    publisher.publish(exchange, key).result(WAIT_S)
    disk.hold()


def test_a_message_that_is_settled_at_once_needs_no_disk(
    gateway: Gateway, disk: Disk, publisher: Publisher
) -> None:
    consumer = Consumer(gateway, "work", auto_ack=True)
    settle_first(publisher, disk, "", "work")
    for _ in range(50):
        publisher.publish("", "work").result(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while consumer.got < 51:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    consumer.close()


def test_a_message_that_a_consumer_still_holds_needs_the_disk(
    gateway: Gateway, disk: Disk, publisher: Publisher
) -> None:
    consumer = Consumer(gateway, "held", auto_ack=False)
    settle_first(publisher, disk, "", "held")
    confirm = publisher.publish("", "held")
    assert is_held(confirm)
    disk.release()
    confirm.result(WAIT_S)
    consumer.close()


@pytest.mark.parametrize("other", ["queue", "stream", "session"])
def test_a_message_that_anything_else_keeps_needs_the_disk(
    gateway: Gateway, disk: Disk, publisher: Publisher, other: str
) -> None:
    consumer = Consumer(gateway, "taken", auto_ack=True)
    admin = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.listener("amqp")))
    channel = admin.channel()
    if other == "session":
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "away", clean_session=False)  # type: ignore[attr-defined]
        client.connect("127.0.0.1", gateway.listener("mqtt"))
        client.loop_start()
        subscribed = Future[None]()
        client.on_subscribe = lambda *_: subscribed.set_result(None)
        client.subscribe("t", 1)
        subscribed.result(WAIT_S)
        client.disconnect()
        client.loop_stop()
        channel.queue_bind("taken", "amq.topic", "t")
        exchange, key = "amq.topic", "t"
    else:
        arguments = {"x-queue-type": "stream"} if other == "stream" else {}
        channel.queue_declare("kept", durable=True, arguments=arguments)
        channel.queue_bind("kept", "amq.direct", "both")
        channel.queue_bind("taken", "amq.direct", "both")
        exchange, key = "amq.direct", "both"
    settle_first(publisher, disk, exchange, key)
    confirm = publisher.publish(exchange, key)
    assert is_held(confirm)
    disk.release()
    confirm.result(WAIT_S)
    admin.close()
    consumer.close()


def test_messages_behind_one_that_needs_the_disk_wait_too(
    gateway: Gateway, disk: Disk, publisher: Publisher
) -> None:
    """Confirms go by position: one that is not settled holds all behind it, until the next sync."""
    consumer = Consumer(gateway, "mine", auto_ack=True)
    admin = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.listener("amqp")))
    admin.channel().queue_declare("nobodys", durable=True)
    second = Publisher(gateway)
    publisher.publish("", "nobodys").result(WAIT_S)
    settle_first(publisher, disk, "", "mine")
    first = publisher.publish("", "nobodys")
    assert is_held(first)
    behind = second.publish("", "mine")
    assert is_held(behind)
    disk.release()
    first.result(WAIT_S)
    behind.result(WAIT_S)
    second.publish("", "mine").result(WAIT_S)
    second.close()
    admin.close()
    consumer.close()


def test_it_is_off_by_default() -> None:
    with Gateway(settings={"log.fsync": "group"}) as gateway:
        disk = Disk(gateway)
        publisher = Publisher(gateway)
        consumer = Consumer(gateway, "work", auto_ack=True)
        settle_first(publisher, disk, "", "work")
        confirm = publisher.publish("", "work")
        assert is_held(confirm)
        disk.release()
        confirm.result(WAIT_S)
        publisher.close()
        consumer.close()
