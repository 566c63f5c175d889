"""HTTP sessions under any bytes in any pieces: nothing raises, and pieces change nothing."""

from __future__ import annotations

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.http.server.wire.h1 import H1Session
from penstock.protocols.http.server.wire.h2 import PREFACE, H2Session
from tests.support.http_session import Host

LINES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /a?b HTTP/1.1\r\n",
        b"HEAD / HTTP/1.0\r\n",
        b"Host: x\r\n",
        b"Content-Length: 3\r\n",
        b"Content-Length: 03\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b"\r\n",
        b"\n",
        b"abc",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b": x\r\n",
        b" folded\r\n",
    ]
)
STREAMS = st.lists(st.one_of(LINES, st.binary(max_size=20)), max_size=20).map(b"".join)


def heard(stream: bytes, cuts: list[int]) -> tuple[list[tuple[str, str, str]], bool]:
    """The answered requests of a stream that is read in pieces, and whether the session ended."""
    host = Host(H1Session)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    answered = 0
    for start, end in itertools.pairwise(places):
        host.send(stream[start:end])
        while answered < len(host.requests) and host.ended is None:
            answered += 1
            host.answer()
    seen = [(request.method, request.target, request.version) for request in host.requests]
    return seen, host.ended is not None


@given(STREAMS, st.lists(st.integers(0, 400), max_size=6))
def test_http1_means_the_same_in_whatever_pieces_it_comes(stream: bytes, cuts: list[int]) -> None:
    assert heard(stream, cuts) == heard(stream, [])


FRAMES = st.builds(
    lambda kind, flags, stream, payload: (
        struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
    ),
    st.one_of(st.integers(0, 10), st.integers(0, 255)),
    st.integers(0, 255),
    st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1)),
    st.one_of(st.binary(max_size=64), st.just(b"\x82\x84\x86\x41\x01x"), st.just(bytes(8))),
)


@given(st.lists(st.one_of(FRAMES, st.binary(max_size=12)), max_size=30), st.booleans())
def test_http2_survives_any_frames(frames: list[bytes], answers: bool) -> None:
    host = Host(H2Session)
    host.send(PREFACE)
    for frame in frames:
        host.send(frame)
        if answers and host.requests:
            host.answer(b"x" * 100)
    host.session.clock(1000.0)
    host.session.lost()
    assert all(request.gone or request.complete for request in host.requests) or answers
