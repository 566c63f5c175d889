"""Bytes that are no native protocol, or nearly: before the login, behind it, and from a gateway.

`test_native_session` has frames that are well formed; here they are cut, spoilt, doubled, compressed wrongly,
and mixed with noise. Nothing raises, what is held is bounded, and others are served as if nothing had been.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.protocols.native.codec._inbox import Inbox
from penstock.protocols.native.codec._records import Record
from penstock.protocols.native.codec.packing import pack
from penstock.protocols.native.options import LOGIN_MAX, NativeOptions
from penstock.protocols.native.session.session import State
from tests.reference import log_batch
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World, assert_harmed_nobody

FRAME_MAX = 1 << 16
HELLO = json.dumps({"versions": [1], "client": "test", "capabilities": ["stored"]}).encode()
LOGIN = json.dumps({"user": "guest", "password": "guest"}).encode()
RECORDS = wire.records([(PLAIN, b"%d" % i * 20) for i in range(20)])
SMALL = st.sampled_from([0, 1, 2, 8, 2**16, 2**31, 2**32 - 1])


def asked(**fields: object) -> bytes:
    return wire.frame(0x05, 9, json.dumps(fields).encode())


OPENING = [
    asked(do="open_producer", handle=1, topic="t", create=True),
    asked(do="subscribe", handle=2, topic="t", subscription="s", start="earliest", durable=False),
    wire.credit(2, 50, 1 << 20),
]
FRAMES = [
    wire.produce(1, 0, 2, [(PLAIN, b"x" * 50)] * 3),
    *(wire.produce_packed(1, 3, 2, 20, pack(RECORDS, kind), 1) for kind in ("zstd", "lz4")),
    wire.produce_packed(1, 3, 2, 1, pack(bytes(1 << 22))),
    wire.frame(0x11, 1, struct.pack(">QBBHIq", 0, 2, 0, 0, 20, 1) + RECORDS),
    wire.ack(2, [(1, 3), (5, 2**64 - 1)], 7),
    wire.nack(2, [(0, 4)], 100),
    wire.pull(2, 8, 5, 1, 10),
    wire.transact(9, [(1, [(PLAIN, b"y")] * 2)], [(2, [(1, 1)])]),
    wire.prepare(1, 10, PLAIN, b"half"),
    wire.frame(0x07, 3, b""),
    asked(do="topics"),
    asked(do="close", handle=2),
]


@st.composite
def spoilt(draw: st.DrawFn, parts: list[bytes], most: int) -> bytes:
    """Some of the frames one behind the other, with a few bytes changed, left out or put in."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(parts), min_size=1, max_size=most))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                data[at : at + 4] = struct.pack(">I", draw(SMALL))
            case 2:
                del data[at : at + draw(st.integers(1, 20))]
            case 3:
                data[at:at] = draw(st.binary(max_size=20))
            case _:
                del data[at:]
    return bytes(data)


BEFORE = [
    b"PENSTOCK",
    wire.frame(0x01, 0, HELLO),
    wire.frame(0x03, 0, LOGIN),
    wire.frame(0x01, 0, b'{"versions": [1], "capabilities": {"a": [null, 1e999]}}'),
    wire.frame(0x03, 0, b'{"mechanism": "EXTERNAL"}'),
    wire.frame(0x03, 0, b"[" * 2000),
    FRAMES[0],
]
GREETINGS = st.one_of(
    spoilt(BEFORE, 4),
    spoilt(BEFORE, 4).map(lambda data: BEFORE[0] + data),
    spoilt(BEFORE[2:], 3).map(lambda data: BEFORE[0] + BEFORE[1] + data),
    st.binary(max_size=60),
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="penstock-bytes-") as folder:
        world = World(Path(folder), options=NativeOptions(max_frame_bytes=FRAME_MAX))
        yield world
        world.close()


def fed(client: Client, data: bytes, cut: int) -> None:
    for start in range(0, len(data), cut):
        client.send(data[start : start + cut])


@given(data=GREETINGS, cut=st.sampled_from([1, 3, 7, 64, 1 << 20]))
@example(data=b"PENSTOCK" + struct.pack(">I", 2**32 - 1), cut=1)
@example(data=b"PENSTOC" + b"K" * 100, cut=1)
def test_input_before_the_login_ends_it_or_waits(world: World, data: bytes, cut: int) -> None:
    client = Client(world, login=False)
    fed(client, data, cut)
    # A login is passed on for checking once; nobody is let in here.
    assert client.session.state is not State.RUNNING
    assert client.session.codec.want <= LOGIN_MAX + 4
    answers = client.take()
    assert sum(len(payload) for _, _, payload in answers) < 4096
    kinds = [kind for kind, _, _ in answers]
    assert kinds in ([], [0x02], [0x0F], [0x02, 0x0F])
    assert (kinds[-1:] == [0x0F]) is (client.session.state is State.ENDED)
    client.lose()


@given(data=spoilt(FRAMES, 12), cut=st.sampled_from([5, 64, 1000, 1 << 20]))
def test_spoilt_frames_harm_nobody_else(world: World, data: bytes, cut: int) -> None:
    client = Client(world, capabilities=("stored",))
    fed(client, b"".join(OPENING) + data, cut)
    assert client.session.codec.want <= FRAME_MAX + 4
    assert_harmed_nobody(client)


# A gateway that is none


def delivered(count: int) -> bytes:
    head = struct.pack(">QII", 1, count, 0)
    one = wire.DELIVERED.pack(7, 1, 3, 0, len(PLAIN), 4) + b"\0\1t" + PLAIN + b"body"
    return head + one * count


def stored(count: int) -> bytes:
    """A DELIVER_STORED of two batches."""
    records = [log_batch.Record(b"\0\1t", PLAIN, b"%d" % i) for i in range(count)]
    first, second = (log_batch.encode(log_batch.Batch(lsn, records)) for lsn in (5, 5 + count))
    return struct.pack(">QQII", 1, 5, 2 * count, 0) + first + second


def sealed(payload: bytes) -> bytes:
    """With valid checksums, so that its first batch is read; docs/reference/format.md has the layout."""
    if len(payload) < 24 + 96:
        return payload
    batch = bytearray(payload[24:])
    (blob_off,), (blob_raw,) = (struct.unpack_from("<I", batch, at) for at in (8, 88))
    if not 16 <= blob_off <= len(batch) or blob_off + blob_raw > len(batch):
        return payload
    struct.pack_into("<I", batch, 12, log_batch.crc32c(bytes(batch[blob_off : blob_off + blob_raw])))
    struct.pack_into("<I", batch, 4, log_batch.crc32c(bytes(batch[8:blob_off])))
    return payload[:24] + bytes(batch)


@st.composite
def altered(draw: st.DrawFn, payload: bytes) -> bytes:
    """With numbers in it that are others."""
    data = bytearray(payload)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 4))
        struct.pack_into(draw(st.sampled_from("<>")) + "I", data, at, draw(SMALL | st.integers(0, 300)))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.integers(0, 5)) == 0 else bytes(data)


def test_the_frames_that_are_altered_are_taken_as_they_are() -> None:
    inbox = Inbox(Record, None, 1, 1)
    inbox.deliver(delivered(3))
    inbox.deliver_stored(stored(4))
    inbox.deliver_stored(sealed(stored(4)))
    assert len(inbox.take(100)) == 3 + 8 + 8


@settings(deadline=None)
@given(
    data=altered(delivered(3)) | altered(stored(4)).map(sealed) | st.binary(max_size=200),
    is_stored=st.booleans(),
)
def test_a_delivery_of_any_bytes_is_taken_or_refused(data: bytes, is_stored: bool) -> None:
    inbox = Inbox(Record, None, 10, 1000)
    try:
        if is_stored:
            inbox.deliver_stored(data)
        else:
            inbox.deliver(data)
    except ValueError:
        assert inbox.waiting == 0
    assert inbox.waiting * 28 <= len(data), "what is there has its head in these bytes"
    columns = inbox.columns(2)
    assert len(columns.bodies()) == columns.count
    for record in inbox.take(1 << 20):
        assert len(record.key_block) + len(record.block) + len(record.body) <= len(data)
    assert inbox.waiting == 0
