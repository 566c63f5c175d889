"""A client's side of the native protocol: records made in one go, and those of deliveries."""

from typing import Any

class Record:
    """A delivered message, as the frame has it; a base for classes with more to say."""

    position: int
    """Where it is in the log."""
    timestamp_ms: int
    """When it was appended, since the epoch."""
    tag: int
    """Its number among its consumer's deliveries, from 1."""
    body: bytes
    key_block: bytes
    """u8 size, exchange, u8 size, routing key."""
    block: bytes
    """Its properties, AMQP's content header from the flags on."""
    given_back: int
    """How often it was given back before."""
    redelivered: bool
    """It may have been delivered before."""
    source: Any
    """The `source` of the `Inbox` that made it."""

class MessageId:
    """Where a message is: the position in the log, which rises with each message of a topic. Immutable."""

    position: int
    """0: it is kept, but was sent twice over a lost connection, and where is not known any more."""
    due_ms: int
    """Of a delayed message: when it is published; `Client.cancel` needs both."""
    routed: bool | None
    """Of a message that was sent: whether a queue or subscription gets it. None: nobody said, because it is
    delayed, was not confirmed (`acks="none"`), or the gateway is older. Ids are equal whatever it is."""

    def __init__(self, position: int, due_ms: int = 0, routed: bool | None = None) -> None: ...
    def __lt__(self, other: MessageId) -> bool: ...
    def __le__(self, other: MessageId) -> bool: ...
    def __gt__(self, other: MessageId) -> bool: ...
    def __ge__(self, other: MessageId) -> bool: ...

def encode_records(bodies: list[bytes], props: list[bytes]) -> bytes:
    """Records to be sent, one behind the other. Raises ValueError: lists of different lengths."""
