"""The native protocol's frames in plain Python, written from its page: the oracle of its kernels."""

from __future__ import annotations

import struct
from typing import Any

HEAD = struct.Struct(">IBBHI")
PRODUCE = struct.Struct(">QBBHI")
DELIVERED = struct.Struct(">QqHHII")

Delivered = dict[str, Any]


def frame(kind: int, handle: int, payload: bytes) -> bytes:
    return HEAD.pack(len(payload) + 8, kind, 0, 0, handle) + payload


def frames(data: bytes) -> list[tuple[int, int, bytes]]:
    """(type, id, payload) of each frame; all of `data` must be frames."""
    found = []
    at = 0
    while at < len(data):
        size, kind, flags, reserved, handle = HEAD.unpack_from(data, at)
        assert flags == reserved == 0
        assert len(data) >= at + size + 4
        found.append((kind, handle, data[at + 12 : at + size + 4]))
        at += size + 4
    return found


def records(items: list[tuple[bytes, bytes]]) -> bytes:
    """(properties, body) of each, one behind the other."""
    return b"".join(struct.pack(">II", len(props), len(body)) + props + body for props, body in items)


def produce_packed(
    handle: int, sequence: int, acks: int, count: int, packed: bytes, compression: int = 1
) -> bytes:
    return frame(0x10, handle, PRODUCE.pack(sequence, acks, compression, 0, count) + packed)


def produce(handle: int, sequence: int, acks: int, items: list[tuple[bytes, bytes]]) -> bytes:
    return frame(0x10, handle, PRODUCE.pack(sequence, acks, 0, 0, len(items)) + records(items))


def deliver(payload: bytes) -> tuple[int, int, list[Delivered]]:
    """(first tag, pull, messages) of a DELIVER frame."""
    first, count, pull = struct.unpack_from(">QII", payload)
    at = 16
    found = []
    for _ in range(count):
        position, time_ms, key_size, counted, props_size, body_size = DELIVERED.unpack_from(payload, at)
        at += DELIVERED.size
        key, at = payload[at : at + key_size], at + key_size
        props, at = payload[at : at + props_size], at + props_size
        body, at = payload[at : at + body_size], at + body_size
        found.append(
            {
                "position": position,
                "time_ms": time_ms,
                "key": key,
                "given_back": counted & 0x7FFF,
                "redelivered": bool(counted >> 15),
                "props": props,
                "body": body,
            }
        )
    assert at == len(payload)
    return first, pull, found


def deliver_stored(payload: bytes) -> tuple[int, int, list[Delivered]]:
    """(first tag, pull, messages) of a DELIVER_STORED frame; docs/reference/format.md has the batches."""
    first, position, count, pull = struct.unpack_from(">QQII", payload)
    found: list[Delivered] = []
    at = 24
    while at < len(payload):
        (size,) = struct.unpack_from("<I", payload, at)
        found += _stored_batch(payload[at : at + size], position + len(found))
        at += size
    assert (at, len(found)) == (len(payload), count)
    return first, pull, found


def _stored_batch(batch: bytes, position: int) -> list[Delivered]:
    (blob_off,) = struct.unpack_from("<I", batch, 8)
    (base_lsn,) = struct.unpack_from("<Q", batch, 32)
    (base_ts,) = struct.unpack_from("<q", batch, 56)
    (count,) = struct.unpack_from("<I", batch, 84)
    assert base_lsn == position
    found: list[Delivered] = []
    for i in range(count):
        off, size, props, _, ts, _, key = struct.unpack_from("<IIIIIIH", batch, 96 + 32 * i)
        record = batch[blob_off + off : blob_off + off + size]
        found.append(
            {
                "position": position + i,
                "time_ms": base_ts + ts,
                "key": record[:key],
                "given_back": 0,
                "redelivered": False,
                "props": record[key : key + props],
                "body": record[key + props :],
            }
        )
    return found


def delivery(kind: int, payload: bytes) -> tuple[int, int, list[Delivered]] | None:
    """(first tag, pull, messages) of a frame, None when it is no delivery."""
    take = {0x21: deliver, 0x29: deliver_stored}.get(kind)
    return None if take is None else take(payload)


def ack(handle: int, ranges: list[tuple[int, int]], request: int = 0, cumulative: bool = False) -> bytes:
    head = struct.pack(">IBBH", request, cumulative, 0, 0)
    return frame(0x22, handle, head + b"".join(struct.pack(">QQ", *one) for one in ranges))


def nack(handle: int, ranges: list[tuple[int, int]], delay_ms: int = 0, reject: bool = False) -> bytes:
    head = struct.pack(">iBBH", delay_ms, reject, 0, 0)
    return frame(0x23, handle, head + b"".join(struct.pack(">QQ", *one) for one in ranges))


def credit(handle: int, messages: int, size: int) -> bytes:
    return frame(0x20, handle, struct.pack(">II", messages, size))


def pull(handle: int, request: int, most: int, least: int, wait_ms: int) -> bytes:
    return frame(0x24, handle, struct.pack(">IIIIII", request, most, 1 << 20, least, 0, wait_ms))


def prepare(handle: int, request: int, props: bytes, body: bytes) -> bytes:
    return frame(0x15, handle, struct.pack(">I", request) + records([(props, body)]))


def check(payload: bytes) -> tuple[int, int, bytes, bytes]:
    """(transaction, checks, properties, body) of a CHECK frame."""
    transaction, checks, props, body = struct.unpack_from(">QIII", payload)
    assert len(payload) == 20 + props + body
    return transaction, checks, payload[20 : 20 + props], payload[20 + props :]


def transact(
    request: int,
    batches: list[tuple[int, list[tuple[bytes, bytes]]]],
    settled: list[tuple[int, list[tuple[int, int]]]],
) -> bytes:
    parts = [struct.pack(">HH", len(batches), len(settled))]
    for handle, items in batches:
        data = records(items)
        parts += [struct.pack(">III", handle, len(items), len(data)), data]
    for handle, ranges in settled:
        parts.append(struct.pack(">II", handle, len(ranges)))
        parts += [struct.pack(">QQ", *one) for one in ranges]
    return frame(0x14, request, b"".join(parts))
