"""Records as objects of JSON: what a person or a program reads of a log, in the words of its protocol.

A record is shown with what it says (`exchange`, `routing_key`, `topic`, `properties`, `body`). Bytes that
are no text come as base64 in a member of their own: `body_base64` for `body`.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import orjson

from penstock.errors import PenstockError
from penstock.log_core.batch import _batch
from penstock.log_core.batch._batch import Batch, Record
from penstock.log_core.state.tables import split_key
from penstock.protocols.amqp.codec.properties import decode_properties as decode_amqp
from penstock.protocols.mqtt.codec.properties import decode_properties as decode_mqtt
from penstock.protocols.mqtt.codec.properties import encode_varint
from penstock.router.names import split_key_block

if TYPE_CHECKING:
    from penstock.log_tools.repair import Repair
    from penstock.log_tools.stats import Stats

__all__ = [
    "FLAGS",
    "KINDS",
    "Body",
    "base64_text",
    "iso",
    "json_line",
    "print_repair",
    "print_stats",
    "shown",
    "shown_state",
]

Body = Literal["auto", "base64", "none"]

FLAGS: Final = {
    name.lower(): getattr(_batch, name)
    for name in (
        "PERSISTENT",
        "REF",
        "DELAYED",
        "HALF",
        "RETAIN",
        "TOMBSTONE",
        "CHUNK",
        "UNROUTED",
        "EXACTLY_ONCE",
    )
}
"""Flags of a record by their names; LIST is only how its feeds are written."""
KINDS: Final = {_batch.RECORDS: "record", _batch.STATE: "state", _batch.DELAYED_RECORDS: "delayed"}
_MIB: Final = 1024 * 1024
_ENCODINGS: Final = {
    _batch.NONE: "none",
    _batch.AMQP091: "amqp091",
    _batch.MQTT5: "mqtt5",
    _batch.NATIVE: "native",
}


def iso(ms: int) -> str:
    """A time in ms since the epoch as RFC 3339 in UTC; "-" for 0."""
    return (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if ms
        else "-"
    )


def base64_text(data: bytes) -> str:
    """Standard base64."""
    return base64.b64encode(data).decode("ascii")


def json_line(value: object) -> bytes:
    """One line of JSON, its newline included."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": base64_text(value)}
    return str(value)


def _put(item: dict[str, Any], name: str, data: bytes) -> None:
    """Text under its name, anything else as base64 under NAME_base64."""
    try:
        item[name] = data.decode("utf-8")
    except UnicodeDecodeError:
        item[f"{name}_base64"] = base64_text(data)


def shown(batch: Batch, index: int, body: Body) -> dict[str, Any]:
    """Record `index` of a batch of records, delayed ones included."""
    record = batch.record(index)
    item: dict[str, Any] = {
        "position": record.lsn,
        "kind": KINDS[batch.kind],
        "time": iso(record.ts),
        "feeds": record.feeds,
        "flags": [name for name, bit in FLAGS.items() if record.flags & bit],
        "encoding": _ENCODINGS.get(record.enc, str(record.enc)),
    }
    if record.priority:
        item["priority"] = record.priority
    if record.ttl:
        item["expires_ms"] = record.ttl
    delay = batch.delay_of(index)
    if delay is not None:
        item["due"] = iso(delay[0])
    _put_words(item, record)
    item["size"] = len(record.body)
    if body == "base64":
        item["body_base64"] = base64_text(record.body)
    elif body == "auto":
        _put(item, "body", record.body)
    return item


def _put_words(item: dict[str, Any], record: Record) -> None:
    try:
        if record.enc == _batch.AMQP091:
            exchange, key = split_key_block(record.key) or ("", record.key)
            item["exchange"] = exchange
            _put(item, "routing_key", key)
            item["properties"] = decode_amqp(record.props) if record.props else {}
            return
        if record.enc == _batch.MQTT5:
            _put(item, "topic", record.key)
            block = encode_varint(len(record.props)) + record.props
            item["properties"] = decode_mqtt(block, 0, len(block), "PUBLISH")[0]
            return
    except (PenstockError, ValueError):
        pass  # the log keeps what it was given: shown as it is
    item["key_base64"] = base64_text(record.key)
    item["properties_base64"] = base64_text(record.props)


def shown_state(record: Record) -> dict[str, Any]:
    """A record of a state batch: one change of a table."""
    table, key = split_key(record.key)
    item: dict[str, Any] = {
        "position": record.lsn,
        "kind": "state",
        "time": iso(record.ts),
        "table": table,
        "key_base64": base64_text(key),
    }
    if record.flags & _batch.TOMBSTONE:
        item["deleted"] = True
    else:
        _put(item, "value", record.body)
    return item


def print_stats(found: Stats, out: TextIO) -> None:
    """The result of `stats`, for people."""
    on_disk = ", ".join(f"{name} {size / _MIB:.1f} MiB" for name, size in found.files_bytes.items())
    out.write(f"log {found.log_id}, epoch {found.epoch}, up to position {found.last_position}\n")
    out.write(f"on disk: {on_disk}\n")
    for vhost, size in found.vhosts_bytes.items():
        whose = f"messages of vhost {vhost}" if vhost else "tables, notes and delayed messages"
        out.write(f"{whose}: {size / _MIB:.1f} MiB\n")
    out.write(
        "rows: " + (", ".join(f"{table} {rows}" for table, rows in found.rows.items()) or "none") + "\n"
    )
    out.write(f"delayed messages that wait: {found.delayed}\n\n")
    out.write("segment      MiB  records   needed  needed MiB  until                     kept for\n")
    for segment in found.segments:
        kept = "; ".join(segment.kept_for) or "traffic retention, or nothing any more"
        marks = " (sealed)" * segment.sealed + " (salvaged)" * segment.salvaged
        out.write(
            f"{segment.number:7} {segment.bytes / _MIB:8.1f} {segment.records:8} {segment.needed_records:8} "
            f"{segment.needed_bytes / _MIB:11.1f}  {iso(segment.to_ms):24}  {kept}{marks}\n"
        )
    out.write("\nqueue                                     messages       MiB  segments  from position\n")
    for queue in found.queues:
        name = f"{queue.vhost} {queue.kind} {queue.name}"
        out.write(
            f"{name:40}  {queue.messages:8} {queue.bytes / _MIB:9.1f}  {queue.segments:8}  "
            f"{queue.first_position or '-'}\n"
        )


def print_repair(done: Repair, out: TextIO) -> None:
    """The findings and changes of `repair`, for people."""
    if not done.findings:
        out.write("nothing is damaged\n")
        return
    for finding in done.findings:
        out.write(f"{finding.problem}\n    {finding.action}\n")
        if finding.copy:
            out.write(f"    a copy is kept in {finding.copy}\n")
        for lost in finding.lost:
            which = "it is not known which records"
            if lost.last_position >= lost.first_position:
                which = f"positions {lost.first_position} to {lost.last_position}"
            out.write(f"    lost: {which}, {lost.bytes} bytes\n")
            for queue, count in lost.by_queue.items():
                noun = "message" if count == 1 else "messages"
                out.write(f"        {count} {noun} that {queue} had not finished with\n")
    if not done.applied:
        out.write("nothing was changed; stop the gateway and run it with --apply to do this\n")
