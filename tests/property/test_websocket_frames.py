"""The kernel that takes bytes out of WebSocket frames, against its plain twin."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.listening._unframe import PacketFramer, Unframer, frame_header
from tests.reference import mqtt_frames as f
from tests.reference.websocket_frames import Stream, encode, read

EDGES = [124, 125, 126, 127, 300, 65535, 65536]
PAYLOADS = st.one_of(
    st.binary(max_size=40), st.sampled_from(EDGES).map(lambda size: (bytes(range(251)) * 262)[:size])
)
FRAMES = st.builds(
    encode,
    st.sampled_from([2, 2, 2, 2, 0, 0, 9, 10, 8, 1, 3, 11]),
    PAYLOADS,
    fin=st.sampled_from([True, True, True, False]),
    mask=st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4), st.none()),
    reserved=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 4]),
)


def fed(pieces: list[bytes], room: int = 0) -> Stream:
    """The kernel's result for the pieces; of several pings in one piece only the last."""
    frames = Unframer()
    stream = Stream()
    for piece in pieces:
        buffer = bytearray(piece) + bytes(room)
        count = frames.feed(buffer, len(piece))
        assert 0 <= count <= len(piece)
        assert buffer[len(piece) :] == bytes(room), "nothing behind the piece is touched"
        stream.payload += buffer[:count]
        if frames.ping is not None:
            stream.pings.append(frames.ping)
            frames.ping = None
    stream.close = frames.close
    stream.fault = frames.fault[0] if frames.fault else None
    return stream


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(0, 1 << 20), max_size=12))
def test_frames_cut_anywhere_are_read_as_the_twin_reads_them(frames: list[bytes], places: list[int]) -> None:
    data = b"".join(frames)
    got = fed(cut(data, places), room=9)
    expected = read(data)
    assert got.payload == expected.payload
    assert (got.close, got.fault) == (expected.close, expected.fault)
    assert set(got.pings) <= set(expected.pings)
    assert bool(got.pings) == bool(expected.pings)


@given(st.lists(FRAMES, max_size=4))
def test_one_byte_at_a_time_no_ping_is_lost(frames: list[bytes]) -> None:
    data = b"".join(frame for frame in frames if len(frame) < 400)
    got = fed([data[i : i + 1] for i in range(len(data))])
    assert got == read(data)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_are_read_as_the_twin_reads_them(data: bytes, places: list[int]) -> None:
    got = fed(cut(data, places), room=8)
    expected = read(data)
    assert (got.payload, got.close, got.fault) == (expected.payload, expected.close, expected.fault)


@given(st.integers(0, 1 << 40))
def test_headers_of_a_server_say_the_size_in_its_shortest_form(size: int) -> None:
    head = frame_header(2, size)
    assert head[0] == 0x82
    form = head[1]
    assert size == (form if form < 126 else int.from_bytes(head[2:], "big"))
    assert len(head) == (2 if size < 126 else 4 if size < 65536 else 10)


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 40000).map(bytes), max_size=8),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_each_packet_has_a_frame_of_its_own(bodies: list[bytes], places: list[int]) -> None:
    """Each write may hold any packets; a packet cut between two writes has a frame for each part."""
    packets = [f.packet(3, 0, body) for body in bodies]
    stream = b"".join(packets)
    assert sent(PacketFramer().frame(stream)) == packets
    framer, parts = PacketFramer(), []
    for piece in cut(stream, places):
        parts += sent(framer.frame(piece))
    assert b"".join(parts) == stream
    ends = set(itertools.accumulate(map(len, parts)))
    assert ends >= set(itertools.accumulate(map(len, packets)))


def sent(data: bytes) -> list[bytes]:
    """The payloads of a server's frames."""
    found, reader = [], f.Reader(data)
    while reader.rest:
        assert reader.number(1) == 0x82
        size = reader.number(1)
        size = reader.number({126: 2, 127: 8}[size]) if size > 125 else size
        found.append(reader.take(size))
    return found
