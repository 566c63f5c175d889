"""CPU of the gateway per request over HTTP; and a peer that means harm.

    python -m bench.micro_http [--requests 3000]

A gateway of its own; one connection; each request publishes one JSON message of 344 bytes into a queue and is
answered when it is written. Prints microseconds of the gateway's CPU per request (user and system, all
threads), beside a pull of one message and a request for /api/whoami; then what a rapid reset (HEADERS and
RST_STREAM, again and again) costs until the connection is closed. The client's CPU is not counted.
"""

from __future__ import annotations

import argparse
import base64
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import h2.connection
import h2.events
import hpack

from bench.cpu import cpu_seconds
from tests.support.brokers import Gateway

AUTHORIZATION = "Basic " + base64.b64encode(b"guest:guest").decode()
BODY = b'{"value": "' + b"x" * 331 + b'"}'
PUBLISH = "/v1/vhosts/%2F/queues/bench/messages?ack=written"
PULL = "/v1/vhosts/%2F/queues/bench/pull"
ONE = b'{"max_messages":1,"wait_ms":0,"lease_ms":3600000}'


def http1(port: int, head: str, body: bytes, count: int) -> None:
    """`count` requests, one after the other."""
    request = (
        f"{head} HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTHORIZATION}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(count):
            connection.sendall(request)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 20"), answer
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(65536)


def http2(port: int, method: str, path: str, body: bytes, count: int) -> None:
    """`count` requests, one after the other."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    headers = [
        (":method", method),
        (":path", path),
        (":scheme", "http"),
        (":authority", "x"),
        ("authorization", AUTHORIZATION),
        ("content-type", "application/json"),
    ]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(count):
            stream = client.get_next_available_stream_id()
            client.send_headers(stream, headers, end_stream=not body)
            if body:
                client.send_data(stream, body, end_stream=True)
            connection.sendall(client.data_to_send())
            done = False
            while not done:
                for event in client.receive_data(connection.recv(65536)):
                    if isinstance(event, h2.events.DataReceived):
                        client.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                    done = done or isinstance(event, h2.events.StreamEnded)
                connection.sendall(client.data_to_send())


def rapid_reset(port: int) -> int:
    """Reset streams until the connection is closed; how many bytes were sent."""
    encoder = hpack.Encoder()
    fields = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
    block = bytes(encoder.encode(fields))

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    sent = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        try:
            for stream in range(1, 200_001, 2):
                data = frame(1, 5, stream, block) + frame(3, 0, stream, b"\0\0\0\10")
                connection.sendall(data)
                sent += len(data)
        except OSError:
            return sent
    raise SystemExit("the flood was not stopped")


def main() -> None:
    parser = argparse.ArgumentParser(description="What HTTP costs the gateway.")
    parser.add_argument("--requests", type=int, default=3000)
    count = parser.parse_args().requests
    settings = {"http.listen": "127.0.0.1:0", "management.listen": "127.0.0.1:0", "server.log_level": "error"}
    with tempfile.TemporaryDirectory() as folder, Gateway(Path(folder), settings=settings) as gateway:
        data, management = gateway.ports["http"], gateway.ports["management"]
        http1(management, "PUT /api/queues/%2F/bench", b'{"durable":true}', 1)
        runs: tuple[tuple[str, Callable[[], None]], ...] = (
            ("publish, HTTP/1.1", lambda: http1(data, f"POST {PUBLISH}", BODY, count)),
            ("publish, HTTP/2", lambda: http2(data, "POST", PUBLISH, BODY, count)),
            ("pull, HTTP/1.1", lambda: http1(data, f"POST {PULL}", ONE, count)),
            ("pull, HTTP/2", lambda: http2(data, "POST", PULL, ONE, count)),
            ("whoami, HTTP/1.1", lambda: http1(management, "GET /api/whoami", b"", count)),
            ("whoami, HTTP/2", lambda: http2(management, "GET", "/api/whoami", b"", count)),
        )
        runs[0][1]()  # warm
        print("us of CPU per request")
        for name, run in runs:
            before = cpu_seconds(gateway.pid)
            run()
            print(f"{name:<20}{(cpu_seconds(gateway.pid) - before) / count * 1e6:8.0f}")
        before = cpu_seconds(gateway.pid)
        connections = 100
        sent = sum(rapid_reset(data) for _ in range(connections)) / connections
        each_ms = (cpu_seconds(gateway.pid) - before) / connections * 1000
        print(f"rapid reset: closed after {sent / 1024:.0f} KiB, {each_ms:.1f} ms of CPU per connection")


if __name__ == "__main__":
    main()
