"""The scanner against its reference: random streams, cut at random places, give the same messages."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log_core.batch._batch import AMQP091, PERSISTENT
from penstock.protocols.amqp.codec import _codec
from penstock.protocols.amqp.codec._channel import Channel
from penstock.protocols.amqp.codec._codec import Codec
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.protocols.properties._properties import parse
from penstock.router.authorization.identity import Identity
from tests.reference.amqp_codec import Fault, Message, Method, scan
from tests.support.amqp_session import World

MESSAGE_MAX = 1 << 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("codec"))
    yield made
    made.close()


def codec(world: World) -> Codec:
    world.log.flush()
    made = Codec(OutBuffer(), 131072, MESSAGE_MAX)
    made.open(world.broker.vhost("/").publisher(Identity("guest"), 1), world.log.appender, b"guest")
    for number in (1, 2, 3):
        made.add_channel(Channel(number, made.out, 131072, None, lambda: None))
    return made


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


shorts = st.binary(max_size=40)
tables = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=20)), max_size=3).map(
    lambda pairs: (lambda body: struct.pack(">I", len(body)) + body)(
        b"".join(short(key) + b"S" + struct.pack(">I", len(value)) + value for key, value in pairs)
    )
)


@st.composite
def properties(draw: st.DrawFn) -> bytes:
    """A well-formed block without what Python must look at."""
    flags = 0
    parts = []
    kinds = {
        15: shorts.map(short),
        14: shorts.map(short),
        13: tables,
        12: st.sampled_from([b"\x01", b"\x02"]),
        11: st.integers(0, 255).map(lambda n: bytes([n])),
        10: shorts.map(short),
        9: shorts.map(short),
        8: st.integers(0, 2**32 - 1).map(lambda n: short(b"%d" % n)),
        7: shorts.map(short),
        6: st.binary(min_size=8, max_size=8),
        5: shorts.map(short),
        4: st.just(short(b"guest")),
        3: shorts.map(short),
        2: shorts.map(short),
    }
    for bit, values in kinds.items():
        if draw(st.booleans()):
            flags |= 1 << bit
            parts.append(draw(values))
    return struct.pack(">H", flags) + b"".join(parts)


@st.composite
def messages(draw: st.DrawFn) -> list[bytes]:
    """The frames of one publish, without their channel: (kind, payload)."""
    body = draw(st.binary(max_size=60) | st.integers(1, 5000).map(bytes))
    pieces = []
    rest = body
    while rest:
        n = draw(st.integers(1, len(rest)))
        if draw(st.integers(0, 9)) == 0:
            pieces.append(b"")
        pieces.append(rest[:n])
        rest = rest[n:]
    bits = bytes([draw(st.sampled_from([0, 1]))])
    publish = struct.pack(">HHH", 60, 40, 0) + short(b"") + short(draw(shorts)) + bits
    header = struct.pack(">HHQ", 60, 0, len(body)) + draw(properties())
    return [b"\x01" + publish, b"\x02" + header, *(b"\x03" + piece for piece in pieces)]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Publishes on three channels, frame by frame in any order between channels; other frames in between."""
    queues = {
        channel: [part for message in draw(st.lists(messages(), max_size=4)) for part in message]
        for channel in (1, 2, 3)
    }
    out = []
    while any(queues.values()):
        channel = draw(st.sampled_from([number for number, parts in queues.items() if parts]))
        run = draw(st.integers(1, 4))
        parts, queues[channel] = queues[channel][:run], queues[channel][run:]
        out += [frame(part[0], channel, part[1:]) for part in parts]
        extra = draw(st.integers(0, 9))
        if extra == 0:
            out.append(frame(8, 0, b""))
        elif extra == 1:
            out.append(frame(1, 9, struct.pack(">HH", 20, 10) + b"\x00"))
    return b"".join(out)


def run(made: Codec, stream: bytes, cuts: list[int]) -> list[tuple[object, ...]]:
    """Events of the stream fed in pieces, the unread rest put in front of the next as a connection does.

    The session of a peer that breaks the framing forgets its channels and reads no further.
    """
    events = []
    rest = bytearray()
    places = [0, *sorted(cuts), len(stream)]
    for start, end in itertools.pairwise(places):
        rest += stream[start:end]
        buffer = bytearray(rest)
        made.feed(buffer, 0, len(buffer))
        while (event := made.next()) is not None:
            events.append(event)
        if events and events[-1][0] == _codec.FAULT:
            break
        del rest[: made.consumed]
    return events


@settings(deadline=None)
@given(st.data())
def test_any_cut_of_a_stream_gives_the_messages_of_the_reference(world: World, data: st.DataObject) -> None:
    stream = data.draw(streams())
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    expected = scan(stream)
    made = codec(world)
    events = run(made, stream, cuts)
    methods = [found for found in expected if isinstance(found, Method)]
    assert [event[:4] for event in events] == [
        (_codec.METHOD, found.channel, *found.index) for found in methods
    ]
    published = [found for found in expected if isinstance(found, Message)]
    assert made.published == len(published)
    (batch,) = world.log.appender.take_closed() or (None,)
    records = [] if batch is None else [batch.record(i) for i in range(len(batch))]
    records = [record for record in records if record.enc == AMQP091]
    assert [(record.key, record.props, record.body) for record in records] == [
        (found.key, found.properties, found.body) for found in published
    ]
    for record, found in zip(records, published, strict=True):
        fields = parse(found.properties)
        assert fields is not None
        mode, priority, ttl, _, special = fields
        assert not special
        assert (record.priority, record.ttl) == (priority, ttl)
        assert bool(record.flags & PERSISTENT) == (mode == 2)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_stream_is_survived(world: World, data: st.DataObject) -> None:
    """One byte of the framing is changed: no crash, no hang, no message out of nothing."""
    stream = bytearray(data.draw(streams().filter(bool)))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] = data.draw(st.integers(0, 255))
    expected = scan(bytes(stream))
    made = codec(world)
    events = run(made, bytes(stream), data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    if any(event[0] == _codec.TOO_LARGE for event in events):
        # An error of one channel. The reference knows no largest message: it waits for the rest of this one.
        assert made.published <= sum(isinstance(found, Message) for found in expected)
        return
    if expected and isinstance(expected[-1], Fault):
        # The kernel also refuses what the reference takes as it is (arguments, properties), so maybe earlier.
        assert events
    assert made.published <= sum(isinstance(found, Message) for found in expected) + 1


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_survived(world: World, noise: bytes) -> None:
    made = codec(world)
    run(made, noise, [len(noise) // 2])
    run(made, b"\x01\x00\x01\x00\x00\x00" + noise, [])


@settings(deadline=None)
@given(st.data())
def test_properties_are_accepted_whole_and_no_prefix_is(data: st.DataObject) -> None:
    block = data.draw(properties())
    assert parse(block) is not None
    for cut in range(len(block)):
        found = parse(block[:cut])
        # Flags say what follows: only the whole block fits them.
        assert found is None
    assert parse(block + b"\x00") is None


@given(st.binary(max_size=100))
def test_any_properties_are_read_or_refused(noise: bytes) -> None:
    parse(noise)
    parse(b"\xff\xfc" + noise)


def test_a_message_above_the_limit_is_refused_at_its_header(world: World) -> None:
    made = codec(world)
    publish = frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\0\0\0")
    header = frame(2, 1, struct.pack(">HHQH", 60, 0, MESSAGE_MAX + 1, 0))
    assert run(made, publish + header, []) == [(_codec.TOO_LARGE, 1, MESSAGE_MAX + 1)]
    huge = frame(2, 1, struct.pack(">HHQH", 60, 0, 2**64 - 1, 0))
    assert run(made, publish + huge, []) == [(_codec.TOO_LARGE, 1, 2**64 - 1)]


def test_a_body_longer_than_announced_is_a_fault(world: World) -> None:
    made = codec(world)
    stream = (
        frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\0\0\0")
        + frame(2, 1, struct.pack(">HHQH", 60, 0, 3, 0))
        + frame(3, 1, b"four")
    )
    assert [event[2] for event in run(made, stream, [])] == ["body_too_large"]


def test_messages_under_way_are_bounded_over_all_channels(world: World) -> None:
    made = codec(world)
    piece = bytes(100_000)
    events = []
    for channel in (1, 2, 3):
        events += run(
            made,
            frame(1, channel, struct.pack(">HHH", 60, 40, 0) + b"\0\0\0")
            + frame(2, channel, struct.pack(">HHQH", 60, 0, MESSAGE_MAX, 0))
            + frame(3, channel, piece) * 10,
            [],
        )
    assert [event[2] for event in events] == ["too_much_held"]
