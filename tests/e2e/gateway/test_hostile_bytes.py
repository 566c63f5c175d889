"""Bytes that no client sends, to every listener: refused as the peer's fault, without a traceback."""

from __future__ import annotations

import random
import socket
from base64 import b64encode
from collections.abc import Iterator

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("these are penstock's listeners")

LOGIN = b"Basic " + b64encode(b"guest:guest")
UPGRADE = (
    (b"Upgrade", b"websocket"),
    (b"Connection", b"Upgrade"),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    (b"Sec-WebSocket-Protocol", b"mqtt"),
)
NAMES = (
    *(name for name, _ in UPGRADE),
    b"Accept",
    b"Accept-Encoding",
    b"Authorization",
    b"Content-Type",
    b"Cookie",
    b"Expect",
    b"Host",
    b"Idempotency-Key",
    b"If-None-Match",
    b"Last-Event-ID",
    b"Origin",
    b"Penstock-Epoch",
    b"Penstock-Producer",
    b"Penstock-Sequence",
    b"Range",
    b"Sec-Fetch-Site",
    b"traceparent",
    b"X-Forwarded-For",
)
VALUES = (
    b"",
    b"\xff",
    b"\xc3\x28",
    b"Basic \xff",
    b"Bearer \xff",
    b"Bearer eyJ\xff.e.e",
    b"\xf0\x9f\x92\xa9",
    b"http://[",
    b"9" * 400,
)
PATHS = (
    b"/",
    b"/mqtt",
    b"/metrics",
    b"/api/overview",
    b"/api/queues/%FF/%ff",
    b"/v1/vhosts/%2F/ws",
    b"/v1/vhosts/%2F/exchanges/amq.topic/tail",
    b"/\xff",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SERVED, "mqtt.ws_listen": "127.0.0.1:0", "native.listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("hostile"), settings=settings) as running:
        yield running


def say(port: int, data: bytes, *, ends: bool = False) -> bytes:
    """The first bytes of the answer to `data`, behind which the client ends the stream or waits."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        try:
            client.sendall(data)
            if ends:
                client.shutdown(socket.SHUT_WR)
            return client.recv(4096)
        except ConnectionError:
            return b""


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def get(path: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % one for one in headers) + b"\r\n"


def no_traceback(gateway: Gateway) -> None:
    assert "Traceback" not in gateway.log_text(), gateway.log_tail()


@pytest.mark.parametrize("scheme", [b"Basic \xff", b"Bearer \xff", b"Bearer eyJ\xff.e.e", b"\xff"])
@pytest.mark.parametrize("listener", ["management", "http"])
def test_credentials_that_are_not_ascii_are_a_bad_request(
    gateway: Gateway, listener: str, scheme: bytes
) -> None:
    port = gateway.ports[listener]
    host = (b"Host", b"localhost")
    assert status(say(port, get(b"/api/whoami", host, (b"Authorization", scheme)))) == 400
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", http1=False, http2=True, timeout=LIMIT_S) as http:
        assert http.get("/api/whoami", headers={b"authorization": scheme}).status_code == 400
    no_traceback(gateway)


@pytest.mark.parametrize("name", [name for name, _ in UPGRADE] + [b"Origin", b"Host", b"X-Any"])
def test_a_websocket_handshake_that_is_not_ascii_is_a_bad_request(gateway: Gateway, name: bytes) -> None:
    headers = {b"Host": b"localhost", **dict(UPGRADE), name: b"\xff"}
    assert status(say(gateway.ports["ws"], get(b"/mqtt", *headers.items()))) == 400
    no_traceback(gateway)


@pytest.mark.parametrize("listener", ["management", "http", "metrics", "ws"])
def test_headers_of_any_bytes(gateway: Gateway, listener: str) -> None:
    rng = random.Random(listener)
    for _ in range(300):
        headers = {b"Host": b"localhost", b"Authorization": LOGIN}
        if rng.random() < 0.5:
            headers.update(UPGRADE)
        for _ in range(rng.randint(1, 3)):
            value = rng.choice(VALUES) if rng.random() < 0.7 else rng.randbytes(8).translate(None, b"\0\r\n")
            headers[rng.choice(NAMES)] = value
        answer = say(gateway.ports[listener], get(rng.choice(PATHS), *headers.items()))
        assert status(answer) != 500, (headers, answer)
    no_traceback(gateway)


@pytest.mark.parametrize("listener", ["amqp", "mqtt", "native", "ws", "http", "management", "metrics"])
def test_any_bytes(gateway: Gateway, listener: str) -> None:
    begins = {
        "amqp": b"AMQP\0\0\x09\x01",
        "mqtt": b"\x10\x10\0\4MQTT\5\2\0\0\0\0\1a",
        "native": b"PENSTOCK",
        "ws": get(b"/mqtt", (b"Host", b"localhost"), *UPGRADE),
    }
    begin = begins.get(listener, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    rng = random.Random(listener)
    for _ in range(150):
        data = bytearray(begin + rng.randbytes(rng.choice((0, 1, 9, 40, 400))))
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        say(gateway.ports[listener], bytes(data), ends=True)
    no_traceback(gateway)
