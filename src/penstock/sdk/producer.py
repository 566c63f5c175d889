"""A producer: gathers messages into batches, keeps them until they are confirmed, sends them again.

A batch is sent when it is full, when its oldest message has waited `linger`, or on `flush`. Until its confirm
comes it is kept; after a reconnect all that are kept are sent again in their order. With a name the gateway
knows their numbers and keeps each once; without one what was sent twice may be there twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Generic

from penstock.protocols.native import kinds
from penstock.protocols.native._records import fitting
from penstock.sdk.errors import BufferFull, ClientError, Closed, ConnectionLost, Fenced, from_wire, too_large
from penstock.sdk.message import PLAIN, MessageId, properties_block
from penstock.sdk.pending import Pending, Sent
from penstock.sdk.schema import body_of

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.client import Client
    from penstock.sdk.half import Answering, Group, Half
    from penstock.sdk.link import Link
    from penstock.sdk.schema import Codec
    from penstock.sdk.transaction import Transaction

    T = TypeVar("T", default=bytes | str)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Producer"]

_ACKS: Final = {"all": kinds.ACKS_FSYNC, "written": kinds.ACKS_WRITTEN, "none": kinds.ACKS_NONE}
_CONFIRM: Final = struct.Struct(">QQII")
_PREPARE: Final = struct.Struct(">III")
_NO_SPAN: Final = nullcontext()
_NUMBERS: Final = 2**31
"""Numbers of a named producer's messages begin again at 0 from here on."""
logger: Final = logging.getLogger("penstock.sdk")
_HEAD_BYTES: Final = 64
"""More than a frame has besides its records."""
_RECORD_BYTES: Final = 64
"""What a message counts for besides its bytes."""


class Producer(Generic[T]):
    """Made by `Client.producer`; `async with` opens it, and flushes and closes it at the end."""

    def __init__(
        self,
        client: Client,
        place: Mapping[str, Any],
        *,
        name: str | None,
        acks: str,
        linger_s: float,
        batch_bytes: int,
        batch_messages: int,
        buffer_bytes: int,
        group: Group | None,
        numbered: bool = False,
        codec: Codec[T] | None = None,
        key: Callable[[T], bytes | str | None] | None = None,
    ) -> None:
        if acks not in _ACKS:
            raise ValueError(f"acks is one of {', '.join(_ACKS)}, not {acks!r}")
        self.client = client
        self.handle = 0
        self.name = name
        self.epoch: int | None = None
        self.place = _named(place)
        """Where it sends, in words."""
        self._codec = codec
        self._key = key
        if numbered and name is None:
            raise TypeError("a producer that numbers its messages needs a name: name=")
        self._numbered = numbered
        self._place = {
            **place,
            **({"numbered": True} if numbered else {}),
            **(group.fields() if group is not None else {}),
        }
        self._answering: Answering | None = None
        if group is not None:
            from penstock.sdk.half import Answering

            self._answering = Answering(client, group.check)
        self._acks = _ACKS[acks]
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._batch_messages = batch_messages
        self._buffer_bytes = buffer_bytes
        self._bodies: list[bytes] = []
        self._props: list[bytes] = []
        self._plain = True
        self._futures: list[Sent] = []
        self._gathered = 0
        self._timer: asyncio.Handle | None = None
        self._sequence = 0
        self._sent: OrderedDict[int, Pending] = OrderedDict()
        self._under_way = 0
        self._room: deque[tuple[asyncio.Future[None], int]] = deque()
        self._empty: list[asyncio.Future[None]] = []
        self._link: Link | None = None
        self._frame_max = 2**31
        self._simple = False
        """Bodies are sent as they are, and a whole batch is one frame."""
        self._error: ClientError | None = None
        self._loop: asyncio.AbstractEventLoop

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises ClientError."""
        if self.handle:
            raise ClientError(f"the producer to {self.place} is open already")
        self._loop = asyncio.get_running_loop()
        self._error = None
        handle = self.handle = self.client.register(self)
        link = None
        try:
            link = await self.client.link()
            self.check()
            if self._link is not link:  # else it came with a new connection
                link.route(handle, self)
                await self.resume(link)
        except BaseException:
            self.handle = 0
            self._link = None
            self.client.forget(handle)
            if link is not None:
                link.drop(handle)
            raise
        return self

    async def resume(self, link: Link) -> None:
        """There is a connection: open the handle there, and send again what is not confirmed."""
        handle = self.handle
        answer = await link.request(
            "open_producer", handle=handle, name=self.name, epoch=self.epoch, **self._place
        )
        if self.name is not None:
            self.epoch = answer["epoch"]
        if self.handle != handle:
            return  # it was closed meanwhile
        self._link, self._frame_max = link, link.frame_max
        self._simple = (
            self._codec is None
            and self._key is None
            and self.client.tracing is None
            and not self._numbered
            and self._frames(self._batch_bytes, self._batch_messages)
        )
        batches = list(self._sent.values())
        if self._acks == kinds.ACKS_NONE:
            self._sent.clear()
        for batch in batches:
            batch.send(link, handle, self._acks)
            if self._acks == kinds.ACKS_NONE:
                # Nobody confirms these.
                self._finished(batch)
                batch.done(0)

    def paused(self) -> None:
        """The connection is lost: what is sent waits for the next one."""
        self._link = None

    def failed(self, error: ClientError) -> None:
        """It cannot go on: everything under way fails."""
        self._error = error
        self._link = None
        self._flush()
        batches = list(self._sent.values())
        self._sent.clear()
        for batch in batches:
            self._finished(batch)
            batch.failed(error, quietly=True)
        self._make_room()

    async def close(self) -> None:
        """Flush and close. Idempotent.

        Raises:
            ConnectionLost: within the client's `close_timeout_s` not everything was confirmed.

        """
        if not self.handle:
            return
        try:
            async with asyncio.timeout(self.client.close_timeout_s):
                await self._settled()
        except TimeoutError:
            count = sum(batch.count for batch in self._sent.values())
            lost = ConnectionLost(
                f"the producer to {self.place} is closed, and {count} messages are not confirmed",
                remedy="they may be kept or not: send them again; a producer with a name keeps each once",
            )
            self.failed(lost)
            raise lost from None
        finally:
            handle, self.handle = self.handle, 0
            self.client.forget(handle)
            if self._answering is not None:
                await self._answering.close()
            link, self._link = self._link, None
            self.failed(self._error or Closed(f"the producer to {self.place} is closed"))
            if link is not None:
                await link.release(handle)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        if self._link is None and self._error is None:
            # Whoever leaves by an error, or by Ctrl-C, does not wait for a gateway that is not there.
            self.failed(ConnectionLost(f"the producer to {self.place} was closed without a connection"))
        try:
            await self.close()
        except ClientError as second:
            logger.warning("%s", second)

    # Sending

    async def send(
        self,
        /,
        body: T,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        deliver_at: datetime | float | None = None,
        deliver_after_s: float | None = None,
        ttl_s: float | None = None,
        persistent: bool = True,
        number: int | None = None,
        **properties: Any,
    ) -> MessageId:
        """Send a message, and wait for what `acks` promises.

        Args:
            body: Bytes; text is encoded in UTF-8; a value, when the producer has a schema.
            key: Messages of one key keep their order on key-shared subscriptions.
            headers: Text, bytes, numbers, booleans, None, lists and dicts of such, by name.
            deliver_at: When it is published: a datetime with a zone, or seconds since the epoch.
            deliver_after_s: The same, from now.
            ttl_s: How long it is good for, once it is published.
            persistent: False: it may be lost by a restart.
            number: Of a producer with `numbered=True`: above those before; sent again, it is kept once.
            properties: Further ones by AMQP's names: content_type, correlation_id, message_id, priority...

        Raises:
            ClientError: it was refused, or cannot be sent any more. Cancelled: it may be kept or not.
            TypeError, ValueError: the body, a header or a property cannot be sent.

        """
        headers, span = self._traced(headers)
        with span:
            data, block = self._encoded(body, key, headers, ttl_s, persistent, properties)
            due_ms = _due_ms(deliver_at, deliver_after_s)
            if self._under_way:
                await self._wait_for_room(len(data) + len(block))
            if due_ms:
                return (await self._send_later([data], [block], due_ms))[0]
            return await self._add(data, block, number)

    def send_nowait(
        self,
        body: T,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        ttl_s: float | None = None,
        persistent: bool = True,
        number: int | None = None,
        **properties: Any,
    ) -> asyncio.Future[MessageId]:
        """The same without waiting: a future with the message's id.

        Raises:
            BufferFull: `buffer_bytes` are under way; nothing was taken.

        """
        if (
            self._timer is not None
            and type(body) is bytes
            and self._simple
            and key is None
            and headers is None
            and ttl_s is None
            and persistent
            and number is None
            and not properties
            and self._error is None
        ):
            # Behind others in a batch, with nothing to encode: for this is called once per message.
            plain: Any = body
            gathered = self._gathered + len(plain) + len(PLAIN)
            under_way = self._under_way + len(plain) + len(PLAIN) + _RECORD_BYTES
            if (
                gathered < self._batch_bytes
                and len(self._bodies) + 1 < self._batch_messages
                and under_way <= self._buffer_bytes
            ):
                future: Sent = self._loop.create_future()
                self._bodies.append(plain)
                self._props.append(PLAIN)
                self._futures.append(future)
                self._gathered = gathered
                self._under_way = under_way
                return future
        headers, span = self._traced(headers)
        with span:
            data, block = self._encoded(body, key, headers, ttl_s, persistent, properties)
            size = len(data) + len(block) + _RECORD_BYTES
            if self._under_way and self._under_way + size > self._buffer_bytes:
                raise BufferFull(
                    f"{self._under_way} bytes are under way to {self.place}",
                    remedy="await send, or raise buffer_bytes",
                )
            return self._add(data, block, number)

    async def send_many(self, values: Sequence[T], *, key: bytes | str | None = None) -> list[MessageId]:
        """Send messages in as few batches as they fit, and wait for all; the fast way for many.

        `key` is that of all of them; a producer's own `key` is not asked.
        """
        self.check()
        if self._numbered:
            self._take_number(None)
        encode = body_of if self._codec is None else self._codec.encode
        block = PLAIN
        if key is not None or self._codec is not None:
            block = properties_block(key, None, None, True, self._described({}))
        bodies: list[Any] = values if isinstance(values, list) else list(values)
        if self._codec is not None or set(map(type, bodies)) - {bytes}:
            bodies = [encode(one) for one in bodies]
        waiting = []
        at = 0
        while at < len(bodies):
            await self._wait_for_room(1)
            end, size = fitting(bodies, at, self._batch_messages, self._batch_bytes)
            size += len(block) * (end - at)
            while end - at > 1 and not self._frames(size, end - at):
                end -= 1
                size -= len(bodies[end]) + len(block)
            some = bodies[at:end]
            self._flush()
            future: asyncio.Future[list[MessageId]] = self._loop.create_future()
            props = None if block is PLAIN else [block] * len(some)
            self._send(some, props, None, future, size + _RECORD_BYTES * len(some), 0)
            waiting.append(future)
            at = end
        found: list[MessageId] = []
        for one in await asyncio.gather(*waiting):
            found += one
        return found

    async def prepare(
        self,
        /,
        body: T,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        ttl_s: float | None = None,
        **properties: Any,
    ) -> Half:
        """Send a half message, which is on the disk then: published when it is committed. See `send`.

        Raises:
            ClientError: it was refused; ConnectionLost: if it is kept, it will be asked about.

        """
        self.check()
        if self._answering is None:
            raise ClientError(
                "a producer without a group cannot prepare messages",
                remedy="say who answers for them: group=Group(...)",
            )
        from penstock.sdk.half import Half

        data, block = self._encoded(body, key, headers, ttl_s, True, properties)
        link = await self.client.link()
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        head = _PREPARE.pack(link.number(answer), len(block), len(data))
        link.send(kinds.PREPARE, self.handle, head + block + data)
        return Half(self.client, (await answer)["transaction"])

    async def flush(self) -> None:
        """Wait until everything sent so far is confirmed. Raises what made the producer fail."""
        await self._settled()
        if self._error is not None:
            raise self._error

    async def _settled(self) -> None:
        """Wait until nothing is under way."""
        self._flush()
        if self._sent:
            empty: asyncio.Future[None] = self._loop.create_future()
            self._empty.append(empty)
            await empty
            if self._error is not None:
                raise self._error
        elif self._link is not None:
            await self._link.drain()

    def transaction(self) -> Transaction:
        """`async with producer.transaction() as tx`: see `Client.transaction`; `tx.send` sends here."""
        from penstock.sdk.transaction import Transaction

        return Transaction(self.client, self)

    @property
    def under_way(self) -> int:
        """Bytes that are gathered or sent and not confirmed."""
        return self._under_way

    # Inside

    def check(self) -> None:
        """Whether it can send. Raises ClientError."""
        if self._error is not None:
            raise self._error
        if not self.handle:
            raise Closed(
                f"the producer to {self.place} is not open",
                remedy="use it with async with, or await its open()",
            )

    def _encoded(
        self,
        body: Any,
        key: bytes | str | None,
        headers: Mapping[str, Any] | None,
        ttl_s: float | None,
        persistent: bool,
        properties: Mapping[str, Any],
    ) -> tuple[bytes, bytes]:
        """Body and properties of a message. Raises TypeError, ValueError."""
        if self._key is not None and key is None:
            key = self._key(body)
        if self._codec is None:
            data = body if type(body) is bytes else body_of(body)
        else:
            data, properties = self._codec.encode(body), self._described(properties)
        if ttl_s is not None and not isinstance(ttl_s, int | float):
            raise TypeError(f"ttl_s is a number of seconds, not {type(ttl_s).__name__}")
        ttl_ms = None if ttl_s is None else max(int(ttl_s * 1000), 1)
        return data, properties_block(key, headers, ttl_ms, persistent, properties)

    def encoded(
        self,
        body: Any,
        *,
        key: bytes | str | None,
        headers: Mapping[str, Any] | None,
        properties: Mapping[str, Any] | None,
    ) -> tuple[bytes, bytes]:
        """Body and properties of a message that a transaction sends. Raises TypeError, ValueError."""
        headers, span = self._traced(headers)
        with span:
            return self._encoded(body, key, headers, None, True, properties or {})

    def _described(self, properties: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = "" if self._codec is None else self._codec.content_type
        return {"content_type": kind, **properties} if kind else properties

    def _traced(
        self, headers: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, AbstractContextManager[object]]:
        """Headers that a span may put its context into, and the span."""
        tracing = self.client.tracing
        if tracing is None:
            return headers, _NO_SPAN
        made = dict(headers or {})
        return made, tracing.sending(self.place, made)

    async def _wait_for_room(self, size: int) -> None:
        """Wait for one's turn to send `size` bytes, which are to be added at once."""
        self.check()
        size += _RECORD_BYTES
        if not self._room and self._fits(size):
            return
        self._flush()
        room: asyncio.Future[None] = self._loop.create_future()
        self._room.append((room, size))
        self._make_room()
        try:
            await room
        except BaseException:
            if not room.cancelled() and room.exception() is None:
                self._under_way -= size
            self._make_room()  # for those behind
            raise
        self._under_way -= size

    def _fits(self, size: int) -> bool:
        return not self._under_way or self._under_way + size <= self._buffer_bytes

    def _make_room(self) -> None:
        """Let those send that waited longest, as many as fit; what they will send counts from now on."""
        while self._room:
            room, size = self._room[0]
            if not room.done():
                if self._error is not None:
                    room.set_exception(self._error)
                elif self._fits(size):
                    self._under_way += size
                    room.set_result(None)
                else:
                    break
            self._room.popleft()

    def _add(self, body: bytes, block: bytes, number: int | None) -> asyncio.Future[MessageId]:
        self.check()
        if self._numbered or number is not None:
            self._take_number(number)
        size = len(body) + len(block)
        if self._bodies and not self._frames(self._gathered + size, len(self._bodies) + 1):
            self._flush()
        future: Sent = self._loop.create_future()
        self._bodies.append(body)
        self._props.append(block)
        self._plain = self._plain and block is PLAIN
        self._futures.append(future)
        self._gathered += size
        self._under_way += size + _RECORD_BYTES
        if (
            self._gathered >= self._batch_bytes
            or len(self._bodies) >= self._batch_messages
            or number is not None
        ):
            self._flush()
        elif self._timer is None:
            if self._linger_s:
                self._timer = self._loop.call_later(self._linger_s, self._flush)
            else:
                self._timer = self._loop.call_soon(self._flush)
        return future

    def _take_number(self, number: int | None) -> None:
        """The next batch is one message with that number. Raises TypeError, ValueError."""
        if not self._numbered:
            raise TypeError(f"the producer to {self.place} numbers by itself; open it with numbered=True")
        if number is None:
            raise TypeError(f"the producer to {self.place} is numbered=True: say number=, and use send")
        if not self._sequence <= number < 2**63:
            raise ValueError(f"numbers rise up to 2^63: {number} is not above {self._sequence - 1}")
        self._sequence = number

    def _flush(self) -> None:
        """Send what is gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._bodies:
            return
        bodies, props, futures = self._bodies, self._props, self._futures
        size = self._gathered + _RECORD_BYTES * len(bodies)
        plain, self._plain = self._plain, True
        self._bodies, self._props, self._futures, self._gathered = [], [], [], 0
        self._under_way -= size
        self._send(bodies, None if plain else props, futures, None, size, 0)

    def _send(
        self,
        bodies: list[bytes],
        props: list[bytes] | None,
        futures: list[Sent] | None,
        future: asyncio.Future[list[MessageId]] | None,
        size: int,
        due_ms: int,
    ) -> None:
        if not self._frames(size - _RECORD_BYTES * len(bodies), len(bodies)):
            Pending(0, bodies, props, futures, future, size, due_ms).failed(too_large(size, self._frame_max))
            self._make_room()
            return
        if self._sequence + len(bodies) > _NUMBERS and self.name is not None and not self._numbered:
            self._sequence = 0
        batch = Pending(self._sequence, bodies, props, futures, future, size, due_ms)
        self._sequence += len(bodies)
        self._under_way += size
        if self._error is not None:
            self._under_way -= size
            batch.failed(self._error)
            return
        if self._acks == kinds.ACKS_NONE and self._link is not None:
            batch.send(self._link, self.handle, self._acks)
            self._under_way -= size
            batch.done(0)
            return
        self._sent[batch.sequence] = batch
        if self._link is not None:
            batch.send(self._link, self.handle, self._acks)

    def _frames(self, size: int, count: int) -> bool:
        """Whether messages of so many bytes are one frame."""
        return size + 8 * count + _HEAD_BYTES <= self._frame_max

    async def _send_later(self, bodies: list[bytes], props: list[bytes], due_ms: int) -> list[MessageId]:
        if self.name is not None:
            raise ClientError(
                "a named producer cannot delay messages", remedy="open a producer without a name for these"
            )
        self.check()
        self._flush()
        future: asyncio.Future[list[MessageId]] = self._loop.create_future()
        size = sum(map(len, bodies)) + sum(map(len, props)) + _RECORD_BYTES * len(bodies)
        self._send(bodies, props, None, future, size, due_ms)
        return await future

    def frame(self, kind: int, payload: bytes) -> None:
        """CONFIRM, REFUSED or CHECK."""
        if kind == kinds.CONFIRM:
            sequence, position, _, _ = _CONFIRM.unpack(payload)
            batch = self._sent.pop(sequence, None)
            if batch is not None:
                self._finished(batch)
                batch.done(position)
        elif kind == kinds.REFUSED:
            told = json.loads(payload)
            error = from_wire(told)
            batch = self._sent.pop(told["sequence"], None)
            if batch is not None:
                self._finished(batch)
                batch.failed(error)
            if isinstance(error, Fenced) or self._numbered:
                # Of numbered messages none may pass one that was refused.
                self.client.forget(self.handle)
                self.failed(error)
        elif kind == kinds.CHECK and self._answering is not None:
            self._answering.asked(payload)

    def _finished(self, batch: Pending) -> None:
        self._under_way -= batch.size
        self._make_room()
        if not self._sent:
            empty, self._empty = self._empty, []
            for future in empty:
                if not future.done():
                    future.set_result(None)


def _named(place: Mapping[str, Any]) -> str:
    if "topic" in place:
        return f"topic {place['topic']!r}"
    if not place["exchange"]:
        return f"queue {place['routing_key']!r}"
    return f"exchange {place['exchange']!r}, key {place['routing_key']!r}"


def _due_ms(at: datetime | float | None, after_s: float | None) -> int:
    if at is not None and after_s is not None:
        raise ValueError("deliver_at and deliver_after_s in one message; set one of them")
    if after_s is not None:
        return int((time.time() + after_s) * 1000) + 1 if after_s > 0 else 0
    if at is None:
        return 0
    if not isinstance(at, int | float):
        if at.tzinfo is None:
            raise ValueError("deliver_at is a datetime with a time zone")
        at = at.timestamp()
    return max(int(at * 1000), 1)
