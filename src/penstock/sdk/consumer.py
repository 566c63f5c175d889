"""A consumer: a subscription's, a queue's, or a reader; gives out messages, acknowledges, resumes.

Messages wait here as far as credit was granted; it is granted again when half is given out. When the
connection is lost, what waits is dropped, and what was given out becomes stale: the gateway delivers it
again, flagged as redelivered. A reader goes on behind the last message it gave out.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.native import kinds
from penstock.protocols.native._inbox import Inbox
from penstock.sdk.batch import Batch
from penstock.sdk.errors import ClientError, Closed, StaleDelivery
from penstock.sdk.message import Message

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.sdk.client import Client
    from penstock.sdk.link import Link

__all__ = ["Consumer", "Receiving", "Source", "joined", "packed"]

_CREDIT: Final = struct.Struct(">II")
_PULL: Final = struct.Struct(">IIIIII")
_ACK: Final = struct.Struct(">IBBH")
_NACK: Final = struct.Struct(">iBBH")
_RANGE: Final = struct.Struct(">QQ")
_CREDIT_MAX: Final = 2**32 - 1


class Source:
    """What the messages belong to that a consumer got by one connection, or between two seeks."""

    __slots__ = ("consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer


class Receiving:
    """What follows from `receive_many`."""

    async def receive_many(self, most: int = 1000, timeout_s: float | None = None) -> list[Message]:
        """At least one message and what else is here, `most` at most; [] when none came in time."""
        raise NotImplementedError

    async def batches(self, most: int = 1000) -> AsyncIterator[Sequence[Message]]:
        """`receive_many`, until it is closed."""
        while True:
            try:
                found = await self.receive_many(most)
            except Closed:
                return
            if found:
                yield found


class Consumer(Receiving):
    """Made by `Client.subscribe` and `Client.reader`; `async with` opens it, and closes it at the end."""

    def __init__(
        self, client: Client, do: str, fields: Mapping[str, Any], prefetch: int, prefetch_bytes: int
    ) -> None:
        self.client = client
        self.handle = 0
        self._do = do
        self._fields = dict(fields)
        self._prefetch = prefetch
        self._prefetch_bytes = min(prefetch_bytes, _CREDIT_MAX)
        self.source = Source(self)
        """What messages belong to that are ours."""
        self._inbox = Inbox(Message, self.source, -(-prefetch // 2), -(-self._prefetch_bytes // 2))
        self._arrived: deque[asyncio.Future[None]] = deque()
        self._pulls: dict[int, tuple[list[Message], asyncio.Future[dict[str, Any]]]] = {}
        self._link: Link | None = None
        self._error: ClientError | None = None
        self._acks: list[tuple[int, int]] = []
        self._is_paused = False
        self.give_back: Callable[[Message], Awaitable[None]] = self.nack
        """What becomes of a message whose `process` block raised."""
        self._loop: asyncio.AbstractEventLoop
        self.events: deque[dict[str, Any]] = deque(maxlen=100)
        """What the gateway said of it, e.g. {"event": "void"}."""

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        self._loop = asyncio.get_running_loop()
        self.handle = self.client.register(self)
        try:
            link = await self.client.link()
            link.route(self.handle, self)
            await self.resume(link)
        except BaseException:
            self.client.forget(self.handle)
            self.handle = 0
            raise
        return self

    async def resume(self, link: Link) -> None:
        """There is a connection: consume there."""
        await link.request(self._do, handle=self.handle, **self._fields)
        if self._is_paused:
            await link.request("pause", handle=self.handle)
        self._link = link
        self._inbox.granted()
        if self._prefetch:
            # A quarter more than this may come, and `prefetch` is what may wait here. Bytes are overdrawn by
            # the last message in any case.
            messages, size = self._prefetch, self._prefetch_bytes
            granted = messages - messages // 5 if link.stores else messages
            link.send(kinds.CREDIT, self.handle, _CREDIT.pack(granted, size - size // 5))

    def paused(self) -> None:
        """The connection is lost: what waits comes again, what was given out is stale."""
        if self._do == "read":
            first = self._inbox.position + 1 if self._inbox.position else self._inbox.head()
            if first is not None:
                self._fields["start"] = f"pos:{first}"
        self._link = None
        self._void()
        for _, answer in self._pulls.values():
            if not answer.done():
                answer.set_result({})
        self._pulls.clear()

    def _void(self) -> None:
        self.source = self._inbox.source = Source(self)
        self._inbox.clear()
        self._acks.clear()

    def failed(self, error: ClientError) -> None:
        """It cannot go on."""
        self._error = error
        self._link = None
        # What was given out comes again, to others.
        self.source = Source(self)
        for future in self._arrived:
            if not future.done():
                future.set_result(None)
        for _, answer in self._pulls.values():
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        """Give back what was not acknowledged. Idempotent."""
        if not self.handle:
            return
        handle, self.handle = self.handle, 0
        self._send_acks(handle)
        self.client.forget(handle)
        link, self._link = self._link, None
        self.failed(self._error or Closed("the consumer is closed"))
        if link is not None:
            await link.release(handle)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Frames

    def frame(self, kind: int, payload: bytes) -> None:
        """DELIVER, DELIVER_STORED, PULLED or EVENT."""
        if kind == kinds.DELIVER_STORED:
            self._inbox.deliver_stored(payload)
            self._wake()
        elif kind == kinds.DELIVER:
            pull, messages = self._inbox.deliver(payload)
            if pull:
                waiting = self._pulls.get(pull)
                if waiting is not None:
                    waiting[0].extend(messages)
            else:
                self._wake()
        elif kind == kinds.PULLED:
            request, _ = struct.unpack(">II", payload)
            pulled = self._pulls.pop(request, None)
            if pulled is not None and not pulled[1].done():
                pulled[1].set_result({})
        else:
            event = json.loads(payload)
            self.events.append(event)
            if event["event"] == "void":
                # What waits here is void, and the credit it took is given again.
                self._void()
                self._regrant()
            elif event["event"] == "closed":
                self.client.forget(self.handle)
                self.handle = 0
                self.failed(Closed(f"the gateway closed the consumer: {event['reason']}"))

    @property
    def waiting(self) -> int:
        """Messages that are here and not given out."""
        return self._inbox.waiting

    def arrival(self) -> asyncio.Future[None]:
        """Done when there may be something to receive; to be given to `leave` in any case. Raises Closed,
        ClientError."""
        if self._error is not None:
            raise self._error
        future: asyncio.Future[None] = self._loop.create_future()
        self._arrived.append(future)
        return future

    def _wake(self) -> None:
        while self._arrived:
            future = self._arrived.popleft()
            if not future.done():
                future.set_result(None)
                break

    # Receiving

    async def _wait(self, timeout_s: float | None) -> bool:
        """Whether something is here, at last. Raises Closed, ClientError."""
        while not self._inbox.waiting:
            future = self.arrival()
            try:
                async with asyncio.timeout(timeout_s):
                    await future
            except TimeoutError:
                return False
            finally:
                self.leave(future)
        return True

    def leave(self, future: asyncio.Future[None]) -> None:
        """Who waited for this `arrival` goes: what it was woken for another one may have."""
        if future in self._arrived:
            self._arrived.remove(future)
        elif self._inbox.waiting:
            self._wake()

    def _given(self) -> None:
        """Messages were given out."""
        if self._inbox.due:
            self._regrant()
        if self._arrived and self._inbox.waiting:
            self._wake()

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None: none came in time. Raises Closed, ClientError."""
        if not self._inbox.waiting:
            await self._wait(timeout_s)
        message = self._inbox.next()
        self._given()
        return message

    def _regrant(self) -> None:
        used, size = self._inbox.granted()
        if self._link is not None and used:
            self._link.send(kinds.CREDIT, self.handle, _CREDIT.pack(used, size))

    async def receive_many(self, most: int = 1000, timeout_s: float | None = None) -> list[Message]:
        """At least one message and what else is here, `most` at most; [] when none came in time."""
        if not self._inbox.waiting:
            await self._wait(timeout_s)
        found = self._inbox.take(max(most, 1))
        self._given()
        return found

    async def batches(self, most: int = 1000) -> AsyncIterator[Batch]:
        """What is here, `most` at most and one at least, until it is closed."""
        while True:
            try:
                await self._wait(None)
            except Closed:
                return
            batch = Batch(self._inbox.columns(max(most, 1)))
            self._given()
            yield batch

    async def __aiter__(self) -> AsyncIterator[Message]:
        inbox = self._inbox
        while True:
            # What is here needs no coroutine of its own.
            message = inbox.next()
            if message is None:
                try:
                    await self._wait(None)
                except Closed:
                    return
                continue
            if inbox.due or self._arrived:
                self._given()
            yield message

    async def pull(
        self,
        most: int = 1000,
        *,
        most_bytes: int = 16 << 20,
        least: int = 1,
        least_bytes: int = 0,
        wait_s: float = 0.5,
    ) -> list[Message]:
        """Ask for messages and wait until `least` are there, or `wait_s` is over. For prefetch=0."""
        link = await self.client.link()
        if self._error is not None:
            raise self._error
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        request = link.number(answer)
        found: list[Message] = []
        self._pulls[request] = found, answer
        wait_ms = min(int(wait_s * 1000), 60_000)
        link.send(kinds.PULL, self.handle, _PULL.pack(request, most, most_bytes, least, least_bytes, wait_ms))
        try:
            await answer
        finally:
            self._pulls.pop(request, None)
        if self._do == "read" and found:
            self._inbox.position = found[-1].position
        return [message for message in found if not self.is_stale(message)]

    # Settling

    def is_stale(self, message: Message) -> bool:
        """Whether the message is not ours any more."""
        return message.source is not self.source

    async def ack(self, messages: Message | Iterable[Message], *, durable: bool = False) -> None:
        """They are done.

        Args:
            durable: Wait until the gateway has that on the disk; otherwise it is there within 0.1 s.

        Raises:
            StaleDelivery: one of them is not ours any more; none is acknowledged.

        """
        if durable:
            link = await self.client.link()
            self._note_acks(self.ranges(messages))
            answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            ranges, self._acks = self._acks, []
            link.send(
                kinds.ACK, self.handle, _ACK.pack(link.number(answer), 0, 0, 0) + packed(joined(ranges))
            )
            await answer
        else:
            self._note_acks(self.ranges(messages))

    def _note_acks(self, ranges: list[tuple[int, int]]) -> None:
        """They are sent with others of this turn of the loop."""
        acks = self._acks
        if not acks:
            self._acks = ranges
            self._loop.call_soon(self._send_acks, self.handle)
        elif len(ranges) == 1 and ranges[0][0] == acks[-1][1] + 1:
            # One after the other, as they came.
            acks[-1] = acks[-1][0], ranges[0][1]
        else:
            acks += ranges

    async def ack_cumulative(self, message: Message) -> None:
        """This one and all before it are done; for subscriptions where one consumer gets everything."""
        self.ranges(message)
        if self._link is not None:
            self._send_acks(self.handle)
            self._link.send(kinds.ACK, self.handle, _ACK.pack(0, 1, 0, 0) + _RANGE.pack(0, message.tag))

    async def nack(self, messages: Message | Iterable[Message], *, delay_s: float | None = None) -> None:
        """They come again: after `delay_s`, or after the subscription's backoff."""
        ranges = joined(self.ranges(messages))
        if self._link is not None:
            delay_ms = -1 if delay_s is None else min(int(delay_s * 1000), 2**31 - 1)
            self._link.send(kinds.NACK, self.handle, _NACK.pack(delay_ms, 0, 0, 0) + packed(ranges))

    async def reject(self, messages: Message | Iterable[Message]) -> None:
        """They leave the subscription undone: to its dead-letter topic, when it has one."""
        ranges = joined(self.ranges(messages))
        if self._link is not None:
            self._link.send(kinds.NACK, self.handle, _NACK.pack(0, 1, 0, 0) + packed(ranges))

    def ranges(self, messages: Message | Iterable[Message]) -> list[tuple[int, int]]:
        """(first, last) of runs of the messages' delivery tags, in their order. Raises StaleDelivery."""
        source = self.source
        if isinstance(messages, Message):
            if messages.source is not source:
                raise _stale(messages)
            return [(messages.tag, messages.tag)]
        if isinstance(messages, Batch):
            if messages.source is not source:
                raise _stale(messages[0])
            return messages.tag_ranges
        some = list(messages)
        for message in some:
            if message.source is not source:
                raise _stale(message)
        return [(message.tag, message.tag) for message in some]

    def _send_acks(self, handle: int) -> None:
        ranges, self._acks = self._acks, []
        if ranges and self._link is not None:
            payload = _ACK.pack(0, 0, 0, 0) + packed(joined(ranges))
            self._link.send(kinds.ACK, handle, payload)

    # Pausing

    async def pause(self) -> None:
        """Be given nothing more until `go_on`; what waits here is given out. Others get their part."""
        self._is_paused = True
        if self._link is not None:
            await self._link.request("pause", handle=self.handle)

    async def go_on(self) -> None:
        """The end of a pause."""
        self._is_paused = False
        if self._link is not None:
            await self._link.request("resume", handle=self.handle)

    # Moving

    async def seek(self, to: str) -> None:
        """The subscription goes on from there; see `Client.subscribe` for `to`. What is out is stale."""
        await self.client.request(
            "seek", topic=self._fields["topic"], subscription=self._fields["subscription"], to=to
        )


def _stale(message: Message) -> StaleDelivery:
    return StaleDelivery(
        f"the message at {message.id} is not this consumer's any more",
        remedy="drop it: it comes again, flagged as redelivered",
    )


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """As few ranges as hold these and no others."""
    ranges.sort()
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def packed(ranges: list[tuple[int, int]]) -> bytes:
    return b"".join(_RANGE.pack(first, last) for first, last in ranges)
