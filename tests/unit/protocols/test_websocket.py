"""The WebSocket layer, from a client that speaks raw bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from penstock.protocols.listening._unframe import Unframer
from penstock.protocols.listening.websocket_rules import WebSocketRules
from penstock.protocols.net.connection import ARENA
from penstock.protocols.net.connection_context import Limits
from tests.reference.websocket_frames import encode
from tests.support.echo import EchoServer, packet
from tests.support.limits import LIMIT_S
from tests.support.websocket_wire import request

RULES = WebSocketRules(paths=("/mqtt", "/ws"), subprotocols=("mqtt", "mqttv3.1"))
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # for this key, RFC 6455 section 1.3


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def shake(self, data: bytes = b"") -> bytes:
        """The head of the answer to the handshake."""
        self.writer.write(data or request())
        return await self.reader.readuntil(b"\r\n\r\n")

    async def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame of the server."""
        first, second = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80 and second < 128, "whole and not masked"
        if second == 126:
            second = int.from_bytes(await self.reader.readexactly(2), "big")
        elif second == 127:
            second = int.from_bytes(await self.reader.readexactly(8), "big")
        return first & 15, await self.reader.readexactly(second)

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def closed(self) -> None:
        """Wait until the server closed."""
        with suppress(ConnectionError):
            assert await self.reader.read() == b""


class Stack(EchoServer):
    """With WebSocket."""

    def __init__(self, limits: Limits | None, rules: WebSocketRules) -> None:
        super().__init__(limits, front_end="mqtt", option="ws_listen", websocket=rules)
        self.clients: list[Client] = []

    async def client(self) -> Client:
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.listener.port)))
        return self.clients[-1]

    async def logged_in(self) -> Client:
        client = await self.client()
        await client.shake()
        client.send(encode(2, packet(b"login")))
        assert await client.frame() == (2, b"\0\0\0\x09")
        return client


Scenario = Callable[[Stack], Awaitable[None]]


def on_sockets(
    limits: Limits | None = None, rules: WebSocketRules = RULES
) -> Callable[[Scenario], Callable[[], None]]:
    def decorate(scenario: Scenario) -> Callable[[], None]:
        async def main() -> None:
            stack = Stack(limits, rules)
            try:
                async with asyncio.timeout(LIMIT_S):
                    await scenario(stack)
            finally:
                for client in stack.clients:
                    client.writer.transport.abort()
                await stack.listener.drain(5)

        return lambda: uvloop.run(main())

    return decorate


# The handshake


@on_sockets()
async def test_the_handshake_agrees_on_the_subprotocol_and_on_no_extension(stack: Stack) -> None:
    for offered, chosen in (("mqtt", b"mqtt"), ("mqttv3.1", b"mqttv3.1"), ("x, mqttv3.1, mqtt", b"mqtt")):
        client = await stack.client()
        answer = await client.shake(
            request(Sec_WebSocket_Protocol=offered, Sec_WebSocket_Extensions="permessage-deflate")
        )
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Accept: " + ACCEPT in answer
        assert b"Sec-WebSocket-Protocol: " + chosen + b"\r\n" in answer
        assert b"Extensions" not in answer


REFUSED = {
    "another path": (request("/other"), 404, "no such path: '/other'"),
    "no subprotocol": (request(Sec_WebSocket_Protocol=None), 400, "missing subprotocol"),
    "another subprotocol": (request(Sec_WebSocket_Protocol="amqp"), 400, "expected one of mqtt, mqttv3.1"),
    "no upgrade": (request(Upgrade=None), 426, "Upgrade"),
    "no connection": (request(Connection="close"), 426, "Connection"),
    "no key": (request(Sec_WebSocket_Key=None), 400, "Sec-WebSocket-Key"),
    "a short key": (request(Sec_WebSocket_Key="YWJj"), 400, "Sec-WebSocket-Key"),
    "another version": (request(Sec_WebSocket_Version="8"), 400, "Sec-WebSocket-Version"),
    "another method": (request().replace(b"GET", b"POST"), 400, "POST"),
    "HTTP/1.0": (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 400, "HTTP/1.0"),
    "not HTTP": (b"\x10\x0c\0\4MQTT\4\2\0<\0\0\r\n\r\n", 400, "request"),
    "a body": (request(Content_Length="5"), 400, "body"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_wrong_handshake_is_answered_and_closed(why: str) -> None:
    data, status, reason = REFUSED[why]

    @on_sockets()
    async def check(stack: Stack) -> None:
        client = await stack.client()
        answer = await client.shake(data)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        await client.reader.read()
        assert "the WebSocket handshake failed" in await stack.reason()
        assert reason in stack.made[0].reason

    check()


@on_sockets(rules=WebSocketRules(paths=("*",), subprotocols=("mqtt",), origins=("https://good.example",)))
async def test_pages_of_listed_origins_and_clients_without_one_may_connect(stack: Stack) -> None:
    for origin, status in (("https://good.example", b"101"), (None, b"101"), ("https://bad.example", b"403")):
        client = await stack.client()
        assert (await client.shake(request("/any?x=1", Origin=origin))).startswith(b"HTTP/1.1 " + status)


@on_sockets(rules=WebSocketRules(paths=("*",), subprotocols=("mqtt",)))
async def test_a_page_of_another_origin_gains_nothing_from_loopback(stack: Stack) -> None:
    own = f"127.0.0.1:{stack.listener.port}"
    cases = (
        (None, own, True),
        (f"http://{own}", own, True),
        (None, f"localhost:{stack.listener.port}", True),
        ("http://localhost:3000", own, False),
        (f"http://localhost:{stack.listener.port}", own, False),
        ("https://evil.example", own, False),
        ("null", own, False),
        ("http://[", own, False),
        (f"http://{own}.evil.example", own, False),
        # A name of somebody else that points to this machine.
        (None, "evil.example", False),
        ("http://evil.example", "evil.example", False),
    )
    for origin, host, local in cases:
        client = await stack.client()
        assert (await client.shake(request(Origin=origin, Host=host))).startswith(b"HTTP/1.1 101")
        assert stack.made[-1].local is local, (origin, host)


@on_sockets(rules=WebSocketRules(paths=("*",), subprotocols=("mqtt",), origins=("http://localhost:3000",)))
async def test_a_page_that_the_operator_allows_is_local(stack: Stack) -> None:
    client = await stack.client()
    answer = await client.shake(request(Origin="http://localhost:3000", Host="127.0.0.1"))
    assert answer.startswith(b"HTTP/1.1 101") and stack.made[-1].local


@on_sockets(Limits(greeting_timeout_s=0.05))
async def test_a_handshake_that_does_not_end_is_dropped_in_time(stack: Stack) -> None:
    client = await stack.client()
    client.writer.write(request()[:-1])
    await client.closed()
    assert await stack.reason() == "no complete first packet in time"


@on_sockets()
async def test_a_handshake_that_is_too_long_is_dropped(stack: Stack) -> None:
    client = await stack.client()
    client.writer.write(request(X="y" * 9000)[:-4])
    await client.closed()
    assert await stack.reason() == "a WebSocket handshake of more than 8192 bytes"


@on_sockets()
async def test_frames_right_behind_the_handshake_are_read(stack: Stack) -> None:
    client = await stack.client()
    await client.shake(request() + encode(2, packet(b"login")))
    assert await client.frame() == (2, b"\0\0\0\x09")
    assert stack.made[0].bytes_in == len(request()) + len(encode(2, packet(b"login")))


# Frames


@on_sockets()
async def test_packets_may_span_frames_and_share_them(stack: Stack) -> None:
    client = await stack.logged_in()
    body = bytes(range(256)) * 40
    stream = packet(b"a") + packet(body) + packet(b"b")
    frames = [encode(2, stream[:3]), encode(2, stream[3:5000], fin=False), encode(9, b"?")]
    frames += [encode(0, stream[5000:9000], fin=False), encode(0, stream[9000:])]
    data = b"".join(frames)
    for start in range(0, len(data), 997):
        client.send(data[start : start + 997])
        await asyncio.sleep(0)
    while len(stack.made[0].packets) < 4:
        await asyncio.sleep(0.001)
    assert stack.made[0].packets[1:] == [b"a", body, b"b"]


@on_sockets()
async def test_a_packet_larger_than_the_arena_comes_whole(stack: Stack) -> None:
    client = await stack.logged_in()
    body = bytes(range(256)) * 4096
    assert len(body) > 2 * len(ARENA)
    client.send(encode(2, packet(body)), encode(2, packet(b"after")))
    answers = b""
    while len(answers) < 8:
        answers += (await client.frame())[1]
    assert stack.made[0].packets[1:] == [body, b"after"]


@on_sockets()
async def test_large_output_is_one_frame(stack: Stack) -> None:
    client = await stack.logged_in()
    for size in (125, 126, 65535, 65536, 1 << 20):
        stack.made[0].out.write(bytes(size))
        stack.made[0].dirty()
        assert await client.frame() == (2, bytes(size))


@on_sockets()
async def test_a_ping_is_answered_and_a_pong_is_not(stack: Stack) -> None:
    client = await stack.logged_in()
    client.send(encode(10, b"unasked"), encode(9, b"x" * 125))
    assert await client.frame() == (10, b"x" * 125)


@on_sockets(Limits(login_bytes=2000))
async def test_empty_frames_and_pings_count_before_the_login(stack: Stack) -> None:
    client = await stack.client()
    await client.shake()
    client.send(*[encode(9, b"")] * 400)
    await client.reader.read()
    assert await stack.reason() == "more than 2000 bytes before the login"


FAULTS = {
    "a text frame": (encode(1, b"hello"), 1003),
    "not masked": (encode(2, b"x", mask=None), 1002),
    "a reserved bit": (encode(2, b"x", reserved=4), 1002),
    "an unknown opcode": (encode(3, b"x"), 1002),
    "a continuation of nothing": (encode(0, b"x"), 1002),
    "a message within a message": (encode(2, b"x", fin=False) + encode(2, b"x"), 1002),
    "a ping in pieces": (encode(9, b"x", fin=False), 1002),
    "a large ping": (encode(9, bytes(126)), 1002),
    "a long form of a short length": (encode(2, b"x", length_bytes=8), 1002),
    "a close code of one byte": (encode(8, b"x"), 1002),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_frame_ends_the_connection_with_its_code(fault: str) -> None:
    data, code = FAULTS[fault]

    @on_sockets()
    async def check(stack: Stack) -> None:
        client = await stack.logged_in()
        client.send(encode(2, packet(b"before")), data, encode(2, packet(b"behind")))
        frames = [await client.frame(), await client.frame()]
        assert frames[0] == (2, b"\0\0\0\x0a"), "what came before is handled"
        assert frames[1][0] == 8 and frames[1][1][:2] == code.to_bytes(2, "big")
        await client.closed()
        assert stack.made[0].packets == [b"login", b"before"]
        assert (await stack.reason()).startswith("broken WebSocket frames: ")

    check()


# The end


@on_sockets()
async def test_the_peers_close_is_answered(stack: Stack) -> None:
    client = await stack.logged_in()
    client.send(encode(8, (1000).to_bytes(2, "big") + b"bye"))
    assert await client.frame() == (8, (1000).to_bytes(2, "big") + b"bye")
    await client.closed()
    assert await stack.reason() == "the client closed the socket"


@on_sockets()
async def test_our_close_waits_for_the_peers(stack: Stack) -> None:
    client = await stack.logged_in()
    stack.made[0].out.write(b"last")
    stack.made[0].close("done")
    assert await client.frame() == (2, b"last")
    assert await client.frame() == (8, (1000).to_bytes(2, "big"))
    client.send(encode(2, packet(b"late")))
    client.send(encode(8, (1000).to_bytes(2, "big")))
    await client.closed()
    assert await stack.reason() == "done"
    assert stack.made[0].packets == [b"login"]


@on_sockets()
async def test_a_peer_that_does_not_answer_our_close_is_not_waited_for_long(stack: Stack) -> None:
    client = await stack.logged_in()
    stack.made[0].close("done")
    assert (await client.frame())[0] == 8
    await client.closed()
    assert await stack.reason() == "done"


def test_a_size_outside_the_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="outside the buffer"):
        Unframer().feed(bytearray(4), 5)
