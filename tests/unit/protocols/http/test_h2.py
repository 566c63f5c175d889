"""The HTTP/2 session against h2's client side, and against clients that mean harm."""

from __future__ import annotations

import asyncio
import struct

import h2.connection
import h2.errors
import h2.events
import hpack
import pytest

from penstock.protocols.http.server.messages import HttpError, Response
from penstock.protocols.http.server.wire.h2 import PREFACE, H2Session
from tests.support.http_session import Host

HEADERS = [(":method", "GET"), (":path", "/a"), (":scheme", "http"), (":authority", "x")]
CALM = h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


class Client:
    """h2's client side, connected to a session."""

    def __init__(self) -> None:
        self.host = Host(H2Session)
        self.h2 = h2.connection.H2Connection()
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.exchange()

    def exchange(self) -> None:
        """Carry bytes both ways until none is left."""
        while True:
            sent = self.h2.data_to_send()
            if sent:
                self.host.send(sent)
            self.host.settle()
            got = self.host.take()
            if got:
                self.events += self.h2.receive_data(got)
            if not sent and not got:
                return

    def request(self, *more: tuple[str, str], end: bool = True, method: str = "GET") -> int:
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), *HEADERS[1:], *more]
        self.h2.send_headers(stream, head, end_stream=end)
        self.exchange()
        return stream

    def raw(self, data: bytes) -> None:
        """Bytes that h2 would not send."""
        self.host.send(data)
        got = self.host.take()
        if got:
            self.events += self.h2.receive_data(got)

    def terminated(self) -> h2.errors.ErrorCodes | int | None:
        """The error code of GOAWAY, or None."""
        for event in self.events:
            if isinstance(event, h2.events.ConnectionTerminated):
                return event.error_code
        return None


@pytest.fixture
def client() -> Client:
    return Client()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def block(headers: list[tuple[str, str]] = HEADERS) -> bytes:
    return bytes(hpack.Encoder().encode(headers))


def test_requests_run_side_by_side_and_are_answered_in_any_order(client: Client) -> None:
    first, second = client.request(), client.request()
    requests = client.host.requests
    client.host.session.respond(requests[1], Response(200, b"two", "text/plain"))
    client.host.session.respond(requests[0], Response(200, b"one", "text/plain"))
    client.exchange()
    data = {e.stream_id: e.data for e in client.events if isinstance(e, h2.events.DataReceived)}
    assert data == {first: b"one", second: b"two"}
    assert client.host.session.idle


def test_a_preface_that_comes_byte_by_byte_is_one(client: Client) -> None:
    host = Host(H2Session)
    head = frame(1, 5, 1, block())
    host.send(PREFACE + frame(4, 0, 0) + head, step=1)
    assert host.requests[0].target == "/a"


def test_a_long_answer_waits_for_the_window(client: Client) -> None:
    client.request()
    request = client.host.requests[-1]
    client.host.session.respond(request, Response(200, b"x" * 200_000, "text/plain"))
    client.exchange()
    assert sum(len(e.data) for e in client.events if isinstance(e, h2.events.DataReceived)) == 65535
    assert not client.host.session.idle
    while any(isinstance(event, h2.events.DataReceived) for event in client.events):
        events, client.events = client.events, []
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                client.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        client.exchange()
    assert client.host.session.idle


def answered(client: Client, size: int = 200_000) -> int:
    """A request whose answer is larger than its windows; its stream."""
    stream = client.request()
    client.host.session.respond(client.host.requests[-1], Response(200, b"x" * size, "text/plain"))
    client.exchange()
    return stream


@pytest.mark.parametrize("each_second", [0, 1, 100])
def test_a_client_that_takes_next_to_nothing_is_disconnected_after_30_s(
    client: Client, each_second: int
) -> None:
    answered(client)
    for second in range(1, 33):
        assert client.terminated() is None, second
        if each_second:
            client.h2.increment_flow_control_window(each_second)
            client.h2.increment_flow_control_window(each_second, 1)
        client.host.session.clock(float(second))
        client.exchange()
    assert client.terminated() == CALM
    assert client.host.requests[-1].gone


def test_a_client_that_takes_little_but_enough_stays(client: Client) -> None:
    answered(client)
    for second in range(1, 200):
        client.h2.increment_flow_control_window(200)
        client.h2.increment_flow_control_window(200, 1)
        client.host.session.clock(float(second))
        client.exchange()
    assert client.terminated() is None


def test_a_stream_that_is_not_taken_is_reset_while_others_go_on(client: Client) -> None:
    stalled, taken = answered(client, 30_000), answered(client)
    client.h2.increment_flow_control_window(2**20)
    stalled = answered(client)
    request = client.host.requests[-1]
    for second in range(1, 33):
        assert not request.gone
        client.h2.increment_flow_control_window(1000, taken)
        client.host.session.clock(float(second))
        client.exchange()
    assert client.terminated() is None and request.gone
    assert [e.stream_id for e in client.events if isinstance(e, h2.events.StreamReset)] == [stalled]


async def test_a_body_of_any_size_comes_through_windows_that_open_for_who_wants_it(client: Client) -> None:
    stream = client.request(end=False, method="POST")
    body = asyncio.ensure_future(client.host.requests[-1].body())
    await asyncio.sleep(0)
    sent = b"0123456789" * 100_000
    at = 0
    while at < len(sent):
        n = min(client.h2.local_flow_control_window(stream), 16384, len(sent) - at)
        assert n > 0
        client.h2.send_data(stream, sent[at : at + n], end_stream=at + n == len(sent))
        at += n
        client.exchange()
    assert await body == sent


async def test_the_windows_do_not_run_out_over_many_bodies(client: Client) -> None:
    """Bodies that came whole before their handler asked for them: 4 MiB, through a window of 1 MiB."""
    for _ in range(256):
        stream = client.request(end=False, method="POST")
        client.h2.send_data(stream, bytes(16384), end_stream=True)
        client.exchange()
        request = client.host.requests[-1]
        assert len(await request.body()) == 16384
        client.host.session.respond(request, Response())
        client.exchange()


async def test_a_body_nobody_asks_for_fills_its_window_and_no_more(client: Client) -> None:
    stream = client.request(end=False, method="POST")
    client.exchange()
    before = client.h2.local_flow_control_window(stream)
    client.h2.send_data(stream, b"x" * 16384)
    client.exchange()
    assert client.h2.local_flow_control_window(stream) == before - 16384


def test_a_reset_request_is_gone(client: Client) -> None:
    stream = client.request()
    client.h2.reset_stream(stream)
    client.exchange()
    assert client.host.requests[-1].gone
    client.host.session.respond(client.host.requests[-1], Response())
    client.exchange()
    assert client.terminated() is None


async def test_an_answer_before_the_end_of_the_body_resets_the_stream_without_an_error(
    client: Client,
) -> None:
    client.request(end=False, method="POST")
    client.host.session.respond(client.host.requests[-1], Response(404, b"no", "text/plain"))
    client.exchange()
    (reset,) = [event for event in client.events if isinstance(event, h2.events.StreamReset)]
    assert reset.error_code == h2.errors.ErrorCodes.NO_ERROR
    with pytest.raises(HttpError):
        client.host.requests[-1].fail(HttpError(400, "x", "x"))
        await client.host.requests[-1].body()


def test_at_the_end_of_the_gateway_requests_under_way_are_answered_first(client: Client) -> None:
    client.request()
    client.host.session.shutdown()
    client.exchange()
    assert client.terminated() is None
    client.host.session.respond(client.host.requests[-1], Response())
    client.exchange()
    assert client.terminated() == h2.errors.ErrorCodes.NO_ERROR


# Abuse: each just within its budget, and one over


@pytest.mark.parametrize(
    ("budget", "one"),
    [
        (9, frame(4, 0, 0)),  # SETTINGS; the client's first one is counted too
        (20, frame(6, 0, 0, bytes(8))),  # PING
        (100, frame(2, 0, 1, bytes(5))),  # PRIORITY
        (100, frame(8, 0, 0, b"\0\0\0\1")),  # WINDOW_UPDATE
        (100, frame(0xEE, 0, 0)),  # unknown
    ],
)
def test_a_flood_of_frames_ends_the_connection_and_as_many_as_allowed_do_not(
    client: Client, budget: int, one: bytes
) -> None:
    # The client acknowledged our SETTINGS with one of its own.
    allowed = budget - 1 if one[3] == 4 else budget
    client.raw(one * allowed)
    assert client.terminated() is None
    client.raw(one)
    assert client.terminated() == CALM


def test_a_budget_is_new_after_ten_seconds(client: Client) -> None:
    ping = frame(6, 0, 0, bytes(8))
    for _ in range(5):
        client.raw(ping * 20)
        client.host.now += 10.0
    assert client.terminated() is None


def test_rapid_reset_ends_the_connection_before_h2_has_seen_most_of_it(client: Client) -> None:
    """CVE-2023-44487: a request and its reset, again and again."""
    head = block()
    flood = b"".join(
        frame(1, 5, stream, head) + frame(3, 0, stream, b"\0\0\0\10") for stream in range(1, 2001, 2)
    )
    client.raw(flood)
    assert client.terminated() == CALM
    assert len(client.host.requests) == 0, "not one request of the read that held the flood was parsed"


def test_a_hundred_resets_are_forgiven(client: Client) -> None:
    for _ in range(100):
        client.h2.reset_stream(client.request())
        client.exchange()
    assert client.terminated() is None


def test_a_header_block_of_many_continuations_ends_the_connection(client: Client) -> None:
    piece = block([("x", "y")])
    client.raw(frame(1, 1, 1, block()) + frame(9, 0, 1, piece) * 9)
    assert client.terminated() == CALM


def test_a_header_block_over_16_kib_ends_the_connection(client: Client) -> None:
    client.raw(frame(1, 1, 1, block()) + frame(9, 0, 1, bytes(9000)) * 2)
    assert client.terminated() == CALM


def test_an_hpack_bomb_ends_the_connection() -> None:
    """Few bytes that name a large entry of the table again and again (CVE-2016-6581)."""
    client = Client()
    encoder = hpack.Encoder()
    bomb = encoder.encode([*HEADERS, ("bomb", "a" * 3000)])
    bomb += encoder.encode([("bomb", "a" * 3000)]) * 2000
    assert len(bomb) < 16384
    client.raw(frame(1, 5, 1, bytes(bomb)))
    assert client.terminated() is not None
    assert client.host.requests == []


def test_more_streams_than_announced_end_the_connection(client: Client) -> None:
    head = block()
    client.raw(b"".join(frame(1, 5, stream, head) for stream in range(1, 205, 2)))
    assert client.terminated() is not None
    assert len(client.host.requests) <= 100


@pytest.mark.parametrize(
    "garbage",
    [
        frame(1, 5, 0, block()),
        frame(0, 0, 7, b"data for no stream"),
        frame(4, 0, 0, b"abc"),
        frame(6, 0, 0, b"short"),
        b"\xff" * 64,
    ],
)
def test_a_protocol_error_ends_this_connection_only(client: Client, garbage: bytes) -> None:
    client.raw(garbage)
    assert client.host.ended is not None
