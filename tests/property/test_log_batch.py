"""Batches: the kernels against the plain reference, over random records, flipped bits and random bytes."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.batch._batch import LIST, UNROUTED, Batch
from penstock.log_core.batch._crc import crc32c, crc32c_portable
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files._io import read_batches, write_batches
from tests.reference import log_batch as reference

U32 = st.integers(0, 2**32 - 1)
FLAGS = st.integers(0, 0xFFFF).map(lambda flags: flags & ~(LIST | UNROUTED))
FEEDS = st.lists(st.integers(1, 5), unique=True, max_size=3).map(tuple)

RECORDS = st.lists(
    st.builds(
        reference.Record,
        key=st.binary(max_size=40),
        props=st.binary(max_size=40),
        body=st.binary(max_size=200),
        feeds=FEEDS,
        flags=FLAGS,
        priority=st.integers(0, 255),
        enc=st.integers(0, 3),
        ttl=U32,
    ),
    min_size=1,
    max_size=20,
)


@st.composite
def batches(draw: st.DrawFn) -> reference.Batch:
    """A batch of any kind with any columns."""
    records = draw(RECORDS)
    for record in records:
        record.ts = draw(U32)
    bits = {1: "q", 2: "I", 4: "Q", 8: "q", 16: "I"}
    ranges = {
        "q": st.integers(-(2**63), 2**63 - 1),
        "I": U32,
        "Q": st.integers(0, 2**64 - 1),
    }
    columns = {
        bit: draw(st.lists(ranges[code], min_size=len(records), max_size=len(records)))
        for bit, code in bits.items()
        if draw(st.booleans())
    }
    return reference.Batch(
        base_lsn=draw(st.integers(1, 2**63)),
        records=records,
        kind=draw(st.integers(1, 3)),
        lp=draw(U32),
        epoch=draw(U32),
        attrs=draw(st.integers(0, 7)),
        synced_lsn=draw(st.integers(0, 2**63)),
        base_ts=draw(st.integers(0, 2**41)),
        columns=columns,
    )


def same(batch: Batch, expected: reference.Batch) -> None:
    """Field by field."""
    assert (batch.kind, batch.lp, batch.epoch, batch.attrs) == (
        expected.kind,
        expected.lp,
        expected.epoch,
        expected.attrs,
    )
    assert (batch.base_lsn, batch.count, batch.base_ts) == (
        expected.base_lsn,
        len(expected.records),
        expected.base_ts,
    )
    assert batch.synced_lsn == expected.synced_lsn
    for number, wanted in enumerate(expected.records):
        record = batch.record(number)
        assert record.lsn == expected.base_lsn + number
        assert (record.key, record.props, record.body) == (wanted.key, wanted.props, wanted.body)
        assert record.feeds == wanted.feeds
        assert (record.priority, record.enc, record.ttl) == (wanted.priority, wanted.enc, wanted.ttl)
        assert record.ts == expected.base_ts + wanted.ts
        assert record.flags & ~(LIST | UNROUTED) == wanted.flags & ~(LIST | UNROUTED)
        assert bool(record.flags & LIST) == (len(wanted.feeds) > 1)
        origins = expected.columns.get(16)
        assert record.origin == (origins[number] if origins else 0)


@given(batches())
def test_the_kernel_reads_what_the_reference_writes(batch: reference.Batch) -> None:
    raw = reference.encode(batch)
    found = Batch.parse(raw + b"behind")
    same(found, batch)
    assert bytes(found) == raw


@given(RECORDS, st.lists(st.integers(0, 3), min_size=20, max_size=20), st.integers(0, 2**32 - 1))
def test_the_kernel_writes_what_the_reference_writes(
    records: list[reference.Record], origins: list[int], lp: int
) -> None:
    feeds = {number: Feed(number) for number in range(1, 6)}
    targets = {record.feeds: Target([feeds[number] for number in record.feeds]) for record in records}
    out = Appender(lambda: 1234, 77, 9)
    out.synced_lsn = 55
    for record, origin in zip(records, origins, strict=False):
        out.append_record(
            lp,
            targets[record.feeds],
            record.key,
            record.props,
            record.body,
            record.flags,
            record.priority,
            record.enc,
            record.ttl,
            origin,
        )
    [batch] = out.take_closed()
    used = origins[: len(records)]
    columns = {16: used} if any(used) else {}
    attrs = 2 * all(record.enc == 1 for record in records) + 4 * all(not record.ttl for record in records)
    expected = reference.Batch(77, records, 1, lp, 9, attrs, 55, 1234, columns)
    assert bytes(batch) == reference.encode(expected)
    same(batch, expected)
    for number, feed in feeds.items():
        members = [77 + at for at, record in enumerate(records) if number in record.feeds]
        assert feed.positions(0, 100) == members


@given(batches(), st.data())
def test_a_flipped_bit_anywhere_is_found(batch: reference.Batch, data: st.DataObject) -> None:
    raw = bytearray(reference.encode(batch))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(ValueError):
        Batch.parse(bytes(raw))
        raise AssertionError("a damaged batch was taken for a valid one")
    assert reference.decode(bytes(raw)) is None


def test_every_flipped_bit_of_one_batch_is_found() -> None:
    records = [reference.Record(b"k", b"p", b"body", (1, 2)), reference.Record(b"k2", b"", b"x", (1,), 2)]
    raw = reference.encode(reference.Batch(5, records, columns={16: [0, 7]}))
    for at in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            with suppress(ValueError):
                Batch.parse(bytes(damaged))
                raise AssertionError(f"bit {bit} of byte {at}")


@given(batches(), st.data())
def test_a_forged_header_block_reaches_nothing_outside(batch: reference.Batch, data: st.DataObject) -> None:
    """Forged CRCs that match cannot make the kernel read outside the batch."""
    raw = bytearray(reference.encode(batch))
    blob_off = int.from_bytes(raw[8:12], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, blob_off - 1))
        raw[at] = data.draw(st.integers(0, 255))
    if 8 < int.from_bytes(raw[8:12], "little") <= len(raw):
        covered = bytes(raw[8 : int.from_bytes(raw[8:12], "little")])
        raw[4:8] = reference.crc32c(covered).to_bytes(4, "little")
    expected = reference.decode(bytes(raw))
    if expected is None:
        with suppress(ValueError):
            found = Batch.parse(bytes(raw))
            raise AssertionError(f"the reference refuses {found!r}")
    else:
        found = Batch.parse(bytes(raw))
        for number, wanted in enumerate(expected.records):
            record = found.record(number)
            assert (record.key, record.props, record.body) == (wanted.key, wanted.props, wanted.body)
            assert record.feeds == wanted.feeds


@given(st.binary(max_size=400))
def test_random_bytes_are_no_batch(raw: bytes) -> None:
    with suppress(ValueError):
        Batch.parse(raw)
        raise AssertionError("random bytes were taken for a batch")


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_the_crc_is_the_reference_s(data: bytes, cut: int) -> None:
    expected = reference.crc32c(data)
    assert crc32c(data) == crc32c_portable(data) == expected
    assert crc32c(data[cut:], crc32c(data[:cut])) == expected


@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_batches_written_in_pieces_are_read_back(written: list[reference.Batch], data: st.DataObject) -> None:
    kernels = [Batch.parse(reference.encode(batch)) for batch in written]
    size = sum(batch.nbytes for batch in kernels)
    skip = data.draw(st.integers(0, size - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        with path.open("w+b") as file:
            whole = b"".join(bytes(batch) for batch in kernels)
            file.write(whole[:skip])
            file.flush()
            assert write_batches(file.fileno(), kernels, skip, skip) == size - skip
            assert path.read_bytes() == whole
            found, damage = read_batches(file.fileno(), 0, size, 96, 0)
            assert damage is None
            wanted = [batch for batch in kernels if batch.kind == 1]
            assert [bytes(batch) for batch in found] == [bytes(batch) for batch in wanted[: len(found)]]
            assert bool(found) == bool(wanted)
