"""Native sessions fed with frames that are well formed, and mostly nonsense: no internal error comes of it.

Every answer is a whole frame, and another client is served afterwards as if nothing had been.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.native.session.requests import REQUESTS
from penstock.protocols.native.session.session import State
from penstock.sdk.message import properties_block
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World, assert_harmed_nobody

HANDLES = st.sampled_from([1, 1, 2, 2, 3, 4, 0, 2**32 - 1])
TAGS = st.sampled_from([0, 1, 1, 2, 3, 5, 2**63, 2**64 - 1])
SMALL = st.sampled_from([0, 1, 2, 10, 2**31, 2**32 - 1])
NAMES = st.sampled_from(["t", "t", "u", "q", "s", "s", "", "é", "x" * 300])
NUMBERS = st.sampled_from([0, 1, 2, -1, 100, 2**31, 2**63, 2**64, 1.5])
ANY = st.one_of(NAMES, NUMBERS, st.booleans(), st.none(), st.lists(NUMBERS, max_size=3), st.just({"a": 1}))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("topic", "subscription", "queue", "exchange", "routing_key", "consumer", "name"), NAMES),
    **dict.fromkeys(("group", "dead_letter"), NAMES),
    **dict.fromkeys(("create", "durable", "exclusive", "sticky", "commit"), st.booleans()),
    **dict.fromkeys(("priority", "epoch", "position", "due_ms", "transaction", "max_deliveries"), NUMBERS),
    **dict.fromkeys(("ack_timeout_ms", "nack_min_ms", "nack_max_ms"), NUMBERS),
    "handle": HANDLES,
    "kind": st.sampled_from(["shared", "exclusive", "failover", "key_shared", "none"]),
    **dict.fromkeys(
        ("start", "to"), st.sampled_from(["earliest", "latest", "pos:1", "-1h", 1, "never", "pos:-1"])
    ),
    "ranges": st.sampled_from([[], [[0, 65535]], [[0, 9], [5, 12]], [[1, 2**63]], [[-1, 3]], [1], {}]),
    "arguments": st.sampled_from([{}, {"x-max-length": 1, "x-overflow": "reject-publish"}, {"x": None}, []]),
}
USUAL = {
    "open_producer": ("handle", "topic", "create"),
    "subscribe": ("handle", "topic", "subscription", "create", "kind", "start"),
    "read": ("handle", "topic", "start"),
    "seek": ("topic", "subscription", "to"),
    "pause": ("topic", "subscription"),
    "resume": ("topic", "subscription"),
}
PROPS = st.sampled_from(
    [
        PLAIN,
        b"\0\0",
        b"",
        b"\xff\xff",
        b"\x10\0",
        properties_block("k", {"x-key": "a"}, 5, True),
        PLAIN + b"x",
    ]
)
RECORDS = st.lists(st.tuples(PROPS, st.binary(max_size=5)), max_size=4)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    do = draw(st.sampled_from([*USUAL, *USUAL, *REQUESTS]))
    names = [*USUAL.get(do, ()), *draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=3))]
    fields = {name: draw(FIELDS[name]) for name in names}
    if fields and draw(st.integers(0, 9)) == 0:
        fields[draw(st.sampled_from(sorted(fields)))] = draw(ANY)
    return wire.frame(0x05, draw(SMALL), json.dumps({"do": do, **fields}).encode())


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Of a producer: at once, later, in a transaction, prepared."""
    handle, records = draw(HANDLES), draw(RECORDS)
    sequence, acks = draw(TAGS), draw(st.sampled_from([0, 1, 2, 2, 3]))
    match draw(st.integers(0, 3)):
        case 0:
            return wire.produce(handle, sequence, acks, records)
        case 1:
            due_ms = draw(st.sampled_from([0, -1, 1_700_000_000_000, 1_700_000_100_000, 2**63 - 1]))
            head = struct.pack(">QBBHIq", sequence, acks, 0, 0, len(records), due_ms)
            return wire.frame(0x11, handle, head + wire.records(records))
        case 2:
            ranges = draw(st.lists(st.tuples(TAGS, TAGS), max_size=3))
            return wire.transact(draw(SMALL), [(handle, records)], [(draw(HANDLES), ranges)])
        case _:
            props, body = draw(PROPS), draw(st.binary(max_size=5))
            return wire.prepare(handle, draw(SMALL), props, body)


@st.composite
def settlings(draw: st.DrawFn) -> bytes:
    """Of a consumer: credit, a pull, acknowledgements, returns."""
    handle, ranges = draw(HANDLES), draw(st.lists(st.tuples(TAGS, TAGS), max_size=3))
    match draw(st.integers(0, 3)):
        case 0:
            return wire.credit(handle, draw(SMALL), draw(SMALL))
        case 1:
            return wire.pull(handle, draw(SMALL), draw(SMALL), draw(SMALL), draw(SMALL))
        case 2:
            return wire.ack(handle, ranges, draw(SMALL), draw(st.booleans()))
        case _:
            delay_ms = draw(st.sampled_from([0, -1, 100, 2**31 - 1, -(2**31)]))
            return wire.nack(handle, ranges, delay_ms, draw(st.booleans()))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """One frame; of ten one is cut or spoilt."""
    frame = draw(st.one_of(requests(), requests(), batches(), settlings()))
    match draw(st.integers(0, 19)):
        case 0:
            return wire.frame(draw(st.integers(0, 0x32)), draw(HANDLES), draw(st.binary(max_size=40)))
        case 1:
            payload = frame[12 : draw(st.integers(12, len(frame)))]
            return wire.frame(frame[4], draw(HANDLES), payload)
    return frame


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="penstock-frames-") as folder:
        world = World(Path(folder))
        yield world
        world.close()


@given(
    stream=st.lists(frames(), min_size=1, max_size=30),
    cut=st.integers(1, 400),
    wait_s=st.sampled_from([0, 0, 0.5, 7]),
)
def test_a_session_survives_any_frames(world: World, stream: list[bytes], cut: int, wait_s: float) -> None:
    client, data = Client(world, capabilities=("stored",)), b"".join(stream)
    for start in range(0, len(data), cut):
        if client.session.state is not State.RUNNING:
            break
        client.send(data[start : start + cut])
    world.pass_time(wait_s)
    assert_harmed_nobody(client)
