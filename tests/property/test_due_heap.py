"""The heap of delayed records against a sorted list, and batches of them through bytes and back."""

from __future__ import annotations

import contextlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._batch import DELAYED, DELAYED_RECORDS, Batch
from penstock.log_core.delayed._delays import ENTRY_BYTES, DueHeap, count_by, decode_entry, sorted_entries

DUES = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
U64 = st.integers(0, 2**64 - 1) | st.integers(0, 3)
ENTRIES = st.lists(st.tuples(DUES, U64, U64, st.integers(0, 2**32 - 1)), unique_by=lambda entry: entry[:3])


def order(entry: tuple[int, int, int, int]) -> tuple[int, int, int]:
    return entry[0], entry[1], -entry[2]


def decoded(raw: bytes) -> list[tuple[int, int, int, int]]:
    return [decode_entry(raw, i) for i in range(len(raw) // ENTRY_BYTES)]


@given(ENTRIES)
def test_entries_come_out_sorted(entries: list[tuple[int, int, int, int]]) -> None:
    heap = DueHeap()
    for entry in entries:
        heap.push(*entry)
    wanted = sorted(entries, key=order)
    assert decoded(sorted_entries(heap.encode())) == wanted
    assert heap.first() == (wanted[0][:2] if wanted else None)
    assert heap.last() == (max(entry[:2] for entry in entries) if entries else None)
    assert [heap.pop() for _ in entries] == wanted


@given(ENTRIES, st.tuples(DUES, U64), st.tuples(DUES, U64))
def test_entries_between_two_keys_are_pushed(
    entries: list[tuple[int, int, int, int]], low: tuple[int, int], high: tuple[int, int]
) -> None:
    source, heap = DueHeap(), DueHeap()
    for entry in entries:
        source.push(*entry)
    wanted = sorted((entry for entry in entries if low < entry[:2] <= high), key=order)
    assert heap.push_between(source.encode(), *low, *high) == len(wanted)
    assert [heap.pop() for _ in wanted] == wanted


@given(ENTRIES, st.tuples(DUES, U64), st.integers(0, 12))
def test_the_first_entries_behind_a_key_are_found(
    entries: list[tuple[int, int, int, int]], behind: tuple[int, int], count: int
) -> None:
    heap = DueHeap()
    for entry in entries:
        heap.push(*entry)
    wanted = sorted((entry for entry in entries if entry[:2] > behind), key=order)[:count]
    assert decoded(heap.first_behind(*behind, count)) == wanted
    assert len(heap) == len(entries)


@given(ENTRIES, st.integers(1, 5) | st.integers(1, 2**63 - 1), st.sets(U64, max_size=4))
def test_entries_are_counted_by_spans_of_time(
    entries: list[tuple[int, int, int, int]], step: int, without: set[int]
) -> None:
    heap = DueHeap()
    for entry in entries:
        heap.push(*entry)
    wanted = Counter(
        due // step * step for due, place in {entry[:2] for entry in entries} if place not in without
    )
    assert count_by(sorted_entries(heap.encode()), step, without) == sorted(wanted.items())


@given(
    st.lists(st.tuples(DUES, U64, st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=40))),
    st.data(),
)
def test_a_batch_of_delayed_records_is_what_was_appended_and_every_flip_is_found(
    records: list[tuple[int, int, bytes, bytes, bytes]], data: st.DataObject
) -> None:
    appender = Appender(lambda: 1000, 77)
    for due, place, key, props, body in records:
        appender.append_delayed(due, place, key, props, body, 2, 3, 1, 9)
    batches = appender.take_closed()
    found = []
    for made in batches:
        batch = Batch.parse(bytes(made))
        assert batch.kind == DELAYED_RECORDS
        for i in range(batch.count):
            record, delay = batch.record(i), batch.delay_of(i)
            assert delay is not None
            assert (record.flags, record.priority, record.enc, record.ttl) == (2 | DELAYED, 3, 1, 9)
            assert record.feeds == ()
            found.append((delay[0], delay[1], record.key, record.props, record.body))
    lsns = range(77, 77 + len(records))
    assert found == [
        (due, place or lsn, *rest) for (due, place, *rest), lsn in zip(records, lsns, strict=True)
    ]
    if batches:
        raw = bytearray(bytes(batches[0]))
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
        with contextlib.suppress(ValueError):
            flipped = Batch.parse(raw)
            raise AssertionError(f"byte {at}: {flipped} was taken")
