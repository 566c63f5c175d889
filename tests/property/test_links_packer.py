"""The kernel that makes batches of native deliveries, against plain Python, over bytes cut anywhere."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.links.native._packer import OutOfOrder, Packer
from penstock.protocols.native.codec import kinds
from tests.reference import native_frames as wire
from tests.support.native_golden import FRAMES

_FRAME_MAX = 200
_RECORDS = st.tuples(st.integers(1, 3), st.binary(max_size=3), st.binary(max_size=80))
"""How far above the position before it, properties and body."""
_PONG = wire.frame(kinds.PONG, 3, b"")
_Message = tuple[int, bytes, bytes]


def delivery(tag: int, messages: list[_Message]) -> bytes:
    """A DELIVER frame."""
    head = struct.pack(">QII", tag, len(messages), 0)
    records = [
        wire.DELIVERED.pack(position, 0, 2, 0, len(props), len(body)) + b"\0\0" + props + body
        for position, props, body in messages
    ]
    return wire.frame(kinds.DELIVER, 1, head + b"".join(records))


def batches_of(messages: list[_Message]) -> list[list[_Message]]:
    """As many in each as a frame has room for."""
    found: list[list[_Message]] = []
    size = 0
    for one in messages:
        record = 8 + len(one[1]) + len(one[2])
        if not found or size + record > _FRAME_MAX:
            found.append([])
            size = 28
        found[-1].append(one)
        size += record
    return found


@given(
    st.lists(st.lists(_RECORDS, min_size=1, max_size=6), max_size=5),
    st.lists(st.integers(0, 1 << 20), max_size=6),
    st.integers(0, 6),
)
def test_batches_are_as_plain_python_makes_them(
    deliveries: list[list[tuple[int, bytes, bytes]]], places: list[int], known: int
) -> None:
    data, expected, batches, position, tag = b"", b"", [], 0, 1
    for records in deliveries:
        messages = [(position := position + step, props, body) for step, props, body in records]
        data += delivery(tag, messages) + _PONG
        new = [one for one in messages if one[0] > known]
        end = tag + len(messages) - len(new)
        for batch in batches_of(new):
            end += len(batch)
            expected += wire.produce(7, batch[-1][0], 2, [one[1:] for one in batch])
            batches.append((batch[-1][0], end - 1, len(batch)))
        tag += len(messages)
    packer = Packer(7, _FRAME_MAX, known)
    at, got, found, others, used = 0, b"", [], 0, 0
    for end in sorted({place % (len(data) + 1) for place in places} | {len(data)}):
        at += packer.take(data[at:end])
        got += b"".join(packer.frames)
        found += packer.batches
        assert all(one == (kinds.PONG, 3, b"") for one in packer.others)
        others += len(packer.others)
        used += packer.granted()[0]
    assert (got, found, others) == (expected, batches, len(deliveries))
    assert (packer.tag, used, packer.left_out) == (tag - 1, tag - 1, tag - 1 - sum(one[2] for one in batches))


def test_batches_come_as_they_are_stored() -> None:
    _, _, messages = wire.deliver_stored(wire.frames(FRAMES["deliver_stored"])[0][2])
    packer = Packer(7, 1 << 20, 0)
    assert packer.take(FRAMES["deliver_stored"]) == len(FRAMES["deliver_stored"])
    records = [(one["props"], one["body"]) for one in messages]
    assert packer.frames == [wire.produce(7, messages[-1]["position"], 2, records)]


def test_positions_that_do_not_rise_are_refused() -> None:
    packer = Packer(7, _FRAME_MAX, 0)
    packer.take(delivery(1, [(5, b"", b"a")]))
    with pytest.raises(OutOfOrder):
        packer.take(delivery(2, [(5, b"", b"b")]))


@given(st.binary(max_size=80), st.integers(0, 80))
def test_bytes_that_are_no_frames_are_refused_or_waited_for(noise: bytes, place: int) -> None:
    data = delivery(1, [(1, b"", b"body"), (2, b"", b"body")])
    with contextlib.suppress(ValueError, OutOfOrder):
        Packer(7, _FRAME_MAX, 0).take(data[: place % len(data)] + noise)
