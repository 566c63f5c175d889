"""Rows of the table `traffic` as AMQP messages: where each goes, and with which properties.

A message of MQTT goes to `amq.topic` with dots for slashes, where the gateway's MQTT clients get it. A row's
own `user_id`, `expires_at` and times of the gateway are not sent: the first is the login's, the others are
of the message that was. The kernel `_messages` encodes; here are its arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.errors import SparkError
from penstock.spark.publishing._messages import COLUMNS, Encoder

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.publishing._messages import Column

__all__ = ["SHARES", "Envelope", "Numbers", "Part", "encoder", "parts"]

SHARES: Final = 32
"""Producers of a run whose messages are numbered by key: as many tasks can publish them. The gateway knows
messages by the names made of it, so this number stays as it is."""


@dataclass(frozen=True)
class Envelope:
    """Where all messages go; None: where each row's own column says."""

    exchange: str | None = None
    routing_key: str | None = None


@dataclass(frozen=True)
class Numbers:
    """How messages are numbered."""

    producer: str
    first: int = 0
    by_offset: bool = False
    """A message's number is its `offset`; else they are counted from `first` on."""
    by_key: bool = False
    """There is a producer for each of `SHARES` shares of the keys (address and routing key) with numbers of
    its own: then it does not matter how many tasks publish, as long as each has whole shares."""
    tasks: int = 1
    task: int = 0
    """Of `tasks`; by key: only those of its shares are sent."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some messages, encoded."""

    frames: bytes
    messages: int
    nbytes: int
    """Of their bodies."""


def encoder(envelope: Envelope, numbers: Numbers, frame_max: int) -> Encoder:
    """The encoder of messages. Raises SparkError: a name is too long for AMQP."""
    producer = numbers.producer
    longest = f"{producer}/{SHARES - 1}" if numbers.by_key else producer
    names = {"exchange": envelope.exchange, "routingKey": envelope.routing_key, "producer": longest}
    for option, name in names.items():
        if name is not None and len(name.encode()) > 255:
            raise SparkError(f"the {option} {name[:40]!r}... has more than 255 bytes", remedy="shorten it")
    exchange, key = (
        None if name is None else name.encode() for name in (envelope.exchange, envelope.routing_key)
    )
    return Encoder(
        producer.encode(),
        frame_max,
        exchange=exchange,
        routing_key=key,
        by_offset=numbers.by_offset,
        sequence=numbers.first,
        shares=SHARES if numbers.by_key else 0,
        tasks=numbers.tasks,
        task=numbers.task,
    )


def parts(encode: Encoder, batch: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[Part]:
    """The messages of a batch in parts of at most so many and about so many bytes.

    Raises SparkError: AMQP cannot say one of them.
    """
    encode.load(batch.num_rows, _columns(batch))
    at = 0
    while at < batch.num_rows:
        try:
            frames, at, messages, nbytes = encode.encode(at, rows_max, bytes_max)
        except ValueError as error:
            raise SparkError(str(error), remedy="leave it out by a condition") from None
        if messages:
            yield Part(frames, messages, nbytes)


_NUMBERS: Final = ("offset", "event_time", "priority", "persistent")


def _columns(batch: pa.RecordBatch) -> dict[str, Column]:
    """The arrays of a batch as the kernel wants them."""
    import pyarrow as pa

    types = {
        "offset": pa.int64(),
        "event_time": pa.timestamp("us", tz="UTC"),
        "priority": pa.int8(),
        "persistent": pa.bool_(),
    }
    batch.validate()
    found: dict[str, Column] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name not in COLUMNS:
            continue
        if name == "headers":
            found |= _headers(array)
        else:
            found[name] = _column(array, types.get(name, pa.binary()))
    return found


def _column(array: Any, wanted: Any) -> Column:
    if array.type != wanted:
        array = array.cast(wanted)
    buffers = array.buffers()
    valid = buffers[0] if array.null_count else None
    return (
        (array.offset, valid, buffers[1], buffers[2])
        if len(buffers) == 3
        else (array.offset, valid, None, buffers[1])
    )


def _headers(array: Any) -> dict[str, Column]:
    import pyarrow as pa

    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    entries = array.values
    if entries.null_count:
        raise SparkError("there is a null among the headers of a message", remedy="leave it out by filter()")
    valid, ends = array.buffers()[:2]
    found: dict[str, Column] = {"headers": (array.offset, valid if array.null_count else None, ends, None)}
    for name, kind in (("name", pa.binary()), ("type", pa.binary()), ("value", pa.binary())):
        found[f"header_{name}"] = _column(entries.field(entries.type.get_field_index(name)), kind)
    return found
