"""Cost of TLS: handshakes, bytes and lone messages, through our layer and through the event loop's own.

    python -m bench.micro_tls [SECONDS]

One process runs the listener; the client is a blocking socket in another process, so that its work is not
counted. Prints handshakes (CPU of the server each), throughput into one connection,
and the round trip of a 64-byte message.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from penstock.protocols.net.connection_context import Limits
from penstock.protocols.tls.contexts import Tls, TlsOptions
from tests.support import echo
from tests.support.certificates import Authority

CHUNK = 256 * 1024


class Echo(asyncio.BufferedProtocol):
    """Sends back small reads; counts and drops large ones. The buffer is shared, as the gateway's is."""

    buffer = memoryview(bytearray(CHUNK))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if nbytes <= 64:
            self.transport.write(bytes(self.buffer[:nbytes]))  # type: ignore[attr-defined]

    def secured(self, user: str | None) -> None:
        pass

    def close(self, reason: str) -> None:
        self.transport.close()

    abort = close


class Bounce(echo.Echo):
    """The same as a connection of the gateway."""

    def on_open(self) -> None:
        self.trusted = True

    def received(self, buffer: bytearray, size: int) -> int:
        if size <= 64:
            self.out.write(memoryview(buffer)[:size])
            self.dirty()
        return size


async def _serve(way: str, folder: Path, pipe: Pipe, stop: Callable[[], object]) -> None:
    pair = Authority(folder).server()
    tls = Tls(TlsOptions(cert_file=str(pair.cert), key_file=str(pair.key)))
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        if way == "ours":
            served = echo.EchoServer(Limits(greeting_timeout_s=3600.0), kind=Bounce, tls=tls.layer())
            stack.push_async_callback(served.listener.drain, 0.0)
            pipe.send(served.listener.port)
        else:
            context = tls.context() if way == "uvloop" else None
            server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=context)
            stack.callback(server.close)
            pipe.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, stop)
        pipe.send(time.process_time())


def _child(way: str, folder: Path, pipe: Pipe) -> None:
    uvloop.run(_serve(way, folder, pipe, pipe.recv))


def _connect(way: str, port: int, context: ssl.SSLContext) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if way == "plain" else context.wrap_socket(plain, server_hostname="localhost")


def _in_server(way: str, work: Callable[[int, ssl.SSLContext], float]) -> tuple[float, float]:
    """(what `work` returned, CPU seconds of the server)."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=_child, args=(way, Path(folder), theirs))
        child.start()
        port = ours.recv()
        before = _cpu(child.pid or 0)
        result = work(port, ssl.create_default_context(cafile=str(Path(folder) / "test-CA.pem")))
        cpu = _cpu(child.pid or 0) - before
        ours.send(None)
        ours.recv()
        child.join()
        return result, cpu


def _cpu(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


def _handshakes(way: str, count: int, port: int, context: ssl.SSLContext) -> float:
    started = time.perf_counter()
    for _ in range(count):
        _connect(way, port, context).close()
    return (time.perf_counter() - started) / count


def _stream(way: str, seconds: float, port: int, context: ssl.SSLContext) -> float:
    data = bytes(CHUNK)
    sent = 0
    with _connect(way, port, context) as client:
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            client.sendall(data)
            sent += len(data)
        return sent / (time.perf_counter() - started)


def _pings(way: str, seconds: float, port: int, context: ssl.SSLContext) -> float:
    times: list[float] = []
    with _connect(way, port, context) as client:
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            client.sendall(bytes(64))
            client.recv(64)
            times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def main(seconds: float) -> None:
    print(f"{'':8} {'handshake':>14} {'in, MB/s':>10} {'CPU ns/KB':>10} {'64 B round trip':>16}")
    for way in ("plain", "ours", "uvloop"):
        count = int(200 * seconds)
        _, handshakes = _in_server(way, partial(_handshakes, way, count))
        rate, cpu = _in_server(way, partial(_stream, way, seconds))
        ping, _ = _in_server(way, partial(_pings, way, seconds))
        per_kb = cpu / (rate * seconds / 1024) * 1e9
        shake = handshakes / count * 1e6
        print(f"{way:8} {shake:8.0f} us CPU {rate / 1e6:10.0f} {per_kb:10.0f} {ping * 1e6:13.1f} us")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
