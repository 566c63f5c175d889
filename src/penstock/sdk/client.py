"""The client: a connection, and the producers, consumers and tables that users make on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.sdk.addresses import of_producer, of_reader, of_subscription, options_of
from penstock.sdk.checking import pairs
from penstock.sdk.connection.connecting import Connecting
from penstock.sdk.message import MessageId

if TYPE_CHECKING:
    import re

    from typing_extensions import TypeVar

    from penstock.sdk.addresses import Start
    from penstock.sdk.admin import Admin
    from penstock.sdk.consuming.consumer import Consumer
    from penstock.sdk.consuming.reader import Reader
    from penstock.sdk.consuming.retrying import Retry, RetryingConsumer
    from penstock.sdk.consuming.topics import TopicsConsumer
    from penstock.sdk.message import Message
    from penstock.sdk.producing.half import Group
    from penstock.sdk.producing.producer import Producer
    from penstock.sdk.requesting import Replying, Requesting
    from penstock.sdk.schema import Codec
    from penstock.sdk.tables.table import Table
    from penstock.sdk.transaction import Transaction

    T = TypeVar("T", default=bytes)
    Sent = TypeVar("Sent", default=bytes | str)
else:
    from typing import TypeVar

    T = TypeVar("T")
    Sent = TypeVar("Sent")

__all__ = ["Client", "connect"]

Acks = Literal["all", "written", "none"]
Kind = Literal["exclusive", "failover", "shared", "key_shared"]


class Client(Connecting):
    """A connection to a gateway: `async with penstock.connect(url) as client:`, or `await` it.

    Raises (when entered or awaited):
        ConnectionLost: nobody is there.
        LoginRefused: the user may not come in.

    """

    _requesting: Requesting | None = None
    _replying: Replying | None = None

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
        mandatory: bool = False,
    ) -> Producer[Sent]:
        """A producer to a topic, a queue, an exchange with a routing key, or an MQTT topic.

        `async with` opens it.

        Args:
            schema: The type of what is sent, or how it is encoded; see `penstock.Schema`.
            key: The ordering key of what is sent, e.g. `lambda order: order.user`.
            name: Makes it idempotent: what it sends again after a lost connection is kept once, and a newer
                producer of that name fences it off.
            numbered: With a name: messages are sent with numbers of the program's own, which rise, and each
                is kept once over restarts of the program, too; see `penstock.sdk.producing.outbox`.
            acks: `send` waits for this: "all" the disk, "written" the operating system, "none" nothing.
            linger_ms: How long a batch waits for more; at 0 it has what one turn of the loop brings.
            batch_bytes, batch_messages: The most that a batch holds.
            buffer_bytes: The most under way; above it `send` waits and `send_nowait` raises BufferFull.
            create: Make the topic when there is none.
            group: For half messages: `Producer.prepare`.
            mandatory: A message that no queue and no subscription gets raises Unroutable.

        """
        from penstock.sdk.producing.producer import Producer
        from penstock.sdk.schema import codec_of

        return Producer(
            self,
            of_producer(topic, queue, exchange, routing_key, mqtt_topic, create),
            name=name,
            numbered=numbered,
            acks=acks,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            batch_messages=batch_messages,
            buffer_bytes=buffer_bytes,
            group=group,
            mandatory=mandatory,
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
        max_unacked: int | None = None,
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
            prefetch, prefetch_bytes: The most that waits in this process, in bytes with 28 for each (and
                a message of more than a fifth of it besides); 0 messages: only `pull` brings some.
            max_unacked: Unacknowledged deliveries, with those that wait here; at most `native.max_unacked`.
            ack_timeout_s: A message that is not acknowledged in time comes again, to whoever is there.
            nack_backoff_s: How long what is given back waits; it doubles from the first to the second.
            create: Make topics that are not there: this one, and `dead_letter`.
            consumer: Its name, by which the active one, or the keys, are chosen.
            ranges: For sticky key-shared subscriptions: the slots, of 65,536, that this consumer gets.
            max_deliveries, dead_letter: After so many a message goes to the topic `dead_letter`.

        """
        from penstock.sdk.consuming.consumer import Consumer
        from penstock.sdk.schema import codec_of

        said = {
            "exclusive": exclusive or None,
            "priority": priority or None,
            "max_unacked": max_unacked,
            "consumer": consumer,
            "ranges": None if ranges is None else pairs("ranges", ranges),
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
        from penstock.sdk.consuming.retrying import Retry, RetryingConsumer

        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"retry is a penstock.Retry, not {type(retry).__name__}")
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

    def subscribe_topics(
        self,
        topics: Sequence[str] | re.Pattern[str],
        subscription: str,
        *,
        schema: type[T] | Codec[T] | None = None,
        kind: Kind = "shared",
        start: Start = "latest",
        look_s: float = 60,
        prefetch: int = 1000,
        prefetch_bytes: int = 16 << 20,
        max_unacked: int | None = None,
        ack_timeout_s: float | None = None,
        nack_backoff_s: tuple[float, float] | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        consumer: str | None = None,
    ) -> TopicsConsumer[T]:
        """A consumer of subscriptions of one name to several topics: listed, or all whose names a pattern
        matches as a whole (`re.compile("orders-.*")`); see `penstock.sdk.consuming.topics`.

        The other arguments are those of `subscribe`, for each of the topics.

        Args:
            topics: Those that are listed are made when they are not there.
            look_s: With a pattern: how often new topics are looked for.

        """
        from penstock.sdk.consuming.topics import TopicsConsumer

        options = {
            "schema": schema,
            "kind": kind,
            "prefetch": prefetch,
            "prefetch_bytes": prefetch_bytes,
            "max_unacked": max_unacked,
            "ack_timeout_s": ack_timeout_s,
            "nack_backoff_s": nack_backoff_s,
            "max_deliveries": max_deliveries,
            "dead_letter": dead_letter,
            "consumer": consumer,
        }
        return TopicsConsumer(self, topics, subscription, start, look_s, options)

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
    ) -> Reader[T]:
        """Messages of a topic, an exchange, an MQTT filter, or a queue from `start` on, without taking them.

        See `subscribe`. After a lost connection it goes on behind the last message that was given out. What
        was published to an exchange before is there as long as the gateway keeps its traffic.
        """
        from penstock.sdk.consuming.reader import Reader
        from penstock.sdk.schema import codec_of

        opening = of_reader(topic, queue, exchange, routing_key, mqtt_filter, start)
        return Reader(self, opening, prefetch, prefetch_bytes, codec_of(schema))

    def table(
        self,
        topic: str,
        *,
        schema: type[T] | Codec[T] | None = None,
        prefetch: int = 1000,
        saved: bytes | None = None,
    ) -> Table[T]:
        """The last value of each key of a topic, kept up to date; see `penstock.sdk.tables.table`.

        Opening it reads the whole topic (some 2 s of CPU for a million messages), unless it goes on from what
        another table had `saved`.
        """
        from penstock.sdk.schema import codec_of
        from penstock.sdk.tables.table import Table

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

    # Requests

    async def request(
        self,
        /,
        body: bytes | str,
        *,
        queue: str | None = None,
        topic: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        mqtt_topic: str | None = None,
        timeout_s: float = 30.0,
        **properties: Any,
    ) -> Message[bytes]:
        """Send a request, and wait for its reply. Any number of them may be under way.

        The request has this client's queue of replies as `reply_to`, and a `correlation_id`, which the reply
        repeats. AMQP's, MQTT 5's and HTTP's clients can answer it, and `Consumer.respond`.

        Args:
            body: Bytes; text is encoded in UTF-8.
            queue, topic, exchange, routing_key, mqtt_topic: Where responders take requests from.
            timeout_s: How long the reply may take. A request that nobody took in this time leaves its queue.
            properties: `key`, `headers` and further ones; see `Producer.send`.

        Returns:
            The reply; it needs no acknowledgement.

        Raises:
            NoReply: none came in time.
            NotFound, Unroutable: nobody can take the request there.
            ConnectionLost: the request may have been handled or not.
            ClientError: it was refused.

        """
        from penstock.sdk.requesting import Requesting

        if self._requesting is None:
            self._requesting = Requesting(self)
        said = {
            "queue": queue,
            "topic": topic,
            "exchange": exchange,
            "routing_key": routing_key or None,
            "mqtt_topic": mqtt_topic,
        }
        place = {name: value for name, value in said.items() if value is not None}
        return await self._requesting.request(place, body, timeout_s, properties)

    async def reply(self, /, message: Message[Any], body: bytes | str = b"", **properties: Any) -> None:
        """Reply to a request: to its `reply_to`, with its `correlation_id`. See also `Consumer.respond`.

        Args:
            message: The request. It is not acknowledged by this.
            body: Bytes; text is encoded in UTF-8.
            properties: `headers` and further ones; see `Producer.send`.

        Raises:
            NotFound: the requester is gone.
            ClientError: the request wants no reply, or the reply was refused.

        """
        from penstock.sdk.requesting import Replying

        if self._replying is None:
            self._replying = Replying(self)
        await self._replying.reply(message, body, properties)

    async def cancel(
        self,
        topic: str | None,
        id: MessageId | str,
        *,
        exchange: str | None = None,
        routing_key: str = "",
    ) -> bool:
        """Have a delayed message never come.

        Args:
            topic: The topic it was sent to; None: to `exchange`, by `routing_key`.
            id: The result of `Producer.send` for it; or its name (`delay_id`), by whatever protocol it was
                published. A name is one of the exchange, and one of all topics and queues together.

        Returns:
            False: it came already, or none of this id was sent there, or none of this name waits that this
                user may publish.

        Raises:
            TypeError: `id` is no MessageId and no name, or it is not said what it was sent to.

        """
        if not isinstance(id, MessageId | str):
            raise TypeError(
                "id is the MessageId that send gave for the delayed message, or its delay_id, "
                f"not {type(id).__name__}"
            )
        if (topic is None) == (exchange is None):
            raise TypeError("cancel needs one of topic and exchange: what the message was sent to")
        where = {"topic": topic} if exchange is None else {"exchange": exchange, "routing_key": routing_key}
        if isinstance(id, str):
            which: dict[str, str | int] = {"name": id}
        else:
            which = {"position": id.position, "due_ms": id.due_ms}
        answer = await self.call("cancel", **where, **which)
        return bool(answer["cancelled"])


connect = Client
"""Connect to a gateway: `client = await connect(url)`, or `async with connect(url) as client:`."""
