"""A consumer's inbox against a list of the records that the frames hold by their plain-Python twin."""

from __future__ import annotations

import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._inbox import Inbox
from penstock.protocols.native.codec._records import Record
from penstock.sdk.consuming.columns import Batch
from penstock.sdk.message import Message
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World

Said = dict[str, Any]


@cache
def stored_frame() -> bytes:
    """The payload of a frame with stored batches, some of them."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        client = Client(world, capabilities=(kinds.STORED,))
        client.request("open_producer", handle=1, topic="t", create=True)
        for size in (20, 50, 17):
            client.produce(1, *(b"%d" % i for i in range(size)))
        client.request("read", handle=2, topic="t", start="earliest")
        client.send(wire.credit(2, 1000, 1 << 20))
        payloads = [payload for kind, _, payload in client.take() if kind == kinds.DELIVER_STORED]
        world.close()
    # As one, as the gateway sends a run that lies in its files.
    first, position, _, pull = struct.unpack_from(">QQII", payloads[0])
    count = sum(len(wire.deliver_stored(payload)[2]) for payload in payloads)
    return struct.pack(">QQII", first, position, count, pull) + b"".join(one[24:] for one in payloads)


records = st.builds(
    dict,
    position=st.integers(1, 2**63),
    time_ms=st.integers(0, 2**41),
    key=st.sampled_from([b"\0\1t", b"\0\1u", b"\1x\0"]),
    props=st.sampled_from([PLAIN, b"\x10\x00\x01"]),
    body=st.binary(max_size=20),
    given_back=st.integers(0, 2**15 - 1),
    redelivered=st.booleans(),
)


def deliver(tag: int, pull: int, said: list[Said]) -> bytes:
    head = struct.pack(">QII", tag, len(said), pull)
    for one in said:
        flags = one["given_back"] | one["redelivered"] << 15
        sizes = len(one["key"]), flags, len(one["props"]), len(one["body"])
        head += wire.DELIVERED.pack(one["position"], one["time_ms"], *sizes)
        head += one["key"] + one["props"] + one["body"]
    return head


def told(record: Record) -> Said:
    return {
        "tag": record.tag,
        "position": record.position,
        "time_ms": record.timestamp_ms,
        "key": record.key_block,
        "props": record.block,
        "body": record.body,
        "given_back": record.given_back,
        "redelivered": record.redelivered,
    }


def cost(said: list[Said]) -> int:
    return sum(28 + len(one["key"]) + len(one["props"]) + len(one["body"]) for one in said)


STEPS = st.one_of(
    st.lists(records, max_size=5),
    st.sampled_from(["stored", "next", "clear", "granted"]),
    st.tuples(st.sampled_from(["take", "columns"]), st.integers(1, 40)),
)


@given(steps=st.lists(STEPS, max_size=12))
def test_an_inbox_gives_out_what_came_and_counts_it(steps: list[Any]) -> None:
    source = object()
    inbox = Inbox(Record, source, 30, 2000)
    waiting: list[Said] = []
    used: list[Said] = []
    tag, last = 1, 0
    for step in steps:
        given_out: list[Said] = []
        if isinstance(step, list):
            assert inbox.deliver(deliver(tag, 0, step)) == (0, ())
            waiting += [{**one, "tag": tag + i} for i, one in enumerate(step)]
            tag += len(step)
        elif step == "stored":
            payload = struct.pack(">Q", tag) + stored_frame()[8:]
            inbox.deliver_stored(payload)
            said = wire.deliver_stored(payload)[2]
            waiting += [{**one, "tag": tag + i} for i, one in enumerate(said)]
            tag += len(said)
        elif step == "next":
            record = inbox.next()
            given_out = [] if record is None else [record_said(record, source)]
        elif step == "clear":
            assert inbox.clear() == len(waiting)
            used += waiting
            waiting = []
        elif step == "granted":
            assert inbox.granted() == (len(used), cost(used))
            used = []
        elif step[0] == "take":
            given_out = [record_said(record, source) for record in inbox.take(step[1])]
            assert len(given_out) == min(step[1], len(waiting))
        else:
            columns = inbox.columns(step[1])
            given_out = [record_said(record, source) for record in columns.records()]
            assert columns.count == len(given_out) == min(step[1], len(waiting))
            assert columns.bodies() == [one["body"] for one in given_out]
            assert columns.positions() == [one["position"] for one in given_out]
            assert columns.timestamps_ms() == [one["time_ms"] for one in given_out]
            tags = [tag for first, last in columns.ranges() for tag in range(first, last + 1)]
            assert tags == [one["tag"] for one in given_out]
        assert given_out == waiting[: len(given_out)]
        waiting = waiting[len(given_out) :]
        used += given_out
        last = given_out[-1]["position"] if given_out else last
        assert inbox.waiting == len(waiting)
        assert inbox.head() == (waiting[0]["position"] if waiting else None)
        assert inbox.position == last
        assert inbox.due == (len(used) >= 30 or cost(used) >= 2000)


def record_said(record: Record, source: object) -> Said:
    assert record.source is source
    return told(record)


def test_pulls_are_given_to_who_asked_and_nothing_waits() -> None:
    said = [{"position": 7, "time_ms": 1, "key": b"\0\1t", "props": PLAIN, "body": b"x"}] * 2
    said = [{**one, "given_back": 0, "redelivered": False} for one in said]
    inbox = Inbox(Record, None, 1, 1)
    pull, found = inbox.deliver(deliver(5, 9, said))
    assert (pull, [told(record) for record in found]) == (
        9,
        [{**one, "tag": 5 + i} for i, one in enumerate(said)],
    )
    assert (inbox.waiting, inbox.granted()) == (0, (0, 0))


def test_a_damaged_frame_leaves_the_inbox_unchanged() -> None:
    inbox = Inbox(Record, None, 1, 1)
    payload = stored_frame()
    for broken in (payload[:-1], payload[:200] + b"\xff" + payload[201:]):
        with pytest.raises(ValueError, match="stored batch"):
            inbox.deliver_stored(broken)
    with pytest.raises(ValueError, match="cut short"):
        inbox.deliver(deliver(1, 0, [])[:-1])
    assert (inbox.waiting, inbox.head(), inbox.next(), inbox.take(9)) == (0, None, None, [])


def test_a_batch_is_a_sequence_of_messages() -> None:
    inbox = Inbox(Message, None, 1, 1)
    inbox.deliver_stored(stored_frame())
    assert (len(Batch(inbox.columns(5))), inbox.waiting) == (5, 82)
    batch = Batch(inbox.columns(100))
    assert len(batch) == 82
    assert batch.bodies == [message.body for message in batch]
    assert batch[-1].body == b"16" and [message.body for message in batch[:2]] == [b"5", b"6"]
    assert batch[3] is batch[3] and batch.index(batch[3]) == 3
    assert batch.tag_ranges == [(batch[0].tag, batch[-1].tag)]
