"""Members of groups that share messages, over three protocols and by unmodified clients, with one face.

A member tells its ledger what comes and what it is about to say; `held` is what it has and said nothing of,
with what its client needs to settle it. All of it happens on one event loop: paho's own thread hands over.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Any

import paho.mqtt.client as mqtt
import pika
from pika.adapters.asyncio_connection import AsyncioConnection

import penstock
from penstock.testing import Gateway
from tests.e2e.mqtt.mqtt_clients import Client as MqttClient
from tests.support.limits import LIMIT_S
from tests.support.sharing import Ledger

__all__ = ["Amqp", "Member", "Mqtt", "Sdk"]

PREFETCH = 8


class Member:
    """One consumer of a group. Subclasses speak a protocol."""

    can_give_back = True

    def __init__(self, gateway: Gateway, ledger: Ledger, name: str) -> None:
        self.gateway = gateway
        self.ledger = ledger
        self.name = name
        self.held: dict[int, Any] = {}
        self.news = asyncio.Event()
        """Something came, or the scenario ends."""
        self._gone = False

    async def open(self) -> None:
        raise NotImplementedError

    def _came(self, body: bytes, handle: Any, *, redelivered: bool) -> None:
        if not self._gone:
            self.ledger.came(self.name, int(body), redelivered)
            self.held[int(body)] = handle
            self.news.set()

    async def ack(self, numbers: Iterable[int]) -> None:
        """They are done."""
        handles = [(number, self.held.pop(number)) for number in numbers]
        self.ledger.acknowledges(self.name, [number for number, _ in handles])
        await self._ack([handle for _, handle in handles])

    async def give_back(self, numbers: Iterable[int], *, later: bool) -> None:
        """They come again."""
        handles = [(number, self.held.pop(number)) for number in numbers]
        self.ledger.gives(self.name, [number for number, _ in handles])
        await self._give_back([handle for _, handle in handles], later)

    async def confirm(self) -> None:
        """Wait until the gateway has seen all that was acknowledged."""
        await self._confirm()
        self.ledger.confirmed(self.name, "an answer")

    async def close(self) -> None:
        """Leave as one that is done."""
        self._gone = True
        self.held.clear()
        self.ledger.leaves(self.name)
        await self._close()
        self.ledger.confirmed(self.name, "closing")

    async def lose(self) -> None:
        """Vanish."""
        self._gone = True
        self.held.clear()
        self.ledger.loses(self.name)
        await self._lose()

    async def _ack(self, handles: list[Any]) -> None:
        raise NotImplementedError

    async def _give_back(self, handles: list[Any], later: bool) -> None:
        raise NotImplementedError

    async def _confirm(self) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    async def _lose(self) -> None:
        raise NotImplementedError


class Sdk(Member):
    """The SDK, of a key-shared subscription `s` of the topic `all`, or of the queue `jobs`."""

    def __init__(self, gateway: Gateway, ledger: Ledger, name: str, *, queue: bool = False) -> None:
        super().__init__(gateway, ledger, name)
        self._queue = queue

    async def open(self) -> None:
        self._client = penstock.connect(self.gateway.url, connect_timeout_s=LIMIT_S, close_timeout_s=LIMIT_S)
        await self._client.__aenter__()
        subscribe = self._client.subscribe
        consumer = (
            subscribe(queue="jobs", prefetch=PREFETCH)
            if self._queue
            else subscribe(
                "all",
                "s",
                kind="key_shared",
                start="earliest",
                prefetch=PREFETCH,
                consumer=self.name,
                nack_backoff_s=(0.01, 0.04),
            )
        )
        self._consumer = await consumer.open()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._consumer:
            self._came(message.body, message, redelivered=message.redelivered)

    async def _ack(self, handles: list[Any]) -> None:
        await self._consumer.ack(handles)

    async def _give_back(self, handles: list[Any], later: bool) -> None:
        await self._consumer.nack(handles, delay_s=None if later else 0)

    async def _confirm(self) -> None:
        await asyncio.sleep(0)  # acknowledgements go out at the end of a turn of the loop
        await self._client.admin.describe("all")

    async def _close(self) -> None:
        await self._end_reading()
        await self._consumer.close()
        await self._client.close()

    async def _lose(self) -> None:
        (await self._client.link()).abort()
        await self._end_reading()
        await self._client.close()

    async def _end_reading(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


class Amqp(Member):
    """pika, of the queue `jobs`."""

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = loop.create_future()
        self._closed: asyncio.Future[Any] = loop.create_future()
        parameters = pika.URLParameters(self.gateway.amqp_url)
        parameters.heartbeat = 0
        self._connection = AsyncioConnection(
            parameters,
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _, error: opened.set_exception(error),
            on_close_callback=lambda _, reason: self._closed.set_result(reason),
            custom_ioloop=loop,
        )
        await asyncio.wait_for(opened, LIMIT_S)
        self._channel = await self._called(lambda done: self._connection.channel(on_open_callback=done))
        await self._called(lambda done: self._channel.basic_qos(prefetch_count=PREFETCH, callback=done))
        await self._called(lambda done: self._channel.basic_consume("jobs", self._delivered, callback=done))

    @staticmethod
    async def _called(call: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call(answer.set_result)
        return await asyncio.wait_for(answer, LIMIT_S)

    def _delivered(self, _: Any, method: Any, __: Any, body: bytes) -> None:
        self._came(body, method.delivery_tag, redelivered=method.redelivered)

    async def _ack(self, handles: list[Any]) -> None:
        for tag in handles:
            self._channel.basic_ack(tag)

    async def _give_back(self, handles: list[Any], later: bool) -> None:
        for tag in handles:
            if later:
                self._channel.basic_reject(tag, requeue=True)
            else:
                self._channel.basic_nack(tag, requeue=True)

    async def _confirm(self) -> None:
        await self._called(lambda done: self._channel.basic_qos(prefetch_count=PREFETCH, callback=done))

    async def _close(self) -> None:
        self._connection.close()
        await asyncio.wait_for(self._closed, LIMIT_S)

    async def _lose(self) -> None:
        # Its socket, for pika's own abort is for pika alone.
        self._connection._transport._sock.shutdown(socket.SHUT_RDWR)
        await asyncio.wait_for(self._closed, LIMIT_S)


class Mqtt(Member):
    """paho, of the group `topics` that shares `plant/#` by topic; what it has it cannot give back."""

    can_give_back = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = await asyncio.to_thread(
            lambda: MqttClient(self.gateway.mqtt_port, self.name, version=5, keepalive_s=0)
        )
        self._client.paho.manual_ack_set(True)
        self._client.paho.on_message = self._message
        await asyncio.to_thread(self._client.subscribe, "$share/topics/plant/#", 1)

    def _message(self, _: Any, __: Any, message: mqtt.MQTTMessage) -> None:
        self._loop.call_soon_threadsafe(
            lambda: self._came(message.payload, (message.mid, message.qos), redelivered=message.dup)
        )

    async def _ack(self, handles: list[Any]) -> None:
        for mid, qos in handles:
            self._client.paho.ack(mid, qos)

    async def _confirm(self) -> None:
        await asyncio.to_thread(self._client.subscribe, "nothing/of/this", 0)

    async def _close(self) -> None:
        # DISCONNECT has no answer, and who closes with something unread takes back what is not sent yet.
        await self._confirm()
        await asyncio.to_thread(self._client.close)

    async def _lose(self) -> None:
        await asyncio.to_thread(self._client.drop)
