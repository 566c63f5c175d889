"""The sink `format("penstock")`: rows become messages, each once however often Spark sends it.

A task publishes over AMQP in transactions of some hundred messages, so that nothing waits for single confirms
and all of a transaction is kept or nothing. Each message has a producer and a number in it (docs/amqp.md,
"Publishing once"): the producer is the query (or the batch job) and the partition, the number

    stream: micro-batch << 32 | row in the partition        batch: row in the partition

so what a retried task or a replayed micro-batch sends again is confirmed and not appended. That needs the
rows of a partition to come in the same order again, which they do unless the query shuffles by chance.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.credentials import with_password, without_password
from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.messages import Envelope, message_of
from penstock.spark.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchSink", "StreamSink", "WriteOptions", "publish"]

_ROWS_MAX: Final = 500
_BYTES_MAX: Final = 1 << 20
_ROW_BITS: Final = 32


@dataclass(frozen=True)
class WriteOptions:
    """Options of the sink; docs/spark.md lists them for users."""

    url: str
    """amqp://USER:PASSWORD@HOST:PORT/VHOST"""
    envelope: Envelope
    producer: str
    """The name of a batch job, which a repetition gives again; "": one of its own."""
    rate: float
    """Messages per second and task at most; 0: no limit."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of a query, whose names may be in any case. Raises SparkOptionError."""
        given = {name.lower(): value for name, value in options.items()}
        known = {
            name.lower(): name
            for name in ("url", "exchange", "routingKey", "producer", "rate", "checkpointLocation")
        }
        for name in given:
            if name not in known:
                raise SparkOptionError(name, given[name], f"the options are {', '.join(known.values())}")
        url = given.get("url", "")
        if not re.match(r"amqps?://", url):
            raise SparkOptionError("url", without_password(url), "give amqp://USER:PASSWORD@HOST:PORT/VHOST")
        rate = given.get("rate", "0")
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", rate):
            raise SparkOptionError("rate", rate, "give messages per second")
        envelope = Envelope(given.get("exchange"), given.get("routingkey"))
        return cls(url, envelope, given.get("producer", ""), float(rate))


def check_columns(schema: StructType, envelope: Envelope) -> None:
    """Refuse a frame that does not say what to send, or says something that would be ignored."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, found in types.items():
        wanted = COLUMNS.get(name)
        if wanted is None:
            raise SparkError(
                f"column {name!r} is none of a message", remedy=f"select some of {', '.join(COLUMNS)}"
            )
        if found != wanted and not (name in ("payload", "correlation_id") and found == "string"):
            raise SparkError(f"column {name!r} is {found}", remedy=f"cast it to {wanted}")
    if "payload" not in types:
        raise SparkError(
            "there is no column 'payload'", remedy="select what the messages shall hold as payload"
        )
    if envelope.exchange is None and "address" not in types:
        raise SparkError(
            "it is not said to which exchange", remedy="give the option 'exchange', or a column 'address'"
        )
    if envelope.routing_key is None and "routing_key" not in types:
        raise SparkError(
            "there is no routing key", remedy="give the option 'routingKey', or a column 'routing_key'"
        )


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task did."""

    messages: int


class BatchSink(DataSourceArrowWriter):
    """`frame.write.format("penstock").mode("append")`."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkError("a log cannot be overwritten", remedy='write with mode("append")')
        check_columns(schema, options.envelope)
        self.options = options
        self.name = options.producer or f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One partition, in an executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return Sent(publish(self.options, iterator, f"{self.name}/{context.partitionId()}", 0))


class StreamSink(DataSourceStreamArrowWriter):
    """`frame.writeStream.format("penstock")`."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkError("a log cannot be overwritten", remedy='use the output mode "append"')
        if options.producer:
            raise SparkOptionError("producer", options.producer, "leave it out: a stream has its query's id")
        check_columns(schema, options.envelope)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One partition of a micro-batch, in an executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise SparkError("Spark did not say which micro-batch this is", remedy="use pyspark 4.2 or newer")
        first = int(batch) << _ROW_BITS
        return Sent(publish(self.options, iterator, f"spark-{query}/{context.partitionId()}", first))


def publish(options: WriteOptions, batches: Iterator[pa.RecordBatch], producer: str, first: int) -> int:
    """Publish the rows as messages of `producer`, numbered from `first` on; how many.

    Returns when all are confirmed. Raises SparkError with what the gateway said.
    """
    import pika
    import pika.exceptions

    sent = 0
    began = time.monotonic()
    try:
        connection = pika.BlockingConnection(pika.URLParameters(with_password(options.url)))
        try:
            channel = connection.channel()
            channel.tx_select()
            rows = size = 0
            for batch in batches:
                for row in batch.to_pylist():
                    exchange, key, body, properties = message_of(
                        row, options.envelope, producer, first + sent
                    )
                    channel.basic_publish(exchange, key, body, properties)
                    sent += 1
                    rows += 1
                    size += len(body)
                    if rows == _ROWS_MAX or size >= _BYTES_MAX:
                        channel.tx_commit()
                        rows = size = 0
                        if options.rate:
                            # Paced where the caller asked for it, with heartbeats served meanwhile.
                            connection.sleep(max(0.0, sent / options.rate - (time.monotonic() - began)))
            if rows:
                channel.tx_commit()
        finally:
            if connection.is_open:
                connection.close()
    except pika.exceptions.ChannelClosedByBroker as error:
        raise SparkError(f"the gateway refused it: {error.reply_code} {error.reply_text}") from error
    except (pika.exceptions.AMQPError, OSError) as error:
        detail = str(error) or type(error).__name__
        raise SparkError(
            f"publishing failed: {detail}",
            remedy="see that the gateway runs; Spark's retry sends nothing twice",
        ) from error
    return sent
