"""HTTP clients that take nothing, or next to nothing, are disconnected after the documented 30 s."""

from __future__ import annotations

import socket
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator

import hpack
import httpx
import pytest

from penstock.protocols.http.server.progress import STALLED
from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, make_queue
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("these are bounds of penstock's HTTP front end")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LOGIN = "Basic " + b64encode(b"guest:guest").decode()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("unread"), settings=SERVED) as running:
        make_queue(running, "unread")
        yield running


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def request2(path: str) -> bytes:
    """One request over HTTP/2, with windows of 0."""
    block = hpack.Encoder().encode(
        [
            (":method", "GET"),
            (":path", path),
            (":scheme", "http"),
            (":authority", "localhost"),
            ("authorization", LOGIN),
        ]
    )
    return PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(1, 5, 1, bytes(block))


def request1(path: str, count: int) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {LOGIN}\r\n\r\n".encode() * count


def zero_window(client: socket.socket, over: Callable[[], bool]) -> None:
    client.sendall(request2("/openapi.json"))
    client.settimeout(0.5)
    while not over() and _read(client, 65536) != b"":
        pass


def a_byte_a_second(client: socket.socket, over: Callable[[], bool]) -> None:
    client.sendall(request2("/openapi.json"))
    client.settimeout(1)
    while not over():
        client.sendall(frame(8, 0, 1, struct.pack(">I", 1)))
        if _read(client, 65536) == b"":
            return
        ends.wait(1)


def nothing(client: socket.socket, over: Callable[[], bool]) -> None:
    client.sendall(request1("/openapi.json", 400))
    _look(client, over, 0)


def some_bytes_a_second(client: socket.socket, over: Callable[[], bool]) -> None:
    client.sendall(request1("/openapi.json", 400))
    _look(client, over, 30)


def _look(client: socket.socket, over: Callable[[], bool], each: int) -> None:
    """Read this many bytes a second until the gateway's log says the end."""
    while not over():
        ends.wait(1)
        if each:
            client.recv(each)


ends = threading.Event()


def _read(client: socket.socket, size: int) -> bytes | None:
    try:
        return client.recv(size)
    except TimeoutError:
        return None


def test_a_client_that_reads_almost_nothing_is_disconnected(gateway: Gateway) -> None:
    """All kinds at once: it takes 30 s."""
    took: dict[str, float] = {}
    begun = time.monotonic()

    def is_closed(peer: str) -> bool:
        return any(STALLED in line and peer in line for line in gateway.log_text().splitlines())

    def run(kind: Callable[[socket.socket, Callable[[], bool]], None]) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", gateway.ports["http"]))
            try:
                peer = f":{client.getsockname()[1]}"
                kind(client, lambda: time.monotonic() > begun + LIMIT_S or is_closed(peer))
            except ConnectionError:
                pass
        took[kind.__name__] = time.monotonic() - begun

    kinds = (zero_window, a_byte_a_second, nothing, some_bytes_a_second)
    threads = [threading.Thread(target=run, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.ports['http']}", timeout=LIMIT_S) as other:
        while any(thread.is_alive() for thread in threads):
            assert other.get("/openapi.json").status_code == 200, "others are served meanwhile"
            ends.wait(1)
    for thread in threads:
        thread.join()
    assert all(25 < seconds < LIMIT_S for seconds in took.values()), took
    assert gateway.log_text().count(STALLED) == len(kinds)
