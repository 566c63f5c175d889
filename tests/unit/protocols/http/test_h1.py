"""The HTTP/1.1 session: framing, order, bounds."""

from __future__ import annotations

import asyncio

import h11
import pytest

from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.server.wire.h1 import H1Session
from tests.support.http_session import Host

GET = b"GET /a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def host() -> Host:
    return Host(H1Session)


def body_of(host: Host, *, limit: int = 1 << 20) -> asyncio.Task[bytes]:
    """Ask for the body of the last request."""
    return asyncio.ensure_future(host.requests[-1].body(limit))


@pytest.mark.parametrize("step", [0, 1, 7])
def test_a_request_is_handed_over_when_its_head_is_complete(host: Host, step: int) -> None:
    host.send(GET[:-1], step=step)
    assert host.requests == []
    host.send(GET[-1:])
    (request,) = host.requests
    assert (request.method, request.target, request.version) == ("GET", "/a?b=1", "1.1")
    assert request.headers == {"host": "x"}


def test_an_answer_is_what_another_implementation_reads(host: Host) -> None:
    host.send(GET)
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/a", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(host.answer(b"hello"))
    head, data = client.next_event(), client.next_event()
    assert isinstance(head, h11.Response) and head.status_code == 200
    assert isinstance(data, h11.Data) and bytes(data.data) == b"hello"
    assert isinstance(client.next_event(), h11.EndOfMessage)


def test_pipelined_requests_are_served_one_after_the_other(host: Host) -> None:
    host.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
    for n in range(50):
        assert [request.target for request in host.requests] == [f"/{at}" for at in range(n + 1)]
        host.answer(b"%d" % n)
    assert host.ended is None


async def test_a_body_is_read_when_it_is_asked_for(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + GET)
    body = body_of(host)
    await asyncio.sleep(0)
    host.settle()
    assert await body == b"hello"
    assert len(host.requests) == 1
    host.answer()
    assert host.requests[1].target == "/a?b=1"


@pytest.mark.parametrize("step", [0, 1, 3])
async def test_chunks_are_put_together(host: Host, step: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    host.send(head)
    body = body_of(host)
    await asyncio.sleep(0)
    host.send(b"5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n" + GET, step=step)
    assert await body == b"hello!"
    host.answer()
    assert host.requests[1].target == "/a?b=1"


async def test_100_continue_is_sent_when_the_body_is_wanted_and_not_before(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert host.take() == b""
    body = body_of(host)
    await asyncio.sleep(0)
    assert host.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    host.send(b"ab")
    assert await body == b"ab"


async def test_an_expectation_without_a_body_gets_no_100_continue(host: Host) -> None:
    """RFC 9110 10.1.1: such an expectation has no meaning."""
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n")
    assert await body_of(host) == b""
    assert host.answer(b"").startswith(b"HTTP/1.1 200") and host.ended is None


def test_an_answer_before_an_expected_body_ends_the_connection(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert b"connection: close" in host.answer(status=401)
    assert host.ended is not None


def test_a_small_body_nobody_wanted_is_dropped_and_the_connection_lives(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + GET)
    assert b"connection: close" not in host.answer(status=404)
    assert host.requests[1].target == "/a?b=1"


def test_a_large_body_nobody_wanted_ends_the_connection(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
    host.answer(status=404)
    assert host.ended == "answered before the body"


async def test_a_body_over_its_limit_is_refused_as_it_arrives(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    body = body_of(host, limit=10)
    await asyncio.sleep(0)
    host.send(b"400\r\n" + b"x" * 1024 + b"\r\n")
    with pytest.raises(HttpError) as caught:
        await body
    assert caught.value.status == 413


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x10\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"\x16\x03\x01 not http at all\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 17000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    ],
)
def test_an_invalid_request_gets_its_status_and_ends_the_connection(
    host: Host, head: bytes, status: int
) -> None:
    host.send(head)
    assert host.take().startswith(b"HTTP/1.1 %d " % status)
    assert host.ended is not None
    assert host.requests == []


def test_a_transfer_coding_other_than_chunked_is_refused(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")
    assert host.take().startswith((b"HTTP/1.1 501 ", b"HTTP/1.1 400 "))
    assert host.requests == []


@pytest.mark.parametrize("began", [b"\x16\x03\x01\x02\x00", b"\r\n\0", b"\xff", b"\x7f"])
def test_bytes_with_which_no_request_begins_are_refused_at_once(host: Host, began: bytes) -> None:
    """The client of a TLS handshake would wait for an answer."""
    host.send(began)
    assert host.take().startswith(b"HTTP/1.1 400 ") and host.ended is not None


def test_an_empty_line_may_come_first_in_pieces(host: Host) -> None:
    for at in range(4):
        host.send(b"\r\n\r\n"[at : at + 1])
        assert host.ended is None
    host.send(GET)
    assert len(host.requests) == 1


def test_a_head_that_does_not_end_is_refused_at_its_limit(host: Host) -> None:
    host.send(b"GET / HTTP/1.1\r\nA: ")
    host.send(b"a" * 30000, step=1000)
    assert host.take().startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-1\r\n", b"\r\n", b"5\r\nhelloX\r\n", b"f" * 13 + b"\r\n"])
async def test_a_broken_chunk_is_no_end_of_a_message(host: Host, chunk: bytes) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    body = body_of(host)
    await asyncio.sleep(0)
    host.send(chunk + GET)
    with pytest.raises(HttpError):
        await body
    assert b"connection: close" in host.answer(status=400)
    assert host.ended is not None and len(host.requests) == 1


def test_a_client_that_is_late_is_told_and_one_that_asks_nothing_is_not(host: Host) -> None:
    """A client would take an unrequested message for the answer to its next request."""
    host.send(GET)
    host.answer()
    assert isinstance(host.session, H1Session)
    host.session.too_slow(begun=False)
    assert host.take() == b"" and host.ended
    late = Host(H1Session)
    late.send(GET[:-1])
    assert isinstance(late.session, H1Session)
    late.session.too_slow(begun=True)
    assert late.take().startswith(b"HTTP/1.1 408 ") and late.ended


def test_http_1_0_ends_with_the_answer_unless_it_asks_otherwise(host: Host) -> None:
    host.send(b"GET / HTTP/1.0\r\n\r\n")
    assert b"connection: close" in host.answer()
    assert host.ended is not None
    other = Host(H1Session)
    other.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"connection: keep-alive" in other.answer()
    assert other.ended is None


def test_an_offer_to_upgrade_is_not_taken(host: Host) -> None:
    offer = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    host.send(offer + GET)
    assert host.answer().startswith(b"HTTP/1.1 200 OK\r\n")
    assert host.requests[1].target == "/a?b=1"


def test_head_has_the_length_and_no_body(host: Host) -> None:
    host.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    sent = host.answer(b"hello")
    assert b"content-length: 5\r\n" in sent and sent.endswith(b"\r\n\r\n")


async def test_a_client_that_goes_away_is_noticed_by_whoever_reads_its_body(host: Host) -> None:
    host.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe")
    body = body_of(host)
    await asyncio.sleep(0)
    host.settle()
    host.session.lost()
    with pytest.raises(HttpError):
        await body
    assert host.requests[0].gone


def test_at_the_end_of_the_gateway_the_request_under_way_is_answered(host: Host) -> None:
    host.send(GET)
    host.session.shutdown()
    assert host.ended is None
    assert b"connection: close" in host.answer()
    assert host.ended is not None
