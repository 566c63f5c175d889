"""CPU of the gateway for each message that a webhook delivers.

    python -m bench.micro_webhooks [--messages 20000]

A gateway and a receiver in a process of its own, which answers 204 and does nothing else; 32 requests at a
time. One message of 344 bytes for each request, and batches of 100 as CloudEvents; both signed (HMAC). Prints
microseconds of CPU of the gateway (user and system, all threads) for each message, and messages per core.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from bench.cpu import cpu_seconds
from tests.support.brokers import ROOT, Gateway

RECEIVER = """
import asyncio, uvloop

class Receiver(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""
    def data_received(self, data):
        self.buffer += data
        while True:
            head, end, rest = self.buffer.partition(b"\\r\\n\\r\\n")
            if not end:
                return
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\\r\\n")[0])
            if len(rest) < size:
                return
            self.buffer = rest[size:]
            self.transport.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

uvloop.run(main())
"""
BODY = "x" * 344


def run(
    client: httpx.Client, gateway: Gateway, name: str, settings: Mapping[str, object], count: int
) -> float:
    """Deliver `count` messages; seconds of the gateway's CPU."""
    hook = f"webhooks/{name}"
    assert client.put(hook, json=settings).status_code == 201
    assert client.post(f"{hook}/pause").status_code == 200
    for at in range(0, count, 1000):
        messages = [{"value": BODY, "routing_key": name}] * min(1000, count - at)
        answer = client.post("exchanges/amq.topic/messages", json={"messages": messages})
        assert answer.status_code == 200
    before = cpu_seconds(gateway.pid)
    assert client.post(f"{hook}/resume").status_code == 200
    while client.get(hook).json()["delivered"] < count:
        time.sleep(0.1)
    return cpu_seconds(gateway.pid) - before


def main() -> None:
    parser = argparse.ArgumentParser(description="What webhooks cost the gateway.")
    parser.add_argument("--messages", type=int, default=20_000)
    count = parser.parse_args().messages
    options = {
        "http.listen": "127.0.0.1:0",
        "webhooks.allow_networks": "127.0.0.0/8",
        "server.log_level": "error",
    }
    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert receiver.stdout is not None
        url = f"http://127.0.0.1:{int(receiver.stdout.readline())}/"
        with tempfile.TemporaryDirectory() as folder, Gateway(Path(folder), settings=options) as gateway:
            base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
            with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=120) as client:
                print("                         us of CPU per message    messages per second and core")
                for name, more in (
                    ("one per request", {"format": "cloudevents-binary"}),
                    ("100 per request", {"format": "cloudevents-batch", "batch": {"max_messages": 100}}),
                ):
                    key = name.replace(" ", "")
                    source = {"exchange": "amq.topic", "routing_key": key}
                    settings = {"source": source, "url": url, "verify": "none", **more}
                    spent = run(client, gateway, key, settings, count)
                    print(f"{name:<25}{spent / count * 1e6:21.0f}{count / spent:32.0f}")
    finally:
        receiver.kill()
        receiver.wait()


if __name__ == "__main__":
    main()
