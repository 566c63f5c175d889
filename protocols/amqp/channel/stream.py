"""basic.consume on a stream: where it begins, what it filters, and what RabbitMQ refuses there.

    x-stream-offset             first, last, next, an offset, a timestamp, or an interval such as "7D": that
                                long ago
    x-stream-filter             a value or an array of them: only messages published with one of these as
                                header x-stream-filter-value. Exact; RabbitMQ's filters let others through
    x-stream-match-unfiltered   with a filter: messages without that header, too
    x-penstock-cursor           a name: where its consumer got to is kept, and its next consumer goes on there
                                unless it gives an offset

Source: RabbitMQ's rabbit_stream_queue (consume/3, parse_offset_arg/1, filter_spec/1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp.codec.errors import hard, soft
from penstock.protocols.amqp.codec.properties import headers_of
from penstock.protocols.properties._tables import Timestamp
from penstock.protocols.properties.values import Table, Value
from penstock.router.errors import InvalidArgument
from penstock.router.queues.start_position import StartPosition
from penstock.router.queues.stream_start import StreamStart, find_offset, stream_start
from penstock.subscriptions.errors import QueueGone

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Batch
    from penstock.protocols.amqp.channel.channel import Channel
    from penstock.protocols.amqp.codec._channel import Consumer
    from penstock.protocols.amqp.codec.methods import Consume
    from penstock.subscriptions.streams.stream import Stream

__all__ = ["OFFSET", "Source", "source"]

Wanted = Callable[["Batch", int], bool]
"""Whether a consumer gets record i of a batch."""

OFFSET: Final = "x-stream-offset"
"""The argument of basic.consume that says where to begin; other queues refuse it."""
_FILTER_VALUE: Final = "x-stream-filter-value"


class Source:
    """Where a consumer of a stream reads from."""

    def __init__(self, stream: Stream, start: StreamStart, wanted: Wanted | None, cursor_name: str) -> None:
        self._stream = stream
        self._start = start
        self._wanted = wanted
        self._cursor_name = cursor_name
        self._offset = 0

    def find(self, done: Callable[[bool], None]) -> None:
        """Find the offset to begin with, then call `done`."""

        def found(offset: int | None) -> None:
            self._offset = offset or 0
            done(offset is not None)

        find_offset(self._start, found)

    def give(self, consumer: Consumer) -> None:
        """Let `consumer` be one of a reader's. Raises ConsumerRefused."""
        stream = self._stream
        if stream.deleted:
            raise QueueGone(f"queue '{stream.name}' in vhost '{stream.vhost}' was deleted")
        consumer.queue = stream.reader(self._offset, self._cursor_name)
        consumer.of_stream(stream.feed, stream.base, self._wanted)


def source(channel: Channel, stream: Stream, method: Consume) -> Source:
    """The source in a stream that basic.consume asks for.

    Raises:
        AmqpError: a stream cannot be consumed like that.
        InvalidArgument: an argument that means nothing.

    """
    _check(channel, stream, method.no_ack)
    arguments = method.arguments
    name = arguments.get("x-penstock-cursor", "")
    if not isinstance(name, str) or len(name) > 255:
        raise InvalidArgument(
            "queue", stream.name, stream.vhost, "x-penstock-cursor", name, "unacceptable_type"
        )
    return Source(
        stream,
        _find_start(stream, arguments, name, channel.session.log.now_ms()),
        _wanted(stream, arguments),
        name,
    )


def _check(channel: Channel, stream: Stream, no_ack: bool) -> None:
    place = f"queue '{stream.name}' in vhost '{stream.vhost}'"
    if not channel.prefetch:
        raise soft(406, f"consumer prefetch count is not set for stream {place}")
    if no_ack:
        raise hard(540, f"automatic acknowledgement not supported by stream {place}")
    if channel.core.limit:
        raise hard(540, f"{place} does not support global qos")


def _find_start(stream: Stream, arguments: Table, cursor_name: str, now_ms: int) -> StreamStart:
    value = arguments.get(OFFSET)
    if value is None:
        kept = stream.kept_offset(cursor_name) if cursor_name else None
        return stream.next_offset if kept is None else kept
    wanted = StartPosition(int(value) * 1000) if isinstance(value, Timestamp) else value
    start = stream_start(stream, wanted, now_ms)
    if start is None:
        raise _no_offset(stream, value)
    return start


def _no_offset(stream: Stream, value: Value) -> InvalidArgument:
    return InvalidArgument("queue", stream.name, stream.vhost, OFFSET, value, "invalid_value")


def _wanted(stream: Stream, arguments: Table) -> Wanted | None:
    """The filter of a consumer; None: it gets everything."""
    value = arguments.get("x-stream-filter")
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values):
        raise InvalidArgument(
            "queue", stream.name, stream.vhost, "x-stream-filter", value, "unacceptable_type"
        )
    unfiltered = arguments.get("x-stream-match-unfiltered") is True

    def is_wanted(batch: Batch, i: int) -> bool:
        found = _filter_value(batch, i)
        return unfiltered if found is None else found in values

    return is_wanted


def _filter_value(batch: Batch, i: int) -> Value:
    """The record's header x-stream-filter-value; None: it has none."""
    record = batch.record(i)
    return headers_of(record).get(_FILTER_VALUE) if _FILTER_VALUE.encode() in record.props else None
