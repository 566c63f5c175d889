"""The webhooks' HTTP client against real sockets: addresses are checked each time and pinned."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from penstock.protocols.http.webhooks.address_rules import Guard
from penstock.protocols.http.webhooks.client import Client, NoAnswer
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S

LOOPBACK = Guard(allow=(ip_network("127.0.0.0/8"),))
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(size)


@asynccontextmanager
async def server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that handles each connection with `serve`; its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(run, "127.0.0.1", 0, ssl=tls)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> tuple[Serve, list[bytes]]:
    """Answer one request after another on a connection, then end it."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            got.append(await read_request(reader))
            writer.write(answer)
            await writer.drain()

    return serve, got


def client(url: str, guard: Guard = LOOPBACK, **options: object) -> Client:
    return Client(guard.target(url), guard, None, **options)  # type: ignore[arg-type]


async def test_a_name_that_moves_to_a_private_address_gets_nothing_more() -> None:
    """DNS rebinding: the first answer is fit, the next one is not."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    async with server(serve) as port:
        answers = [["127.0.0.1"], ["10.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["::ffff:10.0.0.1"]]
        asked: list[str] = []

        def resolve(host: str, _: int) -> list[str]:
            asked.append(host)
            return answers[len(asked) - 1]

        one = client(f"http://rebind.test:{port}/", resolve=resolve)
        assert (await one.send("POST", {}, b"x", timeout_s=LIMIT_S)).status == 200
        for _ in range(3):
            with pytest.raises(NoAnswer) as raised:
                await one.send("POST", {}, b"x", timeout_s=LIMIT_S)
            assert raised.value.kind == "forbidden"
        assert connections == 1 and asked == ["rebind.test"] * 4
        one.close()


async def test_a_connection_goes_to_the_checked_address_and_keeps_the_name() -> None:
    serve, got = answering(OK, OK)
    async with server(serve) as port:
        asked = []

        def resolve(host: str, _: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        one = client(f"http://not-in-any-dns.invalid:{port}/p?q=1", resolve=resolve)
        for _ in range(2):
            answer = await one.send("POST", {"a": "b"}, b"body", timeout_s=LIMIT_S)
            assert (answer.status, answer.body) == (200, b"ok")
        assert asked == ["not-in-any-dns.invalid"], "a connection that is kept is not resolved again"
        expected = f"POST /p?q=1 HTTP/1.1\r\nhost: not-in-any-dns.invalid:{port}\r\ncontent-length: 4\r\na: b"
        assert got == [expected.encode() + b"\r\n\r\nbody"] * 2
        one.close()


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    serve, got = answering(b"HTTP/1.1 307 T\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    async with server(serve) as port:
        one = client(f"http://127.0.0.1:{port}/")
        assert (await one.send("POST", {}, b"", timeout_s=LIMIT_S)).status == 307
        assert len(got) == 1
        one.close()


async def test_a_connection_that_was_closed_while_idle_is_replaced() -> None:
    serve, got = answering(OK)  # and closes behind it, without saying so
    async with server(serve) as port:
        one = client(f"http://127.0.0.1:{port}/")
        for _ in range(3):
            assert (await one.send("POST", {}, b"x", timeout_s=LIMIT_S)).status == 200
        assert len(got) == 3
        one.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"\x00\x01\x02 garbage\r\n\r\n", "garbage"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000, "garbage"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "closed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", "closed"),
        (b"", "closed"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "garbage"),
    ],
)
async def test_answers_that_are_none(answer: bytes, kind: str) -> None:
    serve, _ = answering(answer)
    async with server(serve) as port:
        one = client(f"http://127.0.0.1:{port}/")
        with pytest.raises(NoAnswer) as raised:
            await one.send("POST", {}, b"", timeout_s=LIMIT_S)
        assert raised.value.kind == kind
        one.close()


async def test_answers_in_every_framing_and_the_body_in_bounds() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 A\r\ncontent-length: 2\r\n\r\nok"
    until_end = b"HTTP/1.0 200 OK\r\n\r\nok"
    large = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"z" * 1_000_000
    for answer, status, size in (
        (chunked, 200, 2),
        (early, 202, 2),
        (until_end, 200, 2),
        (large, 200, 65536),
    ):
        serve, _ = answering(answer)
        async with server(serve) as port:
            one = client(f"http://127.0.0.1:{port}/")
            got = await one.send("POST", {}, b"", timeout_s=LIMIT_S)
            assert (got.status, len(got.body)) == (status, size)
            one.close()


async def test_no_answer_in_time_is_the_end_of_the_connection() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await read_request(reader)
            await reader.read()
        finally:
            ended.set()

    async with server(serve) as port:
        one = client(f"http://127.0.0.1:{port}/")
        with pytest.raises(NoAnswer) as raised:
            await one.send("POST", {}, b"", timeout_s=0.2)
        assert raised.value.kind == "timeout"
        await asyncio.wait_for(ended.wait(), LIMIT_S)


async def test_names_that_are_not_there_and_ports_that_nobody_has() -> None:
    def resolve(host: str, _: int) -> list[str]:
        raise OSError("no such name")

    one = client("http://nowhere.test/", resolve=resolve)
    with pytest.raises(NoAnswer) as raised:
        await one.send("POST", {}, b"", timeout_s=LIMIT_S)
    assert raised.value.kind == "dns"

    async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    async with server(nobody) as port:
        pass
    with pytest.raises(NoAnswer) as raised:
        await client(f"http://127.0.0.1:{port}/").send("POST", {}, b"", timeout_s=LIMIT_S)
    assert raised.value.kind == "connect"


async def test_tls_is_verified_against_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.server("server", "hook.test")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    serve, _ = answering(OK)
    async with server(serve, tls) as port:
        for name, context, kind in (
            ("hook.test", trusting, ""),
            ("other.test", trusting, "tls"),
            ("hook.test", ssl.create_default_context(), "tls"),
        ):
            target = LOOPBACK.target(f"https://{name}:{port}/")
            one = Client(target, LOOPBACK, context, resolve=lambda *_: ["127.0.0.1"])
            if kind:
                with pytest.raises(NoAnswer) as raised:
                    await one.send("POST", {}, b"", timeout_s=LIMIT_S)
                assert raised.value.kind == kind
            else:
                assert (await one.send("POST", {}, b"", timeout_s=LIMIT_S)).status == 200
            one.close()
