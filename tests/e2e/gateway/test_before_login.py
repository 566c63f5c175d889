"""The cost of a peer before login, at the limit and above it, and of a peer that does not read."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pamqp.frame
import pytest
from pamqp import commands

from tests.reference import native_frames as wire
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.websocket_wire import request

pytestmark = [pytest.mark.penstock_only("these are penstock's limits")]

HEADER = b"AMQP\0\0\x09\x01"
CONNECT = b"\x10\x0c\0\4MQTT\4\2\0<\0\0"
HELLO = b"PENSTOCK" + wire.frame(0x01, 0, b'{"versions": [1], "client": "test"}')


def login(size: int) -> bytes:
    """A LOGIN of `size` bytes behind its own length, with the right password; what fills it are blanks."""
    said = json.dumps({"user": "guest", "password": "guest"}).encode()
    return wire.frame(0x03, 0, said.ljust(size - 8))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {
        "server.login_timeout_s": "1",
        "native.listen": "127.0.0.1:0",
        "mqtt.ws_listen": "127.0.0.1:0",
        "server.output_buffer_bytes": "16KiB",
        "server.output_stuck_s": "1",
        "management.listen": "127.0.0.1:0",
        "mqtt.max_packet_bytes": "1MiB",
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


def connect(port: int, first: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
    client.sendall(first)
    return client


def read_all(client: socket.socket) -> bytes:
    """Everything until the server closes, with or without a reset."""
    got = b""
    try:
        while data := client.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


SLOW = {
    "AMQP, silent": ("amqp", b"", b""),
    "AMQP, a byte at a time": ("amqp", b"", HEADER * 100),
    "AMQP, silent behind its header": ("amqp", HEADER, b""),
    "MQTT, silent": ("mqtt", b"", b""),
    "MQTT, a byte at a time": ("mqtt", b"", CONNECT[:-1] * 100),
    "native, silent": ("native", b"", b""),
    "native, a byte at a time": ("native", b"", HELLO + login(1000)),
    "native, most of the largest login": ("native", HELLO + login(16384)[:-1], b""),
    "WebSocket, silent": ("ws", b"", b""),
    "WebSocket, a byte at a time": ("ws", b"", request(X="y" * 4000)),
    "WebSocket, silent behind its handshake": ("ws", request(), b""),
    "WebSocket, pings": ("ws", request(), b"\x89\x80\0\0\0\0" * 1000),
}


@pytest.mark.parametrize("how", SLOW)
def test_a_client_without_a_login_in_time_is_closed(gateway: Gateway, how: str) -> None:
    name, first, drip = SLOW[how]
    started = time.monotonic()
    with connect(gateway.ports[name], first) as client:
        client.settimeout(0.05)
        for i in range(1200):
            try:
                if drip:
                    client.sendall(drip[i : i + 1])
                if how.startswith("AMQP, a byte") and i == 3:
                    drip = b""  # the fifth would make a header that is wrong, or one that is right
                if not client.recv(65536):
                    break
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                break
        else:
            raise AssertionError("it is still connected")
    # Each byte that came late would keep it for longer than that.
    assert 0.5 < time.monotonic() - started < 60


def start_ok(size: int) -> bytes:
    """A start-ok frame of `size` bytes in all, with the right password."""
    padding = 0
    while True:
        frame = pamqp.frame.marshal(
            commands.Connection.StartOk(
                client_properties={"padding": "x" * padding}, response="\0guest\0guest", mechanism="PLAIN"
            ),
            0,
        )
        if len(frame) == size:
            return frame
        padding += size - len(frame)


def test_the_payload_of_an_amqp_frame_before_the_login_has_at_most_8_kib(gateway: Gateway) -> None:
    for size, answer in ((8192 + 8, commands.Connection.Tune), (8192 + 9, None)):
        with connect(gateway.amqp_port, HEADER) as client:
            head = client.recv(7, socket.MSG_WAITALL)
            client.recv(struct.unpack(">I", head[3:])[0] + 1, socket.MSG_WAITALL)
            client.sendall(start_ok(size))
            if answer is None:
                got = read_all(client)
                assert not got or isinstance(pamqp.frame.unmarshal(got)[2], commands.Connection.Close)
            else:
                assert isinstance(pamqp.frame.unmarshal(client.recv(65536))[2], answer)


def test_a_native_frame_before_the_login_has_at_most_16_kib(gateway: Gateway) -> None:
    for size in (16384, 16385):
        with connect(gateway.ports["native"], HELLO + login(size)) as client:
            if size == 16384:
                client.sendall(b"PENSTOCK")  # which is no frame here, and ends it
            kinds = [kind for kind, _, _ in wire.frames(read_all(client))]
            # The gateway may close with surplus bytes unread, which can lose the answer.
            assert kinds == [0x02, 0x04, 0x0F] if size == 16384 else kinds in ([0x02, 0x0F], [0x02], [])


def mqtt_connect(size: int) -> bytes:
    """A CONNECT of `size` bytes in all whose will is as large as it must be."""
    body = b"\0\4MQTT\4\x06\0<" + b"\0\1c" + b"\0\1t"
    rest = size - 4 - len(body) - 2
    body += rest.to_bytes(2, "big") + bytes(rest)
    left = len(body)
    return b"\x10" + bytes([left & 127 | 128, left >> 7 & 127 | 128, left >> 14]) + body


def test_a_connect_has_at_most_64_kib(gateway: Gateway) -> None:
    with connect(gateway.mqtt_port, mqtt_connect(65536)) as client:
        assert client.recv(4) == b"\x20\2\0\0"
        client.sendall(b"\xe0\0")
    with connect(gateway.mqtt_port, mqtt_connect(65537)) as client:
        assert read_all(client) == b""


@pytest.mark.parametrize("password", ["guest", "wrong"])
def test_the_body_of_a_first_request_may_be_larger_than_what_a_login_may_be(
    gateway: Gateway, unique: str, password: str
) -> None:
    queues = [{"name": f"{unique}{i}", "vhost": "/", "durable": False} for i in range(20)]
    body = json.dumps({"queues": queues}).encode() + b" " * 300_000
    basic = base64.b64encode(f"guest:{password}".encode()).decode()
    head = f"POST /api/definitions HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {basic}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with connect(gateway.ports["management"]) as client:
        try:
            client.sendall(head.encode() + body)
            answer = client.recv(100)
        except ConnectionError:
            answer = b""
        # The gateway may cut a refused client off in the middle of so large a body.
        assert answer.startswith((b"HTTP/1.1 204", b"HTTP/1.1 401")[password == "wrong"]) or (
            password == "wrong" and answer == b""
        )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_never_reads_its_answers_is_not_read_and_then_closed(
    gateway: Gateway, tmp_path: Path
) -> None:
    with connect(gateway.mqtt_port, CONNECT) as client, connect(gateway.mqtt_port, CONNECT) as other:
        assert client.recv(4) == other.recv(4) == b"\x20\2\0\0"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0.1)
        deadline = time.monotonic() + LIMIT_S
        while "took none of its output for 1 s" not in gateway.log_text():
            assert time.monotonic() < deadline
            try:
                client.send(b"\xc0\0" * 32768)
            except TimeoutError:
                continue  # it is not read any more, or not now
            except (ConnectionResetError, BrokenPipeError):
                break
        wait_for(lambda: "took none of its output for 1 s" in gateway.log_text())
        other.sendall(b"\xc0\0")
        assert other.recv(2) == b"\xd0\0"
