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
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, cast, overload

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._inbox import Inbox
from penstock.sdk.addresses import start_of
from penstock.sdk.checking import number, whole
from penstock.sdk.connection.joining import Joining
from penstock.sdk.consuming.columns import Batch
from penstock.sdk.consuming.settling import DELAY_MAX_S, Settling
from penstock.sdk.errors import ClientError, Closed, NotFound
from penstock.sdk.message import Message

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.addresses import Opening, Start
    from penstock.sdk.client import Client
    from penstock.sdk.connection.link import Link
    from penstock.sdk.schema import Codec

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Consumer", "Source"]

_CREDIT: Final = struct.Struct(">II")
_PULL: Final = struct.Struct(">IIIIII")
_CREDIT_MAX: Final = 2**32 - 1


class Source(Generic[T]):
    """The owner of the messages that a consumer got by one connection, or between two seeks."""

    __slots__ = ("consumer",)

    def __init__(self, consumer: Consumer[T]) -> None:
        self.consumer = consumer


class Consumer(Joining, Settling[T]):
    """Made by `Client.subscribe` and `Client.reader`; `async with` opens it, and closes it at the end."""

    _noun = "consumer"

    def __init__(
        self,
        client: Client,
        opening: Opening,
        prefetch: int,
        prefetch_bytes: int,
        codec: Codec[T] | None = None,
    ) -> None:
        self.client = client
        self.handle = 0
        self._opening = opening
        self._next: int | None = None
        """Of a reader: where it goes on; None: at its start."""
        self._codec = codec
        prefetch = whole("prefetch", prefetch, 0, _CREDIT_MAX)
        prefetch_bytes = whole("prefetch_bytes", prefetch_bytes, 0, 2**63 - 1)
        self._prefetch = prefetch
        self._prefetch_bytes = min(prefetch_bytes, _CREDIT_MAX)
        self.source = Source(self)
        """The owner of messages that are ours."""
        self._inbox: Inbox[Message[T]] = Inbox(
            Message, self.source, -(-prefetch // 2), -(-self._prefetch_bytes // 2)
        )
        self._arrived: deque[asyncio.Future[None]] = deque()
        self._unclaimed: list[Message[T]] = []
        self._pulls: dict[int, tuple[list[Message[T]], asyncio.Future[dict[str, Any]]]] = {}
        self._link: Link | None = None
        self._error: ClientError | None = None
        self._acks: list[tuple[int, int]] = []
        self._is_paused = False
        self.give_back: Callable[[Message[T]], Awaitable[None]] = self.nack
        """The fate of a message whose `process` block raised."""
        self._loop: asyncio.AbstractEventLoop
        self.events: deque[dict[str, Any]] = deque(maxlen=100)
        """The gateway's words about it, e.g. {"event": "void"}."""

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        self._loop = asyncio.get_running_loop()
        if self.handle:
            raise ClientError(f"the consumer of {self.place} is open already")
        self._error = None
        self.stopped = False
        await self._join(self._check)
        return self

    async def resume(self, link: Link) -> None:
        """There is a connection: consume there."""
        if self.stopped:
            return
        handle = self.handle
        position = await self._opening.on(link, handle, self._next)
        if position is not None:
            # From here on nothing is missed, whatever "latest" or "-1h" would mean later.
            self._next = position
        if self._is_paused:
            await link.request("pause", handle=handle)
        if self.handle != handle:
            return  # it was closed meanwhile
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
        if not self._opening.takes:
            self._next = self._goes_on()
        self._link = None
        self._void()
        for _, answer in self._pulls.values():
            if not answer.done():
                answer.set_result({})
        self._pulls.clear()

    def _goes_on(self) -> int | None:
        """Of a reader: the position behind what was given out; None: it begins at its start."""
        return self._inbox.position + 1 if self._inbox.position else self._inbox.head() or self._next

    def _void(self) -> None:
        self.source = self._inbox.source = Source(self)
        self._inbox.clear()
        self._acks.clear()
        self._unclaimed.clear()

    def failed(self, error: ClientError) -> None:
        """It cannot go on."""
        self._error = error
        self._link = None
        # Messages that were given out come again, to others.
        self.source = Source(self)
        self._wake_all()
        for _, answer in self._pulls.values():
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        """Give back what was not acknowledged. Idempotent."""
        if not self.handle:
            return
        self.client.check_here()
        handle, self.handle = self.handle, 0
        self.stopped = True
        self._send_acks(handle)
        self.client.forget(handle)
        link, self._link = self._link, None
        self.failed(self._error or Closed(f"the consumer of {self.place} is closed"))
        if link is not None:
            await link.release(handle)

    def stop(self) -> None:
        """See `Receiving.stop`."""
        if not self.stopped:
            self.stopped = True
            self._error = Closed(f"the consumer of {self.place} was stopped")
            self._inbox.clear()
            self._wake_all()

    @property
    def takes(self) -> bool:
        """Whether its messages are to be settled; those of readers are not."""
        return self._opening.takes

    @property
    def is_gone(self) -> bool:
        """The gateway let go of it, or it was closed: its topic was deleted, or may not be read any more."""
        return not self.handle or isinstance(self._error, NotFound)

    @property
    def topic(self) -> str:
        """The topic it consumes; "": it consumes a queue."""
        return str(self._opening.fields.get("topic", ""))

    # Frames

    def frame(self, kind: int, payload: bytes) -> None:
        """DELIVER, DELIVER_STORED, PULLED or EVENT."""
        if self.stopped and kind in (kinds.DELIVER, kinds.DELIVER_STORED):
            return
        if kind == kinds.DELIVER_STORED:
            self._inbox.deliver_stored(payload)
            self._wake()
        elif kind == kinds.DELIVER:
            pull, messages = self._inbox.deliver(payload)
            if pull:
                waiting = self._pulls.get(pull)
                # The caller may have given up: the next pull has them.
                (self._unclaimed if waiting is None else waiting[0]).extend(messages)
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
                # Messages that wait here are void, and the credit they took is given again.
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
        self._check()
        self.client.check_here()
        future: asyncio.Future[None] = self._loop.create_future()
        self._arrived.append(future)
        return future

    def _check(self) -> None:
        """Whether there can be more. Raises Closed, ClientError."""
        if self._error is not None:
            raise self._error
        if not self.handle:
            raise ClientError(
                f"the {self._noun} of {self.place} is not open",
                remedy="open it first: use it in a with block, or call its open()",
            )

    def _wake_all(self) -> None:
        for future in self._arrived:
            if not future.done():
                future.set_result(None)

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
            if not self._prefetch:
                raise ClientError(
                    f"the consumer of {self.place} has prefetch=0, so no message comes by itself",
                    remedy="await its pull(), or open it with a prefetch",
                )
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
        """The receiver that waited for this `arrival` ends: another one may have the message."""
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

    @overload
    async def receive(self) -> Message[T]: ...
    @overload
    async def receive(self, timeout_s: float | None) -> Message[T] | None: ...
    async def receive(self, timeout_s: float | None = None) -> Message[T] | None:
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

    async def receive_many(self, most: int = 1000, timeout_s: float | None = None) -> list[Message[T]]:
        """At least one message and what else is here, `most` at most; [] when none came in time."""
        if not self._inbox.waiting:
            await self._wait(timeout_s)
        found = self._inbox.take(max(most, 1))
        self._given()
        return found

    async def batches(self, most: int = 1000) -> AsyncIterator[Batch[T]]:
        """The messages that are here, `most` at most and one at least, until it is closed."""
        while True:
            try:
                await self._wait(None)
            except Closed:
                return
            batch = Batch(self._inbox.columns(max(most, 1)))
            self._given()
            yield batch

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        inbox = self._inbox
        while True:
            # A message that is here needs no coroutine of its own.
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
    ) -> list[Message[T]]:
        """Ask for messages and wait until `least` are there, or `wait_s` is over. For prefetch=0.

        Raises:
            TypeError, ValueError: one of them is no such number.

        """
        for name, value, lowest in (
            ("most", most, 1),
            ("most_bytes", most_bytes, 1),
            ("least", least, 0),
            ("least_bytes", least_bytes, 0),
        ):
            whole(name, value, lowest, _CREDIT_MAX)
        number("wait_s", wait_s, 0, DELAY_MAX_S)
        link = await self.client.link()
        self._check()
        found = [message for message in self._unclaimed[:most] if not self.is_stale(message)]
        del self._unclaimed[:most]
        if found:
            return found
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        request = link.number(answer)
        self._pulls[request] = found, answer
        wait_ms = min(int(wait_s * 1000), 60_000)
        link.send(kinds.PULL, self.handle, _PULL.pack(request, most, most_bytes, least, least_bytes, wait_ms))
        try:
            await answer
        except BaseException:
            self._unclaimed += found
            raise
        finally:
            link.forget(request)
            self._pulls.pop(request, None)
        if not self._opening.takes and found:
            self._inbox.position = found[-1].position
        return [message for message in found if not self.is_stale(message)]

    # Values

    def decode(self, body: bytes) -> T:
        """As its schema decodes it; see `Message.value`."""
        return cast(T, body) if self._codec is None else self._codec.decode(body)

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

    async def seek(self, to: Start) -> None:
        """Go on from there; see `Client.subscribe` for `start`. Messages that are out are stale."""
        fields = self._opening.fields
        if "subscription" not in fields:
            raise ClientError(
                f"a consumer of {self.place} cannot seek",
                remedy="subscribe to a topic, or open a reader with another start",
            )
        await self.client.call(
            "seek", topic=fields["topic"], subscription=fields["subscription"], to=start_of(to)
        )
