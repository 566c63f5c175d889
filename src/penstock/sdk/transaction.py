"""Sends and acknowledgements that happen together or not at all: one atomic unit of the gateway's log."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._records import encode_records
from penstock.sdk.consuming.consumer import Consumer
from penstock.sdk.consuming.ranges import joined, packed
from penstock.sdk.errors import ClientError
from penstock.sdk.message import Message
from penstock.sdk.producing.producer import Producer

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.sdk.client import Client

__all__ = ["Transaction"]


class Transaction:
    """`async with client.transaction() as tx`: committed at the end, aborted when the block raises.

    Nothing leaves this process before the commit. When the connection is lost while it commits, it may have
    happened or not: ConnectionLost says so.
    """

    def __init__(self, client: Client, producer: Producer[Any] | None = None) -> None:
        self._client = client
        self._producer = producer
        self._sends: dict[Producer[Any], tuple[list[bytes], list[bytes]]] = {}
        self._acks: dict[Consumer[Any], list[Message[Any]]] = {}

    def send(
        self,
        body: Any,
        *,
        to: Producer[Any] | None = None,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        ttl_s: float | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a message by `to`, or by the producer the transaction was made by, with the commit.

        It cannot be delayed. The arguments are those of `Producer.send`, but for `properties`.
        """
        producer = to or self._producer
        if producer is None:
            raise ClientError("the transaction has no producer of its own", remedy="say by whom: to=producer")
        if not isinstance(producer, Producer):
            raise TypeError(f"to is a producer that is open, not {type(producer).__name__}: to=producer")
        self._check_ours(producer.client, f"the producer to {producer.place}")
        body, block = producer.encoded(body, key=key, headers=headers, ttl_s=ttl_s, properties=properties)
        bodies, props = self._sends.setdefault(producer, ([], []))
        bodies.append(body)
        props.append(block)

    def ack(self, messages: Message[Any] | Iterable[Message[Any]]) -> None:
        """They are done with the commit."""
        for message in messages if isinstance(messages, Iterable) else [messages]:
            if not isinstance(message, Message):
                raise TypeError(f"messages are settled as they were received, not {type(message).__name__}")
            consumer = message.source.consumer
            self._check_ours(consumer.client, f"the consumer of {consumer.place}")
            consumer.ranges(message)
            self._acks.setdefault(consumer, []).append(message)

    def _check_ours(self, client: object, what: str) -> None:
        """It is of one connection, whose handles mean something else to others. Raises ValueError."""
        if client is not self._client:
            raise ValueError(
                f"{what} belongs to another client: a transaction uses objects of one client only"
            )

    async def commit(self) -> None:
        """Do it. Raises ClientError: nothing happened; ConnectionLost: nobody knows."""
        sends, self._sends = self._sends, {}
        acks, self._acks = self._acks, {}
        if not sends and not acks:
            return
        link = await self._client.link()
        parts = [struct.pack(">HH", len(sends), len(acks))]
        for producer, (bodies, props) in sends.items():
            producer.check()
            records = encode_records(bodies, props)
            parts += struct.pack(">III", producer.handle, len(bodies), len(records)), records
        for consumer, messages in acks.items():
            ranges = joined(consumer.ranges(messages))
            parts += struct.pack(">II", consumer.handle, len(ranges)), packed(ranges)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        link.send(kinds.TRANSACT, link.number(answer), b"".join(parts))
        await answer

    def abort(self) -> None:
        """Forget it."""
        self._sends.clear()
        self._acks.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()
        else:
            self.abort()
