"""A producer's batches against lists of its messages, and the frames against their plain-Python twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.native.codec._gathering import MESSAGE_BYTES, Gathering, Pending
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN

OTHER = b"\x10\x00\x01"
BATCH_BYTES, BATCH_MESSAGES, BUFFER_BYTES, FRAME_MAX = 400, 9, 3000, 700

bodies = st.binary(max_size=10) | st.sampled_from([b"x" * 100, b"x" * 399, b"x" * 600, b"x" * 640])
STEPS = st.one_of(
    st.tuples(st.just("add"), bodies, st.sampled_from([PLAIN, OTHER])),
    st.tuples(st.just("plain"), bodies | st.just("text") | st.just(None), st.just(PLAIN)),
    st.tuples(st.just("take"), st.none(), st.none()),
    st.tuples(st.just("whole"), st.lists(bodies, max_size=20), st.sampled_from([PLAIN, OTHER])),
)


def counted(items: list[tuple[bytes, bytes]]) -> int:
    return sum(len(block) + len(body) + MESSAGE_BYTES for block, body in items)


def check(batch: Pending, items: list[tuple[bytes, bytes]]) -> None:
    assert (batch.count, batch.size) == (len(items), counted(items))
    if not items:
        with pytest.raises(ValueError, match="a batch of"):
            batch.seal(1, 2, 0)
        return
    batch.seal(7, 2**40, 2)
    assert batch.frame == wire.produce(7, 2**40, 2, items)
    assert batch.records == wire.records(items)
    assert batch.sequence == 2**40


@given(steps=st.lists(STEPS, max_size=30))
def test_batches_are_the_frames_of_what_was_added(steps: list[Any]) -> None:
    gathering = Gathering(PLAIN, BATCH_BYTES, BATCH_MESSAGES, BUFFER_BYTES)
    gathering.frame_max = FRAME_MAX
    gathering.is_plain = True
    items: list[tuple[bytes, bytes]] = []
    under_way = 0
    for what, given_, block in steps:
        assert gathering.under_way == under_way and (gathering.batch is None) == (not items)
        if what == "whole":
            batch = gathering.whole(given_, 0, block)
            some = [(block, body) for body in given_[: batch.count]]
            check(batch, some)
            under_way += counted(some)
            assert bool(some) == bool(given_) and len(some) <= BATCH_MESSAGES
            sizes = [len(body) for _, body in some]
            assert sum(sizes[:-1]) < BATCH_BYTES
            assert gathering.carries(batch) or len(some) == 1
            if batch.count < min(len(given_), BATCH_MESSAGES) and sum(sizes) < BATCH_BYTES:
                assert len(wire.records([*some, (block, given_[batch.count])])) + 64 > FRAME_MAX
        elif what == "take":
            taken = gathering.take()
            if taken is None:
                assert not items
            else:
                check(taken, items)
            items = []
        elif what == "add":
            fits = gathering.fits(len(given_) + len(block))
            if fits:
                gathering.add(given_, block)
                items.append((block, given_))
                under_way += counted(items[-1:])
                assert gathering.batch is not None and gathering.carries(gathering.batch)
            assert fits or len(wire.records([*items, (block, given_)])) + 64 + 28 > FRAME_MAX
        else:
            sent = gathering.plain(given_)
            if sent is not None:
                # Nobody needs to send the batch for it, and it may be under way.
                assert items and isinstance(given_, bytes)
                items.append((PLAIN, given_))
                under_way += counted(items[-1:])
                assert not gathering.is_full and under_way <= BUFFER_BYTES
                assert gathering.batch is not None and gathering.carries(gathering.batch)
        assert gathering.has_room(1) == (not under_way or under_way + 1 <= BUFFER_BYTES)
        full = (
            sum(map(len, (b"".join(item) for item in items))) >= BATCH_BYTES or len(items) >= BATCH_MESSAGES
        )
        assert gathering.is_full == full


def test_a_plain_message_is_taken_only_where_nothing_is_to_be_encoded() -> None:
    gathering = Gathering(PLAIN, 1000, 10, 1000)
    gathering.add(b"", PLAIN)
    assert gathering.plain(b"x") is None
    gathering.is_plain = True
    assert gathering.plain(bytearray(b"x")) is None
    assert gathering.plain(b"x") is not None


def test_bodies_other_than_bytes_are_refused() -> None:
    gathering = Gathering(PLAIN, 1000, 10, 1000)
    with pytest.raises(TypeError):
        gathering.whole([b"", "text"], 0, PLAIN)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        gathering.add("text", PLAIN)  # type: ignore[arg-type]
    assert gathering.under_way == 0
