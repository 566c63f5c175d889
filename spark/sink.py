"""The sink `format("penstock")`: rows become messages, each once however often Spark sends it.

A task publishes over AMQP in transactions of some hundred messages, so that nothing waits for single confirms
and all of a transaction is kept or nothing. Each message has a producer and a number in it
(docs/reference/amqp.md, "Publishing once"): the producer is the query (or the batch job) and the partition,
the number

    stream: micro-batch << 32 | row in the partition        batch: row in the partition, or its `offset`

so what a retried task or a replayed micro-batch sends again is confirmed and not appended. That needs the
rows of a partition to come in the same order again, which they do unless the query shuffles by chance.
Where a job sees to it that each partition has whole shares of the keys (`messages.Numbers.by_key`), the
producers are those of the shares, and another run may have another number of partitions.
"""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.publishing.amqp import Publisher, check_url
from penstock.spark.publishing.messages import Envelope, Numbers, encoder, parts
from penstock.spark.reports import Reporter, check_address
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
    """Options of the sink; docs/reference/spark.md lists them for users."""

    url: str
    """amqp://USER:PASSWORD@HOST:PORT/VHOST"""
    envelope: Envelope
    producer: str
    """The name of a batch job, which a repetition gives again; "": one of its own."""
    rate: float
    """Messages per second and task at most; 0: no limit."""
    by_offset: bool = False
    """A message's number is its `offset`, which rises from row to row; else that of the row."""
    by_key: bool = False
    """The partitions are whole shares of the keys, and the producers those of the shares."""
    report: str = ""
    """Where to tell how far it is (`reports`); "": nowhere."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of a query, whose names may be in any case. Raises SparkOptionError."""
        given = {name.lower(): value for name, value in options.items()}
        known = {
            name.lower(): name
            for name in (
                "url",
                "exchange",
                "routingKey",
                "producer",
                "sequence",
                "numberedBy",
                "rate",
                "report",
                "checkpointLocation",
            )
        }
        for name in given:
            if name not in known:
                raise SparkOptionError(name, given[name], f"the options are {', '.join(known.values())}")
        url = given.get("url", "")
        check_url(url)
        rate = given.get("rate", "0")
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", rate):
            raise SparkOptionError("rate", rate, "give messages per second")
        sequence = given.get("sequence", "row")
        if sequence not in ("row", "offset"):
            raise SparkOptionError("sequence", sequence, "give row or offset")
        numbered_by = given.get("numberedby", "partition")
        if numbered_by not in ("partition", "key"):
            raise SparkOptionError("numberedBy", numbered_by, "give partition or key")
        report = given.get("report", "")
        if report:
            check_address(report)
        envelope = Envelope(given.get("exchange"), given.get("routingkey"))
        producer = given.get("producer", "")
        by_offset, by_key = sequence == "offset", numbered_by == "key"
        return cls(url, envelope, producer, float(rate), by_offset, by_key, report)


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse a frame that does not say what to send, or says something that would be ignored."""
    envelope = options.envelope
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
    if options.by_offset and "offset" not in types:
        raise SparkError("there is no column 'offset' to number by", remedy="leave the option 'sequence' out")


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """The result of a task."""

    messages: int
    nbytes: int
    """Of their bodies."""


class BatchSink(DataSourceArrowWriter):
    """`frame.write.format("penstock").mode("append")`."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkError("a log cannot be overwritten", remedy='write with mode("append")')
        check_columns(schema, options)
        self.options = options
        self.name = options.producer or f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One partition, in an executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        options = self.options
        producer = self.name if options.by_key else f"{self.name}/{task}"
        numbers = Numbers(producer, by_offset=options.by_offset, by_key=options.by_key)
        return publish(options, iterator, numbers, task)


class StreamSink(DataSourceStreamArrowWriter):
    """`frame.writeStream.format("penstock")`."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkError("a log cannot be overwritten", remedy='use the output mode "append"')
        if options.producer:
            raise SparkOptionError("producer", options.producer, "leave it out: a stream has its query's id")
        if options.by_offset:
            raise SparkOptionError("sequence", "offset", "leave it out: a stream numbers its micro-batches")
        if options.by_key:
            raise SparkOptionError("numberedBy", "key", "leave it out: it is of batch jobs")
        check_columns(schema, options)
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
        numbers = Numbers(f"spark-{query}/{context.partitionId()}", int(batch) << _ROW_BITS)
        return publish(self.options, iterator, numbers)


def publish(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], numbers: Numbers, task: int = 0
) -> Sent:
    """Publish the rows as messages.

    `task` is told with how far it is. Returns when all are confirmed. Raises SparkError with what the
    gateway said.
    """
    sent = nbytes = 0
    rate = options.rate
    rows_max = min(_ROWS_MAX, math.ceil(rate)) if rate else _ROWS_MAX
    began = time.monotonic()
    with Publisher(options.url) as gateway, closing(Reporter(options.report, "sent", task)) as reporter:
        encode = encoder(options.envelope, numbers, gateway.frame_max)
        for batch in batches:
            for part in parts(encode, batch, rows_max, _BYTES_MAX):
                gateway.transaction(part.frames)
                sent += part.messages
                nbytes += part.nbytes
                reporter.add(part.messages, part.nbytes)
                if rate:
                    gateway.pause(sent / rate - (time.monotonic() - began))
        gateway.finish()
    return Sent(sent, nbytes)
