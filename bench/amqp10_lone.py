"""Lone messages of many connections, by AMQP 1.0 and by 0-9-1: python -m bench.amqp10_lone

    --connections N     that publish
    --slice S           seconds of a measurement by one of the two protocols, which take turns
    --slices N          by each protocol; the figure of a pair is their median
    --pairs N

Each connection publishes one durable message, waits for its outcome, and publishes the next one. The queue
keeps the newest thousand. One loop in C (`connections/load.c`) is all clients of both protocols: a slower
load would make smaller turns, which cost the gateway more. The clients of both are there at once, and take
turns: a slow second of the machine hits both. The figures are those of the gateway for each message: CPU in
user code and in the kernel, switches of its threads, and system calls where perf can count them.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pika

from bench import load_amqp
from bench.amqp10 import Frames, Peer
from bench.connections.calls import calls_counted
from bench.connections.drive import NUMBER, Clients
from bench.connections.rows import Row
from bench.cpu import wait_until_idle
from penstock.protocols.amqp10.codec.performatives import Flow, Target
from tests.support.brokers import Gateway

QUEUE: Final = "lone"
_SIZE: Final = 100
_DISPOSITION: Final = b"\x00\x53\x15"
_ACK: Final = b"\x00\x3c\x00\x50"
"""Class and method of basic.ack."""
_FRAMES: Final = Frames(settled=False, size=_SIZE)
_TICK_US: Final = 1e6 / os.sysconf("SC_CLK_TCK")


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
    while not isinstance(peer.frame()[0], Flow):
        pass
    assert not peer.rest
    return Client(peer.socket, lambda number: bytes(_FRAMES.numbered(number, 1)), _DISPOSITION)


def amqp091(port: int) -> Client:
    """By AMQP 0-9-1, with confirms."""
    client = load_amqp.Client(port)
    client.call(85, 10, b"\0", 11)
    whole = load_amqp.message(QUEUE, _SIZE, durable=True)
    return Client(client.socket, lambda _: whole, _ACK)


class Used(NamedTuple):
    """CPU time and context switches of a process so far, or for one message."""

    cpu_us: float
    user_us: float
    """Of it, in user code: a share by the clock's ticks, which is exact for long runs only."""
    switches: float
    """Of its threads, which waited or were made to."""

    @classmethod
    def so_far(cls, pid: int) -> Used:
        """Of a process, all threads included."""
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
        cpu_ns = switches = 0
        for task in Path("/proc", str(pid), "task").iterdir():
            cpu_ns += int((task / "schedstat").read_text().split()[0])
            lines = (task / "status").read_text().splitlines()
            switches += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
        return cls(cpu_ns / 1e3, int(fields[11]) * _TICK_US, switches)


class Side:
    """All clients of one protocol, and what the gateway used for them."""

    def __init__(self, gateway: Gateway, protocol: Literal["amqp", "amqp10"], count: int) -> None:
        self._pid = gateway.pid
        row = Row(name=protocol, protocol=protocol, publishers=count, consumers=0, durable=True, size=_SIZE)
        self._clients = Clients(row)
        self._sockets: list[socket.socket] = []
        self.name = "AMQP 1.0" if protocol == "amqp10" else "AMQP 0-9-1"
        self.sent = 0
        self.cpu_us: list[float] = []
        """For a message of each slice."""
        self.used = Used(0, 0, 0)
        self.calls = 0.0
        connect = amqp10 if protocol == "amqp10" else amqp091
        for _ in range(count):
            client = connect(gateway.amqp_port)
            client.socket.setblocking(True)
            self._sockets.append(client.socket)
            self._clients.add_publisher(client.socket, client.message(int.from_bytes(NUMBER, "big")))

    def run(self, seconds: float) -> None:
        """One slice."""
        before = Used.so_far(self._pid)
        sent = self._clients.run(seconds).sent
        used = Used(*(now - then for now, then in zip(Used.so_far(self._pid), before, strict=True)))
        self.sent += sent
        self.cpu_us.append(used.cpu_us / sent)
        self.used = Used(*(one + other for one, other in zip(self.used, used, strict=True)))

    def count_calls(self, seconds: float) -> None:
        """A slice for the system calls alone: counting makes each of them dearer."""
        found: list[int] = []
        with calls_counted(self._pid, found):
            sent = self._clients.run(seconds).sent
        self.calls = found[0] / sent if found else 0.0

    def close(self) -> None:
        """Close the clients' sockets."""
        for one in self._sockets:
            one.close()

    def __str__(self) -> str:
        cpu_us, user_us, switches = (part / self.sent for part in self.used)
        parts = f"{user_us:.2f} user, {cpu_us - user_us:.2f} system"
        counts = f"{switches:.3f} switches, {self.calls:.3f} calls"
        return f"{self.name:10} {cpu_us:6.2f} us of CPU each ({parts}), {counts}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.amqp10_lone", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--slice", type=float, default=0.25)
    parser.add_argument("--slices", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=8)
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory(prefix="bench-lone-") as folder, Gateway(Path(folder)) as gateway:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True, arguments={"x-max-length": 1000})
        for _ in range(options.pairs):
            with ExitStack() as stack:
                old, new = (Side(gateway, name, options.connections) for name in ("amqp", "amqp10"))
                for side in (old, new):
                    stack.callback(side.close)
                    side.count_calls(options.slice)
                wait_until_idle(gateway.pid)
                for i in range(options.slices):
                    for side in (old, new) if i % 2 == 0 else (new, old):
                        side.run(options.slice)
            for side in (old, new):
                print(side, flush=True)
            ratios.append(statistics.median(new.cpu_us) / statistics.median(old.cpu_us))
            print(f"{ratios[-1]:.3f}", flush=True)
    middle, span = statistics.median(ratios), f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"CPU of AMQP 1.0: {middle:.3f} of 0-9-1 ({span})")


if __name__ == "__main__":
    main()
