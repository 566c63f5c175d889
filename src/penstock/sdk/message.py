"""Messages as the client gives them out, and their properties as it sends them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Generic

from penstock.protocols.native.codec._records import MessageId, Record
from penstock.protocols.native.codec.kinds import KEY_HEADER

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import TypeVar

    from penstock.sdk.consuming.consumer import Source

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["PROPERTIES_MAX", "REPLY_TO", "Message", "MessageId", "is_reserved", "properties_block"]

_KEY: Final = KEY_HEADER.encode()

_RESERVED: Final = ("CC", "BCC", "x-mqtt-retain")
PROPERTIES_MAX: Final = 131_052
"""Bytes of a message's properties that the gateway takes; see docs/reference/native.md."""
REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""How an address begins that only AMQP clients can be answered at."""

PLAIN: Final = b"\x10\x00\x02"
"""The properties of a message that has none but to be kept: delivery-mode 2."""


def properties_block(
    key: bytes | str | None,
    headers: Mapping[str, Any] | None,
    ttl_ms: int | None,
    persistent: bool,
    properties: Mapping[str, Any] | None = None,
) -> bytes:
    """The properties of a message, encoded.

    Raises:
        ValueError: a name or a value is too long, or the gateway would refuse it.
        TypeError: there is no such property, or a value is of a type that none can have.

    """
    if key is None and not headers and ttl_ms is None and persistent and not properties:
        return PLAIN
    from penstock.protocols.properties.properties import FIELDS, encode_properties

    if properties and "delivery_mode" in properties:
        raise TypeError("delivery_mode is said by persistent: True for 2, False for 1")
    made: dict[str, Any] = {**(properties or {}), "delivery_mode": 2 if persistent else 1}
    if key is not None and not isinstance(key, str | bytes):
        raise TypeError(f"a key is text or bytes, not {type(key).__name__}")
    if key is not None or headers:
        if not isinstance(headers or {}, Mapping):
            raise TypeError(f"headers are a mapping of names to values, not {type(headers).__name__}")
        made["headers"] = {**({} if key is None else {KEY_HEADER: key}), **(headers or {})}
    happened = made.get("timestamp")
    if happened is not None and hasattr(happened, "timestamp"):
        if happened.tzinfo is None:
            raise ValueError(
                "timestamp must be a datetime with a time zone: datetime.now(UTC), or .astimezone()"
            )
        made["timestamp"] = int(happened.timestamp())
    if ttl_ms is not None:
        made["expiration"] = str(ttl_ms)
    names = [name for name, _ in FIELDS]
    unknown = made.keys() - set(names)
    if unknown:
        raise TypeError(
            f"there is no property {sorted(unknown)[0]!r}: there are {', '.join(names)}, and headers"
        )
    try:
        block = encode_properties(made)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise _culprit(made, error) from error
    # The gateway refuses a batch whole: what it would refuse is told here, or others' messages went with it.
    found = _parser()(block)
    if found is None or found[4] or len(block) > PROPERTIES_MAX:
        raise ValueError(_refused(made, len(block)))
    return block


def is_reserved(name: str) -> bool:
    """Whether a header is one of the gateway's own, which no client of this protocol may send."""
    return name in _RESERVED or name.startswith("x-penstock-")


def _refused(properties: Mapping[str, Any], size: int) -> str:
    """Why the gateway takes no message with these properties, which are encoded in `size` bytes."""
    if size > PROPERTIES_MAX:
        return (
            f"headers and properties of {size:,} bytes: {PROPERTIES_MAX:,} are taken; send more in the body"
        )
    for name in properties.get("headers", {}):
        if is_reserved(name):
            return f"the header {name!r} is the gateway's own; leave it out"
    if str(properties.get("reply_to", "")).startswith(REPLY_TO):
        return f"the property 'reply_to' cannot be {REPLY_TO}: that serves AMQP clients only; name a queue"
    if "expiration" in properties:
        return (
            f"the property 'expiration' is no number of ms: {properties['expiration']!r}; say ttl_s instead"
        )
    return "the properties are none that the gateway takes"


def _culprit(properties: Mapping[str, Any], error: Exception) -> Exception:
    """The error, naming the property or header whose value cannot be encoded."""
    from penstock.protocols.properties.properties import encode_properties

    headers = {
        f"header {name!r}": {"headers": {name: value}}
        for name, value in properties.get("headers", {}).items()
    }
    others = {f"property {name!r}": {name: value} for name, value in properties.items() if name != "headers"}
    kind = ValueError if isinstance(error, ValueError | OverflowError) else TypeError
    for what, one in {**others, **headers}.items():
        try:
            encode_properties(one)
        except (TypeError, ValueError, OverflowError, struct.error) as found:
            return kind(f"the {what} cannot be sent: {found}")
    return kind(f"the headers cannot be sent: {error}")


@cache
def _parser() -> Callable[[bytes], tuple[int, int, int, bytes | None, bool] | None]:
    """Loaded when it is needed, as all that has to do with properties is."""
    from penstock.protocols.properties._properties import parse

    return parse


@cache
def _header_reader() -> Callable[[bytes, bytes], str | bytes | None]:
    """Loaded when it is needed, as all that reads properties is."""
    from penstock.protocols.properties._tables import read_text_header

    return read_text_header


class Described:
    """An object with properties, encoded in `block`."""

    block: bytes

    @cached_property
    def properties(self) -> dict[str, Any]:
        """All its properties by AMQP's names, e.g. `content_type`; MQTT's and HTTP's are translated."""
        from penstock.protocols.properties.properties import decode_properties

        return decode_properties(self.block)

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers; MQTT's user properties."""
        found = self.properties.get("headers")
        return found if isinstance(found, dict) else {}

    @property
    def key(self) -> str | bytes | None:
        """Its ordering key, None without one."""
        return _header_reader()(self.block, _KEY)


class Message(Record, Described, Generic[T]):
    """A delivered message.

    `body`, `position`, `timestamp_ms`, `redelivered` and `given_back` are those of `Record`.
    """

    source: Source[T]

    @cached_property
    def value(self) -> T:
        """Its body as its consumer's schema decodes it; without a schema the body.

        Raises BadBody, or what the schema raises: only here, so that one bad message stops no loop.
        """
        return self.source.consumer.decode(self.body)

    @property
    def id(self) -> MessageId:
        """Its name: `start=str(message.id)` reads from it on."""
        return MessageId(self.position)

    @property
    def topic(self) -> str:
        """The topic it was consumed from; "": it came from a queue."""
        return self.source.consumer.topic

    @property
    def exchange(self) -> str:
        """The exchange it was published to; "" for topics and queues."""
        return self.key_block[1 : 1 + self.key_block[0]].decode("utf-8", "surrogateescape")

    @property
    def routing_key(self) -> str:
        """The key it was routed by: the topic's name, or an AMQP routing key."""
        return self.key_block[2 + self.key_block[0] :].decode("utf-8", "surrogateescape")

    @property
    def reply_to(self) -> str | None:
        """The queue that an answer goes to, MQTT's response topic; None without one."""
        return self.properties.get("reply_to")

    @property
    def correlation_id(self) -> str | None:
        """The id that an answer repeats, so that the requester knows it; None without one."""
        return self.properties.get("correlation_id")

    @property
    def time(self) -> datetime:
        """When it was appended, in UTC."""
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def trace(self) -> dict[str, str]:
        """Its W3C trace context: `traceparent`, `tracestate`; {} without one."""
        headers = self.headers
        return {name: str(headers[name]) for name in ("traceparent", "tracestate") if name in headers}

    @property
    def stale(self) -> bool:
        """It cannot be acknowledged any more; it comes again."""
        return self.source.consumer.is_stale(self)

    def process(self) -> AbstractAsyncContextManager[Message[T]]:
        """`async with message.process():` acknowledges it, or gives it back when the block raises."""
        return self.source.consumer.processing(self)

    async def extend(self) -> None:
        """More time: the subscription's `ack_timeout_s` begins anew. Raises StaleDelivery, ClientError."""
        await self.source.consumer.extend(self)

    def __repr__(self) -> str:
        return f"<Message {self.position} {self.body[:40]!r}{' redelivered' if self.redelivered else ''}>"
