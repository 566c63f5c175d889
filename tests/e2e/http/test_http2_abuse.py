"""Floods of HTTP/2 frames against a running gateway: each ends its own connection soon, and nobody else's."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import hpack
import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about penstock's own front end")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MIB = 1 << 20


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


BLOCK = bytes(
    hpack.Encoder().encode([(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "x")])
)
BOMB = bytes(hpack.Encoder().encode([("a", "b" * 4000)])) + b"\xbe" * 8000
"""One field of 4 KB in the table, and 8,000 references to it: 32 MB of headers in 12 KB."""


def endless(kind: str) -> Iterator[bytes]:
    """The frames of a flood, about 32 KiB in each piece."""
    stream = 1
    while True:
        piece = b""
        while len(piece) < 32_768:
            match kind:
                case "rapid reset":
                    piece += frame(1, 5, stream, BLOCK) + frame(3, 0, stream, b"\0\0\0\10")
                case "settings":
                    piece += frame(4, 0, 0)
                case "ping":
                    piece += frame(6, 0, 0, b"12345678")
                case "priority":
                    piece += frame(2, 0, stream, b"\0\0\0\0\20")
                case "empty data":
                    piece += (frame(1, 4, 1, BLOCK) if stream == 1 and not piece else b"") + frame(0, 0, 1)
                case "window":
                    piece += frame(8, 0, 0, b"\0\0\0\1")
                case "continuation":
                    piece += frame(1, 0, 1, BLOCK) if stream == 1 and not piece else b""
                    piece += frame(9, 0, 1, b"\0" * 16)
                case "unknown":
                    piece += frame(99, 0, 0, b"x")
                case "hpack bomb":
                    piece += frame(1, 5, stream, BOMB)
                case _:
                    raise AssertionError(kind)
            stream += 2
        yield piece


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SETTINGS, "http.listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("abuse"), settings=settings) as running:
        yield running


@pytest.mark.parametrize(
    "kind",
    [
        "rapid reset",
        "settings",
        "ping",
        "priority",
        "empty data",
        "window",
        "continuation",
        "unknown",
        "hpack bomb",
    ],
)
def test_a_flood_ends_its_own_connection_and_no_other_one(gateway: Gateway, kind: str) -> None:
    port = gateway.ports["http"]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", http1=False, http2=True, timeout=60) as other,
        socket.create_connection(("127.0.0.1", port), 60) as attacker,
    ):
        assert other.get("/openapi.json").status_code == 200
        attacker.sendall(PREFACE + frame(4, 0, 0))
        sent = 0
        try:
            for piece in endless(kind):
                attacker.sendall(piece)
                sent += len(piece)
                # The socket buffers are outside the gateway; it reads far less before it stops.
                assert sent < 64 * MIB, "the flood is not stopped"
        except ConnectionError:
            pass
        assert other.get("/openapi.json").status_code == 200


def test_a_client_that_reads_nothing_holds_up_nobody(gateway: Gateway) -> None:
    """Slow read: a hundred requests for a page, and no window to send it in."""
    port = gateway.ports["http"]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as other,
        socket.create_connection(("127.0.0.1", port), 60) as attacker,
    ):
        block = bytes(
            hpack.Encoder().encode(
                [(":method", "GET"), (":path", "/openapi.json"), (":scheme", "http"), (":authority", "x")]
            )
        )
        no_window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
        requests = b"".join(frame(1, 5, stream, block) for stream in range(1, 200, 2))
        attacker.sendall(PREFACE + no_window + requests)
        for _ in range(20):
            assert other.get("/openapi.json").status_code == 200
        # The heads of the answers come, and no body.
        attacker.settimeout(LIMIT_S)
        assert attacker.recv(65536)
