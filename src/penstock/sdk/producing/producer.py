"""A producer: gathers messages into batches, and sends them.

A batch is sent when it is full, when its oldest message has waited `linger`, or on `flush`. `composing`
makes the messages. `send_window` lets senders wait while too much is under way. `unconfirmed` follows the
batches that were sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._gathering import MESSAGE_BYTES, Gathering
from penstock.sdk.checking import FOREVER_S, number, text, whole
from penstock.sdk.connection.joining import Joining
from penstock.sdk.errors import BufferFull, ClientError, Closed, ConnectionLost, Fenced, Unroutable, too_large
from penstock.sdk.message import PLAIN, MessageId
from penstock.sdk.producing.composing import Composer, delay_name, due_ms
from penstock.sdk.producing.send_window import SendWindow
from penstock.sdk.producing.unconfirmed import Unconfirmed

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.protocols.native.codec._gathering import Pending
    from penstock.sdk.client import Client
    from penstock.sdk.connection.link import Link
    from penstock.sdk.producing.half import Answering, Group, Half
    from penstock.sdk.schema import Codec
    from penstock.sdk.transaction import Transaction

    T = TypeVar("T", default=bytes | str)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Producer"]

_AT_ONCE_MS: Final = 1
"""A due time that is over."""
_ACKS: Final = {"all": kinds.ACKS_FSYNC, "written": kinds.ACKS_WRITTEN, "none": kinds.ACKS_NONE}
_SIZE_MAX: Final = 2**40
logger: Final = logging.getLogger("penstock.sdk")


class Producer(Joining, Generic[T]):
    """Made by `Client.producer`; `async with` opens it, and flushes and closes it at the end."""

    def __init__(
        self,
        client: Client,
        place: Mapping[str, Any],
        *,
        name: str | None,
        acks: str,
        linger_ms: float,
        batch_bytes: int,
        batch_messages: int,
        buffer_bytes: int,
        group: Group | None,
        numbered: bool = False,
        codec: Codec[T] | None = None,
        key: Callable[[T], bytes | str | None] | None = None,
        mandatory: bool = False,
    ) -> None:
        if mandatory and acks == "none":
            raise ValueError('nobody says what becomes of messages with acks="none": leave out mandatory')
        if acks not in _ACKS:
            raise ValueError(f"acks is one of {', '.join(_ACKS)}, not {acks!r}")
        if name is not None:
            text("name", name)
        number("linger_ms", linger_ms, 0, FOREVER_S)
        batch_bytes = whole("batch_bytes", batch_bytes, 1, _SIZE_MAX)
        batch_messages = whole("batch_messages", batch_messages, 1, _SIZE_MAX)
        buffer_bytes = whole("buffer_bytes", buffer_bytes, 1, _SIZE_MAX)
        self.client = client
        self.handle = 0
        self.name = name
        self.epoch: int | None = None
        self.place = _named(place)
        """Where it sends, in words."""
        if numbered and name is None:
            raise TypeError("a producer that numbers its messages needs a name: name=")
        if group is not None and not hasattr(group, "fields"):
            raise TypeError(f"group is a penstock.Group, not {type(group).__name__}")
        self._numbered = numbered
        self._place = {
            **place,
            **({"numbered": True} if numbered else {}),
            **(group.fields() if group is not None else {}),
        }
        self._answering: Answering | None = None
        if group is not None:
            from penstock.sdk.producing.half import Answering

            self._answering = Answering(client, group.check)
        self._linger_s = linger_ms / 1000
        self._composer = Composer(self.place, codec, key, client.tracing, lambda: client.user)
        self._gathering = Gathering(PLAIN, batch_bytes, batch_messages, buffer_bytes)
        self._mandatory = mandatory
        if mandatory:
            self._gathering.mandatory = self._unroutable
        self._gathering.is_plain = self._composer.is_plain and not numbered
        self._send_window = SendWindow(self._gathering)
        self._unconfirmed = Unconfirmed(
            self._gathering, self._send_window, _ACKS[acks], wraps=name is not None and not numbered
        )
        self._timer: asyncio.Handle | None = None
        self._link: Link | None = None
        self._error: ClientError | None = None

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises ClientError."""
        if self.handle:
            raise ClientError(f"the producer to {self.place} is open already")
        self._gathering.loop = asyncio.get_running_loop()
        self._error = None
        await self._join(self.check)
        return self

    async def resume(self, link: Link) -> None:
        """There is a connection: open the handle there, and send again what is not confirmed."""
        handle = self.handle
        self._unconfirmed.tells_routed = kinds.ROUTED in link.welcome["capabilities"]
        if self._mandatory and not self._unconfirmed.tells_routed:
            raise ClientError(
                "this gateway does not say whether a queue gets a message",
                remedy="leave mandatory out, or update the gateway",
            )
        answer = await link.request(
            "open_producer", handle=handle, name=self.name, epoch=self.epoch, **self._place
        )
        if self.name is not None and not self._numbered:
            self.epoch = answer["epoch"]
        if self.handle != handle:
            return  # it was closed meanwhile
        self._link = link
        self._gathering.frame_max = link.frame_max
        self._unconfirmed.resend(link, handle)

    def paused(self) -> None:
        """The connection is lost: what is sent waits for the next one."""
        self._link = None

    def failed(self, error: ClientError) -> None:
        """It cannot go on: everything under way fails."""
        self._error = error
        self._link = None
        self._stop_timer()
        self._send_window.fail(error)
        self._unconfirmed.fail(error)
        batch = self._gathering.take()
        if batch is not None:
            self._gathering.under_way -= batch.size
            batch.failed(error, quietly=True)

    async def close(self) -> None:
        """Flush and close. Idempotent.

        Raises:
            ConnectionLost: within the client's `close_timeout_s` not everything was confirmed.

        """
        if not self.handle:
            return
        self.client.check_here()
        try:
            async with asyncio.timeout(self.client.close_timeout_s):
                await self._settled()
        except TimeoutError:
            count = self._unconfirmed.messages
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
            # A program that leaves by an error, or by Ctrl-C, does not wait for a gateway that is not there.
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
        delay_id: str | None = None,
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
            delay_id: Its name while it waits, 1 to 255 bytes: by it `Client.cancel` finds it, and other
                protocols do. One of that name that waits is replaced, by this one at once without a delay.
            ttl_s: How long it is good for, once it is published.
            persistent: False: it may be lost by a restart.
            number: Of a producer with `numbered=True`: above those before; sent again, it is kept once.
            properties: Further ones by AMQP's names: content_type, correlation_id, message_id, priority,
                timestamp (when it happened: a datetime, kept in whole seconds, or an integer)...

        Raises:
            ClientError: it was refused, or cannot be sent any more. Cancelled: it may be kept or not.
            TypeError, ValueError: the body, a header or a property cannot be sent.

        """
        self.client.check_here()
        headers, span = self._composer.traced(headers)
        with span:
            data, block = self._composer.message(body, key, headers, ttl_s, persistent, properties)
            due, name = due_ms(deliver_at, deliver_after_s, self.client.clock), delay_name(delay_id)
            if self._gathering.under_way:
                await self._wait_for_capacity(len(data) + len(block))
            if due or name:
                return await self._send_later(data, block, due, name)
            return await self._add(data, block, number)

    def send_nowait(
        self,
        body: T,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        deliver_at: datetime | float | None = None,
        deliver_after_s: float | None = None,
        delay_id: str | None = None,
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
            key is None
            and headers is None
            and deliver_at is None
            and deliver_after_s is None
            and delay_id is None
            and ttl_s is None
            and number is None
            and persistent
            and not properties
        ):
            # Nothing to encode, and behind others in a batch: this is done once per message.
            sent = self._gathering.plain(body)
            if sent is not None:
                return sent
        self.client.check_here()
        headers, span = self._composer.traced(headers)
        with span:
            data, block = self._composer.message(body, key, headers, ttl_s, persistent, properties)
            due, name = due_ms(deliver_at, deliver_after_s, self.client.clock), delay_name(delay_id)
            if not self._gathering.has_room(len(data) + len(block) + MESSAGE_BYTES):
                raise BufferFull(
                    f"{self.under_way} bytes are under way to {self.place}",
                    remedy="await send, or raise buffer_bytes",
                )
            if due or name:
                return self._send_later(data, block, due, name)
            return self._add(data, block, number)

    async def send_many(self, values: Sequence[T], *, key: bytes | str | None = None) -> list[MessageId]:
        """Send messages in as few batches as they fit, and wait for all; the fast way for many.

        `key` is that of all of them; a producer's own `key` is not asked.
        """
        self.check()
        self.client.check_here()
        if self._numbered:
            self._take_number(None)
        bodies, block = self._composer.many(values, key)
        waiting = []
        at = 0
        while at < len(bodies):
            await self._wait_for_capacity(1)
            self._flush()
            batch = self._gathering.whole(bodies, at, block)
            waiting.append(self._send_whole(batch))
            at += batch.count
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
        self._check_optional("a half message is committed")
        if self._answering is None:
            raise ClientError(
                "a producer without a group cannot prepare messages",
                remedy="say who answers for them: group=Group(...)",
            )
        from penstock.sdk.producing.half import prepared

        data, block = self._composer.message(body, key, headers, ttl_s, True, properties)
        return await prepared(self.client, self.handle, data, block)

    async def flush(self) -> None:
        """Wait until everything sent so far is confirmed. Raises what made the producer fail."""
        self.client.check_here()
        await self._settled()
        if self._error is not None:
            raise self._error

    async def _settled(self) -> None:
        """Wait until nothing is under way."""
        self._flush()
        if await self._unconfirmed.confirm_all():
            if self._error is not None:
                raise self._error
        elif self._link is not None:
            await self._link.drain()

    def transaction(self) -> Transaction:
        """`async with producer.transaction() as tx`: see `Client.transaction`; `tx.send` sends here."""
        from penstock.sdk.transaction import Transaction

        return Transaction(self.client, self)

    @property
    def is_open(self) -> bool:
        """Whether it can send, be it over the next connection."""
        return bool(self.handle) and self._error is None

    @property
    def under_way(self) -> int:
        """Bytes that are gathered or sent and not confirmed."""
        return self._gathering.under_way

    # Inside

    def check(self) -> None:
        """Whether it can send. Raises ClientError."""
        if self._error is not None:
            raise self._error
        if not self.handle:
            raise Closed(
                f"the producer to {self.place} is not open",
                remedy="open it first: use it in a with block, or call its open()",
            )

    def _check_optional(self, when: str) -> None:
        """Raises ClientError: messages are mandatory, and which bindings count is known when `when`."""
        if self._mandatory:
            raise ClientError(
                f"the producer to {self.place} is mandatory=True, and bindings count when {when}",
                remedy="send this by a producer without mandatory",
            )

    def _unroutable(self) -> Unroutable:
        return Unroutable(
            f"no queue and no subscription gets what is sent to {self.place}",
            remedy="bind a queue there with this routing key, or leave mandatory out",
        )

    def encoded(
        self,
        body: Any,
        *,
        key: bytes | str | None,
        headers: Mapping[str, Any] | None,
        ttl_s: float | None,
        properties: Mapping[str, Any] | None,
    ) -> tuple[bytes, bytes]:
        """Body and properties of a message that a transaction sends. Raises TypeError, ValueError."""
        self._check_optional("a transaction is committed")
        headers, span = self._composer.traced(headers)
        with span:
            return self._composer.message(body, key, headers, ttl_s, True, properties or {})

    async def _wait_for_capacity(self, size: int) -> None:
        """Wait for one's turn to send a message of `size` bytes, which is to be added at once."""
        self.check()
        if not self._send_window.is_there(size + MESSAGE_BYTES):
            self._flush()
            await self._send_window.wait(size + MESSAGE_BYTES)

    def _add(self, body: bytes, block: bytes, number: int | None) -> asyncio.Future[MessageId]:
        self.check()
        if self._numbered or number is not None:
            self._take_number(number)
        size = len(body) + len(block)
        gathering = self._gathering
        if not gathering.fits(size):
            self._flush()
            if not gathering.fits(size):
                refused: asyncio.Future[MessageId] = gathering.loop.create_future()
                refused.set_exception(too_large(size, gathering.frame_max))
                return refused
        sent = gathering.add(body, block)
        if gathering.is_full or number is not None:
            self._flush()
        elif self._timer is None:
            if self._linger_s:
                self._timer = gathering.loop.call_later(self._linger_s, self._flush)
            else:
                self._timer = gathering.loop.call_soon(self._flush)
        return sent

    def _take_number(self, number: int | None) -> None:
        """The next batch is one message with that number. Raises TypeError, ValueError."""
        if not self._numbered:
            raise TypeError(f"the producer to {self.place} numbers by itself; open it with numbered=True")
        if number is None:
            raise TypeError(f"the producer to {self.place} is numbered=True: say number=, and use send")
        least = self._unconfirmed.number
        if not least <= number < 2**63:
            raise ValueError(f"numbers rise up to 2^63: {number} is not above {least - 1}")
        self._unconfirmed.number = number

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        """Send what is gathered."""
        self._stop_timer()
        batch = self._gathering.take()
        if batch is not None:
            self._unconfirmed.send(batch, self._link, self.handle)

    def _send_later(
        self, body: bytes, block: bytes, due: int, name: bytes | None
    ) -> asyncio.Future[MessageId]:
        if self.name is not None:
            raise ClientError(
                "a named producer cannot delay messages", remedy="open a producer without a name for these"
            )
        self._check_optional("a delayed message is due")
        self.check()
        self._flush()
        batch = self._gathering.whole([body], 0, block)
        batch.due_ms, batch.name = due or _AT_ONCE_MS, name
        sent: asyncio.Future[MessageId] = self._gathering.loop.create_future()

        def told(whole: asyncio.Future[list[MessageId]]) -> None:
            error = whole.exception()
            if sent.done():
                return
            if error is None:
                sent.set_result(whole.result()[0])
            else:
                sent.set_exception(error)

        self._send_whole(batch).add_done_callback(told)
        return sent

    def _send_whole(self, batch: Pending) -> asyncio.Future[list[MessageId]]:
        """Send a batch of one call; the ids of its messages."""
        future: asyncio.Future[list[MessageId]] = self._gathering.loop.create_future()
        batch.whole = future
        if self._gathering.carries(batch):
            self._unconfirmed.send(batch, self._link, self.handle)
        else:
            self._gathering.under_way -= batch.size
            batch.failed(too_large(batch.size, self._gathering.frame_max))
            self._send_window.make()
        return future

    def frame(self, kind: int, payload: bytes) -> None:
        """CONFIRM, REFUSED or CHECK."""
        if kind == kinds.CONFIRM:
            self._unconfirmed.confirmed(payload)
        elif kind == kinds.REFUSED:
            error = self._unconfirmed.refused(json.loads(payload), self._link, self.handle)
            if isinstance(error, Fenced) or self._numbered:
                # Of numbered messages none may pass one that was refused.
                self.client.forget(self.handle)
                self.failed(error)
        elif kind == kinds.CHECK and self._answering is not None:
            self._answering.asked(payload)


def _named(place: Mapping[str, Any]) -> str:
    if "topic" in place:
        return f"topic {place['topic']!r}"
    if not place["exchange"]:
        return f"queue {place['routing_key']!r}"
    return f"exchange {place['exchange']!r}, key {place['routing_key']!r}"
