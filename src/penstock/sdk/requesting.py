"""Requests and their replies: AMQP's `reply_to` and `correlation_id`.

All replies to a client come to one queue of its own, which the gateway names, and deletes with the
connection. So a request whose connection is lost gets no reply. A reply is known by its correlation id; one
that comes too late, or twice, is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.sdk.addresses import Opening
from penstock.sdk.checking import FOREVER_S, number
from penstock.sdk.consuming.consumer import Consumer
from penstock.sdk.errors import ClientError, ConnectionLost, NoReply
from penstock.sdk.producing.producer_cache import ProducerCache

if TYPE_CHECKING:
    from penstock.sdk.client import Client
    from penstock.sdk.connection.link import Link
    from penstock.sdk.message import Message

__all__ = ["Replying", "Requesting"]

_PREFETCH: Final = 10_000
_PREFETCH_BYTES: Final = 16 << 20
_MQTT: Final = "amq.topic"
_MQTT_REPLY: Final = "/topic/"
"""How the `reply_to` of an MQTT client begins, whose response topic follows as a routing key."""
_MQTT_CORRELATION: Final = "x-correlation-id"
"""The header with MQTT's correlation data that is no text."""


class _Replies(Consumer[bytes]):
    """The consumer of the client's queue of replies, and who waits for them."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, Opening("subscribe", {}, takes=False), _PREFETCH, _PREFETCH_BYTES)
        self.waiting_for: dict[str, asyncio.Future[Message[bytes]]] = {}
        """By correlation id."""
        self.queue = ""

    async def resume(self, link: Link) -> None:
        told = await link.request("declare_queue", queue="", durable=False, exclusive=True)
        self.queue = str(told["queue"])
        self._opening = self._opening._replace(fields={"queue": self.queue, "auto": True})
        await super().resume(link)

    def frame(self, kind: int, payload: bytes) -> None:
        super().frame(kind, payload)
        while (message := self._inbox.next()) is not None:
            reply = self.waiting_for.get(message.correlation_id or "")
            if reply is not None and not reply.done():
                reply.set_result(message)
        self._given()

    def paused(self) -> None:
        super().paused()
        self._fail(
            ConnectionLost(
                "the connection was lost before the reply came",
                remedy="request again; the request may have been handled or not",
            )
        )

    def failed(self, error: ClientError) -> None:
        super().failed(error)
        self._fail(error)

    def _fail(self, error: ClientError) -> None:
        for reply in self.waiting_for.values():
            if not reply.done():
                reply.set_exception(error)


class Requesting:
    """The requests of one client."""

    def __init__(self, client: Client) -> None:
        self._replies = _Replies(client)
        self._opening: asyncio.Future[_Replies] | None = None
        self._producers = ProducerCache(
            lambda **place: client.producer(**place, acks="written", mandatory=True, create=False)
        )
        self._last = 0

    async def request(
        self, place: Mapping[str, str], body: bytes | str, timeout_s: float, properties: Mapping[str, Any]
    ) -> Message[bytes]:
        """See `Client.request`."""
        number("timeout_s", timeout_s, 0, FOREVER_S)
        for name in ("reply_to", "correlation_id"):
            if name in properties:
                raise TypeError(f"a request says {name} itself: leave it out, or use a producer")
        self._last += 1
        id = str(self._last)
        replies = self._replies
        reply: asyncio.Future[Message[bytes]] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(_seen)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await self._open()
                replies.waiting_for[id] = reply
                await self._producers.send(
                    place,
                    body,
                    ttl_s=max((limit.when() or 0) - reply.get_loop().time(), 0),
                    persistent=False,
                    reply_to=replies.queue,
                    correlation_id=id,
                    **properties,
                )
                return await reply
        except TimeoutError:
            where = ", ".join(f"{name} {value!r}" for name, value in place.items() if value)
            raise NoReply(
                f"no reply came from {where} within {timeout_s:g} s",
                remedy="see whether a responder runs there; the request may have been handled or not",
            ) from None
        finally:
            replies.waiting_for.pop(id, None)

    async def _open(self) -> None:
        """The queue of replies is there."""
        if self._opening is None or (self._opening.done() and not self._replies.handle):
            self._opening = asyncio.ensure_future(self._replies.open())
        await asyncio.shield(self._opening)


class Replying:
    """The replies that one client sends."""

    def __init__(self, client: Client) -> None:
        self._producers = ProducerCache(lambda **place: client.producer(**place, acks="written"))

    async def reply(self, message: Message[Any], body: bytes | str, properties: Mapping[str, Any]) -> None:
        """See `Client.reply`."""
        to = message.reply_to
        if to is None:
            raise ClientError(
                f"{message!r} wants no reply: it has no reply_to", remedy="acknowledge it without a reply"
            )
        place = {"queue": to}
        if to.startswith(_MQTT_REPLY):
            place = {"exchange": _MQTT, "routing_key": to.removeprefix(_MQTT_REPLY)}
        properties = dict(properties)
        if message.correlation_id is not None:
            properties.setdefault("correlation_id", message.correlation_id)
        elif _MQTT_CORRELATION in message.headers:
            correlation = {_MQTT_CORRELATION: message.headers[_MQTT_CORRELATION]}
            properties["headers"] = {**correlation, **(properties.get("headers") or {})}
        await self._producers.send(place, body, persistent=False, **properties)


def _seen(reply: asyncio.Future[Message[bytes]]) -> None:
    """Its exception is ignored: whoever waited for it has given up, or is told."""
    if not reply.cancelled():
        reply.exception()
