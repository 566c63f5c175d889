"""The batch format in plain Python, from docs/reference/format.md: the oracle of the log core's kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

HEADER = struct.Struct("<IIIIBBBBHHIIQQQqqQIIII")
RECORD = struct.Struct("<IIIIIIHHBBH")
COLUMNS = {1: "q", 2: "I", 4: "Q", 8: "q", 16: "I"}
LIST, UNROUTED, MORE = 1, 256, 1
assert HEADER.size == 96 and RECORD.size == 32


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C bit by bit."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@dataclass
class Record:
    """One record; `ts` counts from the batch's base_ts."""

    key: bytes = b""
    props: bytes = b""
    body: bytes = b""
    feeds: tuple[int, ...] = ()
    flags: int = 0
    priority: int = 0
    enc: int = 0
    ts: int = 0
    ttl: int = 0


@dataclass
class Batch:
    """One batch; `columns` by bit, a value per record."""

    base_lsn: int
    records: list[Record]
    kind: int = 1
    lp: int = 0
    epoch: int = 1
    attrs: int = 0
    synced_lsn: int = 0
    base_ts: int = 0
    columns: dict[int, list[int]] = field(default_factory=dict)


def _lists(records: Sequence[Record]) -> tuple[list[int], dict[tuple[int, ...], int]]:
    """The feed lists, one per distinct set in the order of first use, and where each begins."""
    words: list[int] = []
    places: dict[tuple[int, ...], int] = {}
    for record in records:
        if len(record.feeds) > 1 and record.feeds not in places:
            places[record.feeds] = len(words)
            words += [len(record.feeds), *record.feeds]
    return words, places


def encode(batch: Batch) -> bytes:
    """The batch as it stands in a file."""
    words, places = _lists(batch.records)
    head = bytearray()
    blob = bytearray()
    for record in batch.records:
        flags = record.flags
        feed = record.feeds[0] if record.feeds else 0
        if len(record.feeds) > 1:
            flags |= LIST
            feed = places[record.feeds]
        elif not record.feeds and batch.kind == 1:
            flags |= UNROUTED
        data = record.key + record.props + record.body
        head += RECORD.pack(
            len(blob),
            len(data),
            len(record.props),
            feed,
            record.ts,
            record.ttl,
            len(record.key),
            flags,
            record.priority,
            record.enc,
            0,
        )
        blob += data
    for bit, code in COLUMNS.items():
        if bit in batch.columns:
            head += struct.pack(f"<{len(batch.records)}{code}", *batch.columns[bit])
    head += struct.pack(f"<{len(words)}I", *words)
    blob_off = HEADER.size + len(head)
    length = (blob_off + len(blob) + 31) // 32 * 32
    max_ts = batch.base_ts + max((record.ts for record in batch.records), default=0)
    fixed = HEADER.pack(
        length,
        0,
        blob_off,
        crc32c(bytes(blob)),
        1,
        batch.kind,
        0,
        sum(batch.columns),
        batch.attrs,
        0,
        batch.lp,
        batch.epoch,
        batch.base_lsn,
        batch.base_lsn,
        batch.synced_lsn,
        batch.base_ts,
        max_ts,
        0,
        0,
        len(batch.records),
        len(blob),
        0,
    )
    covered = fixed[8:] + bytes(head)
    whole = fixed[:4] + crc32c(covered).to_bytes(4, "little") + covered + bytes(blob)
    return whole.ljust(length, b"\0")


def decode(raw: bytes) -> Batch | None:
    """The batch at the start of `raw`; None when there is no valid one."""
    if len(raw) < HEADER.size:
        return None
    (length, head_crc, blob_off, blob_crc, magic, kind, codec, cols, attrs, _, lp, epoch, lsn, _, synced) = (
        HEADER.unpack_from(raw)[:15]
    )
    base_ts = HEADER.unpack_from(raw)[15]
    count, blob_raw = HEADER.unpack_from(raw)[19:21]
    if (
        magic != 1
        or not 96 <= length <= len(raw)
        or length % 32
        or not 96 <= blob_off <= length
        or blob_off % 4
        or lsn + count >= 1 << 64
    ):
        return None
    if crc32c(raw[8:blob_off]) != head_crc or kind not in (1, 2, 3) or codec or cols & ~31 or count > 65536:
        return None
    if (blob_off + blob_raw + 31) // 32 * 32 != length or any(raw[blob_off + blob_raw : length]):
        return None
    blob = raw[blob_off : blob_off + blob_raw]
    if crc32c(blob) != blob_crc:
        return None
    batch = Batch(lsn, [], kind, lp, epoch, attrs, synced, base_ts)
    at = HEADER.size + count * RECORD.size
    for bit, code in COLUMNS.items():
        if cols & bit:
            size = struct.calcsize(f"<{count}{code}")
            if at + size > blob_off:
                return None
            batch.columns[bit] = list(struct.unpack_from(f"<{count}{code}", raw, at))
            at += size
    if at > blob_off:
        return None
    words = struct.unpack_from(f"<{(blob_off - at) // 4}I", raw, at)
    for number in range(count):
        off, size, props, feed, ts, ttl, key, flags, priority, enc, _ = RECORD.unpack_from(
            raw, HEADER.size + number * RECORD.size
        )
        if off + size > blob_raw or key + props > size:
            return None
        feeds: tuple[int, ...] = (feed,) if feed else ()
        if flags & LIST:
            if feed >= len(words) or words[feed] >= len(words) - feed:
                return None
            feeds = tuple(words[feed + 1 : feed + 1 + words[feed]])
        data = blob[off : off + size]
        batch.records.append(
            Record(
                data[:key], data[key : key + props], data[key + props :], feeds, flags, priority, enc, ts, ttl
            )
        )
    return batch
