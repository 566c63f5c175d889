"""The client: one connection that is made again when it is lost, and what hangs on it.

Producers and consumers register as `Resumable`; after a reconnect each resumes, in the order they were made.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from penstock.sdk.errors import ClientError, Closed, ConnectionLost, LoginRefused
from penstock.sdk.link import Link, Receiver, open_link
from penstock.sdk.message import MessageId
from penstock.sdk.places import of_producer, of_reader, of_subscription, options_of
from penstock.sdk.url import parse_url

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.admin import Admin
    from penstock.sdk.consumer import Consumer
    from penstock.sdk.half import Group
    from penstock.sdk.places import Start
    from penstock.sdk.producer import Producer
    from penstock.sdk.retrying import Retry, RetryingConsumer
    from penstock.sdk.schema import Codec
    from penstock.sdk.table import Table
    from penstock.sdk.tracing import Tracing
    from penstock.sdk.transaction import Transaction

    T = TypeVar("T", default=bytes)
    Sent = TypeVar("Sent", default=bytes | str)
else:
    from typing import TypeVar

    T = TypeVar("T")
    Sent = TypeVar("Sent")

__all__ = ["Client", "connect"]

logger: Final = logging.getLogger("penstock.sdk")

Acks = Literal["all", "written", "none"]
Kind = Literal["exclusive", "failover", "shared", "key_shared"]
_FATAL: Final = frozenset(("frame_size", "malformed", "preface", "unexpected_frame", "version"))
"""What the gateway ended a connection for, and would end the next one for."""
_BACKOFF_S: Final = 0.05
_BACKOFF_MAX_S: Final = 5.0


class Resumable(Receiver, Protocol):
    """A producer or a consumer."""

    async def resume(self, link: Link) -> None:
        """There is a new connection. Raises ClientError."""

    def paused(self) -> None:
        """The connection is lost."""

    def failed(self, error: ClientError) -> None:
        """It cannot go on."""

    async def close(self) -> None:
        """See the classes."""


class Client:
    """A connection to a gateway: `async with penstock.connect(url) as client:`, or `await` it.

    Raises (when entered or awaited):
        ConnectionLost: nobody is there.
        LoginRefused: the user may not come in.

    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        certificate_login: bool = False,
        compression: Literal["zstd", "lz4"] | None = None,
        connect_timeout_s: float = 10.0,
        close_timeout_s: float = 10.0,
        reconnect: bool = True,
        reconnect_timeout_s: float | None = None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A client that is not connected yet.

        Args:
            url: penstock://user:password@host:port/vhost, or penstocks:// for TLS.
            tls: How a gateway proves who it is; None: as Python does it by default.
            user, password: Instead of those in the URL.
            token: A token of OAuth 2, or a function that gets one for each connection, instead of a password.
            certificate_login: Log in as whom the certificate in `tls` names.
            compression: "zstd" or "lz4": batches are compressed in both directions; for slow networks. LZ4
                needs the package lz4 on both sides, makes more bytes, and takes half the CPU.
            connect_timeout_s: How long one try may take.
            close_timeout_s: How long closing waits for what is not confirmed.
            reconnect: Make a lost connection again.
            reconnect_timeout_s: Give up after so long, and have everything raise ConnectionLost; None: never.
            tracing: Spans of OpenTelemetry: `penstock.OpenTelemetry()`.
            clock: Seconds since the epoch, from which `deliver_after_s` counts. In tests: `Gateway.now`.

        """
        target = parse_url(url)
        if user is not None:
            target = target._replace(user=user)
        if password is not None:
            target = target._replace(password=password)
        self.target = target
        self.tracing = tracing
        self.clock = clock
        self.close_timeout_s = close_timeout_s
        self._token = token
        self._give_up_s = reconnect_timeout_s
        self._tls = tls
        self._certified = certificate_login
        self._compression = compression
        self._timeout_s = connect_timeout_s
        self._reconnects = reconnect
        self._stored = True
        self._link: Link | None = None
        self._error: ClientError | None = None
        self._members: dict[int, Resumable] = {}
        self._next_handle = 0
        self._reconnecting: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._closed = False
        self.reconnects = 0
        """How often a lost connection was made again."""

    # Connecting

    async def connect(self) -> Self:
        """Connect, once; what follows is done by itself. Raises ConnectionLost, LoginRefused."""
        if self._closed:
            raise self._is_closed()
        if self._link is not None:
            return self
        self._link = await self._open()
        self._connected.set()
        return self

    async def _open(self) -> Link:
        target = self.target
        if self._token is not None:
            token = self._token if isinstance(self._token, str) else self._token()
            target = target._replace(user="", password=token)
        return await open_link(
            target,
            self._tls,
            self._certified,
            self._compression,
            self._stored,
            self._timeout_s,
            self._on_lost,
        )

    def _on_lost(self, link: Link, why: ClientError) -> None:
        if link is not self._link or self._closed:
            return
        self._link = None
        self._stored = self._stored and not link.damaged
        self._connected.clear()
        for member in list(self._members.values()):
            member.paused()
        if not self._reconnects or isinstance(why, LoginRefused) or why.code in _FATAL:
            self._give_up(why)
        else:
            logger.warning("%s: %s; connecting again", self.target.address, why.message)
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Full jitter: each wait is a random part of a bound that doubles."""
        import random

        loop = asyncio.get_running_loop()
        began, bound_s = loop.time(), _BACKOFF_S
        while True:
            await asyncio.sleep(random.uniform(0, bound_s))
            bound_s = min(2 * bound_s, _BACKOFF_MAX_S)
            try:
                link = await self._open()
            except LoginRefused as error:
                self._give_up(error)
                return
            except ClientError as error:
                if self._give_up_s is not None and loop.time() - began >= self._give_up_s:
                    self._give_up(error)
                    return
                continue
            try:
                # Nobody else may use it before all that hung on the last one hangs on it.
                for handle, member in list(self._members.items()):
                    if handle not in self._members:
                        continue  # closed meanwhile
                    link.route(handle, member)
                    try:
                        await member.resume(link)
                        if handle not in self._members:
                            link.drop(handle)
                    except ConnectionLost:
                        raise
                    except ClientError as error:
                        if error.retryable:
                            raise
                        self.forget(handle)
                        member.failed(error)
                if not link.alive:
                    raise ConnectionLost("it was lost again")
            except ClientError:
                link.abort()
                for member in list(self._members.values()):
                    member.paused()
                continue
            except BaseException:
                link.abort()
                raise
            self._link = link
            self.reconnects += 1
            logger.warning("%s: connected again after %.1f s", self.target.address, loop.time() - began)
            self._reconnecting = None
            self._connected.set()
            return

    def _give_up(self, why: ClientError) -> None:
        self._error = why
        self._connected.set()
        for handle, member in list(self._members.items()):
            self.forget(handle)
            member.failed(why)

    async def link(self) -> Link:
        """The connection, when there is one (again). Raises Closed, ConnectionLost."""
        while True:
            if self._closed:
                raise self._is_closed()
            if self._error is not None:
                raise self._error
            if self._link is not None and self._link.alive:
                return self._link
            if self._reconnecting is None and self._link is None:
                raise ConnectionLost(
                    f"the client of {self.target.address} is not connected",
                    remedy="use it with async with, or await its connect()",
                )
            self._connected.clear()
            await self._connected.wait()

    def _is_closed(self) -> Closed:
        return Closed(
            f"the client of {self.target.address} is closed", remedy="connect again: penstock.connect(...)"
        )

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None and self._link.alive

    @property
    def reconnecting(self) -> bool:
        """Whether a lost connection is made again."""
        return self._reconnects and not self._closed and self._error is None

    async def request(self, /, do: str, **fields: Any) -> dict[str, Any]:
        """A request of docs/protocols/native.md. Raises ClientError."""
        return await (await self.link()).request(do, **fields)

    # Members

    def register(self, member: Resumable) -> int:
        """A handle for a new producer or consumer."""
        self._next_handle += 1
        self._members[self._next_handle] = member
        return self._next_handle

    def forget(self, handle: int) -> None:
        """It is closed."""
        self._members.pop(handle, None)
        if self._link is not None:
            self._link.route(handle, None)

    # What users make

    def producer(
        self,
        topic: str | None = None,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        mqtt_topic: str | None = None,
        schema: type[Sent] | Codec[Sent] | None = None,
        key: Callable[[Sent], bytes | str | None] | None = None,
        name: str | None = None,
        numbered: bool = False,
        acks: Acks = "all",
        linger_ms: float = 0,
        batch_bytes: int = 262_144,
        batch_messages: int = 10_000,
        buffer_bytes: int = 32 << 20,
        create: bool = True,
        group: Group | None = None,
    ) -> Producer[Sent]:
        """A producer to a topic, a queue, an exchange with a routing key, or an MQTT topic.

        `async with` opens it.

        Args:
            schema: The type of what is sent, or how it is encoded; see `penstock.Schema`.
            key: The ordering key of what is sent, e.g. `lambda order: order.user`.
            name: Makes it idempotent: what it sends again after a lost connection is kept once, and a newer
                producer of that name fences it off.
            numbered: With a name: messages are sent with numbers of the program's own, which rise, and each
                is kept once over restarts of the program, too; see `penstock.sdk.outbox`.
            acks: What `send` waits for: "all" the disk, "written" the operating system, "none" nothing.
            linger_ms: How long a batch waits for more; at 0 it has what one turn of the loop brings.
            batch_bytes, batch_messages: What a batch holds at most.
            buffer_bytes: What may be under way; above it `send` waits and `send_nowait` raises BufferFull.
            create: Make the topic when there is none.
            group: For half messages: `Producer.prepare`.

        """
        from penstock.sdk.producer import Producer
        from penstock.sdk.schema import codec_of

        return Producer(
            self,
            of_producer(topic, queue, exchange, routing_key, mqtt_topic, create),
            name=name,
            numbered=numbered,
            acks=acks,
            linger_s=linger_ms / 1000,
            batch_bytes=batch_bytes,
            batch_messages=batch_messages,
            buffer_bytes=buffer_bytes,
            group=group,
            codec=codec_of(schema),
            key=key,
        )

    def subscribe(
        self,
        topic: str | None = None,
        subscription: str | None = None,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        mqtt_filter: str | None = None,
        schema: type[T] | Codec[T] | None = None,
        kind: Kind = "shared",
        start: Start = "latest",
        durable: bool = True,
        exclusive: bool = False,
        priority: int = 0,
        prefetch: int = 1000,
        prefetch_bytes: int = 16 << 20,
        ack_timeout_s: float | None = None,
        nack_backoff_s: tuple[float, float] | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        create: bool = True,
        consumer: str | None = None,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> Consumer[T]:
        """A consumer of a subscription to a topic, an exchange or an MQTT filter, or of an AMQP queue.

        `async with` opens it. A subscription to an exchange or a filter is a durable AMQP queue of that name,
        which is bound there; other clients know it, too.

        Args:
            schema: The type of `message.value`, or how it is decoded; see `penstock.Schema`.
            kind: "exclusive" (one consumer), "failover" (one at a time, others stand by), "shared" (each
                message to one of them), "key_shared" (each key to one of them; of topics only).
            start: Where a new subscription begins: "earliest", "latest", "-1h", a datetime, a timedelta, a
                MessageId.
            durable: It outlives its consumers and a restart.
            exclusive: Of a queue: let no other consumer in.
            prefetch, prefetch_bytes: What may wait in this process, in bytes with 28 for each message (and
                a message of more than a fifth of it besides); 0 messages: only `pull` brings some.
            ack_timeout_s: What is not acknowledged in time comes again, to whoever is there.
            nack_backoff_s: How long what is given back waits; it doubles from the first to the second.
            create: Make topics that are not there: this one, and `dead_letter`.
            consumer: Its name, by which the active one, or the keys, are chosen.
            ranges: For sticky key-shared subscriptions: the slots, of 65,536, that this consumer gets.
            max_deliveries, dead_letter: After so many a message goes to the topic `dead_letter`.

        """
        from penstock.sdk.consumer import Consumer
        from penstock.sdk.schema import codec_of

        said = {
            "exclusive": exclusive or None,
            "priority": priority or None,
            "consumer": consumer,
            "ranges": None if ranges is None else [list(one) for one in ranges],
        }
        options = options_of(
            kind=kind,
            durable=durable,
            create=create,
            ack_timeout_s=ack_timeout_s,
            nack_backoff_s=nack_backoff_s,
            max_deliveries=max_deliveries,
            dead_letter=dead_letter,
            ranges=ranges,
        )
        opening = of_subscription(
            topic,
            subscription,
            queue,
            exchange,
            routing_key,
            mqtt_filter,
            start,
            {name: value for name, value in said.items() if value is not None},
            options,
        )
        return Consumer(self, opening, prefetch, prefetch_bytes, codec_of(schema))

    def retrying(
        self,
        topic: str,
        subscription: str,
        retry: Retry | None = None,
        *,
        schema: type[T] | Codec[T] | None = None,
        kind: Kind = "shared",
        start: Start = "latest",
        prefetch: int = 1000,
        prefetch_bytes: int = 16 << 20,
        ack_timeout_s: float | None = None,
        create: bool = True,
    ) -> RetryingConsumer[T]:
        """A consumer whose failures come again by a retry topic; see `penstock.Retry`.

        The other arguments are those of `subscribe`.
        """
        from penstock.sdk.retrying import Retry, RetryingConsumer

        return RetryingConsumer(
            self,
            topic,
            subscription,
            retry or Retry(),
            start,
            {
                "schema": schema,
                "kind": kind,
                "prefetch": prefetch,
                "prefetch_bytes": prefetch_bytes,
                "ack_timeout_s": ack_timeout_s,
                "create": create,
            },
        )

    def reader(
        self,
        topic: str | None = None,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        mqtt_filter: str | None = None,
        schema: type[T] | Codec[T] | None = None,
        start: Start = "latest",
        prefetch: int = 1000,
        prefetch_bytes: int = 16 << 20,
    ) -> Consumer[T]:
        """Messages of a topic, an exchange, an MQTT filter, or a queue from `start` on, without taking them.

        See `subscribe`. After a lost connection it goes on behind the last message that was given out. What
        was published to an exchange before is there as long as the gateway keeps its traffic.
        """
        from penstock.sdk.consumer import Consumer
        from penstock.sdk.schema import codec_of

        opening = of_reader(topic, queue, exchange, routing_key, mqtt_filter, start)
        return Consumer(self, opening, prefetch, prefetch_bytes, codec_of(schema))

    def table(
        self,
        topic: str,
        *,
        schema: type[T] | Codec[T] | None = None,
        prefetch: int = 1000,
        saved: bytes | None = None,
    ) -> Table[T]:
        """The last value of each key of a topic, kept up to date; see `penstock.sdk.table`.

        Opening it reads the whole topic (some 2 s of CPU for a million messages), unless it goes on from what
        another table had `saved`.
        """
        from penstock.sdk.schema import codec_of
        from penstock.sdk.table import Table

        return Table(self, topic, codec_of(schema), prefetch, saved)

    def transaction(self) -> Transaction:
        """`async with client.transaction() as tx`: sends and acknowledgements, all or none."""
        from penstock.sdk.transaction import Transaction

        return Transaction(self)

    @property
    def admin(self) -> Admin:
        """Topics, subscriptions, bindings."""
        from penstock.sdk.admin import Admin

        return Admin(self)

    async def cancel(
        self,
        topic: str | None,
        id: MessageId,
        *,
        exchange: str | None = None,
        routing_key: str = "",
    ) -> bool:
        """Have a delayed message never come.

        Args:
            topic: What it was sent to; None: to `exchange`, by `routing_key`.
            id: What `Producer.send` gave for it.

        Returns:
            False: it came already, or none of this id was sent there.

        """
        where = {"topic": topic} if exchange is None else {"exchange": exchange, "routing_key": routing_key}
        answer = await self.request("cancel", **where, position=id.position, due_ms=id.due_ms)
        return bool(answer["cancelled"])

    # Closing

    async def close(self) -> None:
        """Flush and close everything. Idempotent.

        Raises:
            ConnectionLost: within `close_timeout_s` not everything that was sent was confirmed.

        """
        if self._closed:
            return
        failure: ClientError | None = None
        try:
            for member in reversed(list(self._members.values())):
                try:
                    await member.close()
                except ClientError as error:
                    failure = failure or error
        finally:
            self._closed = True
            self._connected.set()
            link, self._link = self._link, None
            try:
                if self._reconnecting is not None:
                    self._reconnecting.cancel()
                    await asyncio.gather(self._reconnecting, return_exceptions=True)
            finally:
                if link is not None:
                    await self._close_link(link)
        if failure is not None:
            raise failure

    async def _close_link(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self.close_timeout_s):
                await link.close()
        except TimeoutError:
            link.abort()  # the peer takes nothing more

    def __await__(self) -> Generator[Any, None, Client]:
        return self.connect().__await__()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


connect = Client
"""Connect to a gateway: `client = await connect(url)`, or `async with connect(url) as client:`."""
