"""Cost of a message published or pulled over HTTP: penstock, RabbitMQ's management API, a FastAPI handler.

    python -m bench.compare_http [--requests 4000] [--connections 16] [--only NAME]    needs the extra `bench`

Each server is started here on a free port of loopback and gets the same 344 bytes in a JSON body,
from 16 connections with one request at a time each, over HTTP/1.1 and, where the server has it,
HTTP/2 (uvicorn has not). RabbitMQ and penstock keep the message in a durable queue; the answer of
penstock comes when it is written (`?ack=written`), as RabbitMQ's does; the handler of FastAPI
(uvicorn) parses the body into a model and appends it to a list. Prints microseconds of CPU of the
server's process per request (user and system, all threads). The client's CPU is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import uvloop

from bench.cpu import cpu_seconds
from bench.micro_http import AUTHORIZATION
from tests.support.brokers import BrokerMissing, Gateway, RabbitMQ, free_port

TEXT = "x" * 331
APP = """
from fastapi import FastAPI
from pydantic import BaseModel

app, kept = FastAPI(), []

class Message(BaseModel):
    value: str

@app.post("/publish")
async def publish(message: Message) -> dict[str, int]:
    kept.append(message.value)
    return {"id": len(kept)}
"""


def load(port: int, path: str, body: bytes, count: int, connections: int) -> None:
    """POST `body` so often, from so many connections."""
    request = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTHORIZATION}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count // connections):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 20"), head
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)
        writer.close()

    async def all_() -> None:
        await asyncio.gather(*(one() for _ in range(connections)))

    uvloop.run(all_())


def load_http2(port: int, path: str, body: bytes, count: int, connections: int) -> None:
    """The same over HTTP/2 by prior knowledge, one stream at a time on each connection."""
    headers = {"authorization": AUTHORIZATION, "content-type": "application/json"}

    async def one() -> None:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", http1=False, http2=True, timeout=60
        ) as client:
            for _ in range(count // connections):
                answer = await client.post(path, content=body, headers=headers)
                assert answer.is_success and answer.http_version == "HTTP/2", answer
                await answer.aread()

    async def all_() -> None:
        await asyncio.gather(*(one() for _ in range(connections)))

    uvloop.run(all_())


def measured(name: str, pid: int, count: int, run: Callable[[int], None]) -> None:
    run(count // 4)  # warm
    before = cpu_seconds(pid)
    run(count)
    print(f"{name:<40}{(cpu_seconds(pid) - before) / count * 1e6:8.0f}")


def penstock(count: int, connections: int) -> None:
    options = {
        "http.listen": "127.0.0.1:0",
        "management.listen": "127.0.0.1:0",
        "server.log_level": "error",
    }
    body = f'{{"value": "{TEXT}"}}'.encode()
    with tempfile.TemporaryDirectory() as folder, Gateway(Path(folder), settings=options) as gateway:
        url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}/api/queues/%2F/bench"
        assert httpx.put(url, json={"durable": True}).is_success
        port, path = gateway.ports["http"], "/v1/vhosts/%2F/queues/bench/"
        pid = gateway.pid
        publish = f"{path}messages?ack=written"
        measured("penstock, publish", pid, count, lambda n: load(port, publish, body, n, connections))
        measured(
            "penstock, publish, HTTP/2", pid, count, lambda n: load_http2(port, publish, body, n, connections)
        )
        pull = b'{"max_messages": 1, "wait_ms": 0}'
        measured(
            "penstock, pull of one", pid, count, lambda n: load(port, path + "pull", pull, n, connections)
        )
        measured(
            "penstock, pull of one, HTTP/2",
            pid,
            count,
            lambda n: load_http2(port, path + "pull", pull, n, connections),
        )


def rabbitmq(count: int, connections: int) -> None:
    body = (
        '{"properties": {"delivery_mode": 2}, "routing_key": "bench", "payload_encoding": "string", '
        f'"payload": "{TEXT}"}}'
    ).encode()
    with tempfile.TemporaryDirectory() as folder:
        try:
            peer = RabbitMQ(Path(folder), plugins=("rabbitmq_management",))
        except BrokerMissing as missing:
            print(missing)
            return
        with peer:
            port = peer.management_port
            base = f"http://guest:guest@127.0.0.1:{port}/api/"
            assert httpx.put(f"{base}queues/%2F/bench", json={"durable": True}, timeout=60).is_success
            publish, get = "/api/exchanges/%2F/amq.default/publish", "/api/queues/%2F/bench/get"
            measured(
                "RabbitMQ, publish", peer.pid, count, lambda n: load(port, publish, body, n, connections)
            )
            measured(
                "RabbitMQ, publish, HTTP/2",
                peer.pid,
                count,
                lambda n: load_http2(port, publish, body, n, connections),
            )
            taken = b'{"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}'
            measured(
                "RabbitMQ, get of one", peer.pid, count, lambda n: load(port, get, taken, n, connections)
            )
            measured(
                "RabbitMQ, get of one, HTTP/2",
                peer.pid,
                count,
                lambda n: load_http2(port, get, taken, n, connections),
            )


def fastapi(count: int, connections: int) -> None:
    port, body = free_port(), f'{{"value": "{TEXT}"}}'.encode()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.py").write_text(APP)
        words = ["uvicorn", "app:app", "--port", str(port), "--no-access-log", "--log-level", "error"]
        server = subprocess.Popen([sys.executable, "-m", *words], cwd=folder)
        try:
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/")
                    break
                except httpx.ConnectError:
                    if server.poll() is not None:
                        raise SystemExit("uvicorn ended; install the extra: pip install '.[bench]'") from None
                    time.sleep(0.1)
            name = "FastAPI on uvicorn, a list"
            measured(name, server.pid, count, lambda n: load(port, "/publish", body, n, connections))
        finally:
            server.kill()
            server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="What a message over HTTP costs.")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=16)
    servers = {"penstock": penstock, "fastapi": fastapi, "rabbitmq": rabbitmq}
    parser.add_argument("--only", choices=servers, action="append", help="may be given again")
    parsed = parser.parse_args()
    print("us of CPU per request")
    for name in parsed.only or servers:
        servers[name](parsed.requests, parsed.connections)


if __name__ == "__main__":
    main()
