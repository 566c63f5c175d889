"""Lone messages of many connections, by AMQP 1.0 and by 0-9-1: python -m bench.amqp10_lone

    --connections N     that publish
    --seconds S         of each measurement

Each connection publishes one durable message, waits for its outcome, and publishes the next one. The queue
keeps the newest thousand. The figure is the CPU time of the gateway for each message.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import pika

from bench import load_amqp
from bench.amqp10 import Frames, Peer
from bench.cpu import cpu_seconds, wait_until_idle
from penstock.protocols.amqp10.codec.performatives import Target
from tests.support.brokers import Gateway

QUEUE: Final = "lone"
_SIZE: Final = 100
_DISPOSITION: Final = b"\x00\x53\x15"
_ACK: Final = b"\x00\x3c\x00\x50"
"""Class and method of basic.ack."""
_FRAMES: Final = Frames(settled=False, size=_SIZE)


class Client(NamedTuple):
    """A connection that publishes."""

    socket: socket.socket
    message: Callable[[int], bytes]
    """The bytes of the message of a number."""
    outcome: bytes
    """Bytes that its outcome has."""


def amqp10(port: int) -> Client:
    """By AMQP 1.0."""
    peer = Peer(port, Target(QUEUE), settled=False)
    return Client(peer.socket, _numbered, _DISPOSITION)


@lru_cache(1024)
def _numbered(number: int) -> bytes:
    """Made once for all connections: the turns of a slower load are smaller, and cost the gateway more."""
    return bytes(_FRAMES.numbered(number, 1))


def amqp091(port: int) -> Client:
    """By AMQP 0-9-1, with confirms."""
    client = load_amqp.Client(port)
    client.call(85, 10, b"\0", 11)
    whole = load_amqp.message(QUEUE, _SIZE, durable=True)
    return Client(client.socket, lambda _: whole, _ACK)


def measure(
    gateway: Gateway, count: int, seconds: float, connect: Callable[[int], Client]
) -> tuple[float, float]:
    """Messages per second, and the gateway's CPU in microseconds for each."""
    made = [connect(gateway.amqp_port) for _ in range(count)]
    clients = {client.socket.fileno(): client for client in made}
    wait_until_idle(gateway.pid)
    numbers = dict.fromkeys(clients, 1)
    sent = 0
    began, cpu = time.monotonic(), cpu_seconds(gateway.pid)
    with selectors.DefaultSelector() as selector:
        for client in clients.values():
            selector.register(client.socket, selectors.EVENT_READ)
            client.socket.sendall(client.message(0))
        while time.monotonic() - began < seconds:
            for key, _ in selector.select(1):
                client = clients[key.fd]
                if client.outcome in client.socket.recv(65536):
                    client.socket.sendall(client.message(numbers[key.fd]))
                    numbers[key.fd] += 1
                    sent += 1
    passed, used = time.monotonic() - began, cpu_seconds(gateway.pid) - cpu
    for client in clients.values():
        client.socket.close()
    return sent / passed, used / max(sent, 1) * 1e6


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.amqp10_lone", description=__doc__)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-lone-") as folder, Gateway(Path(folder)) as gateway:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True, arguments={"x-max-length": 1000})
        for name, connect in (("AMQP 0-9-1", amqp091), ("AMQP 1.0", amqp10)) * 2:
            rate, used = measure(gateway, options.connections, options.seconds, connect)
            print(f"{name:10} {rate:9,.0f} messages/s {used:8.1f} us of CPU each", flush=True)


if __name__ == "__main__":
    main()
