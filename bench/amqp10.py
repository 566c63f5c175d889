"""AMQP 1.0 beside Debian's RabbitMQ 3.10 with its plug-in: python -m bench.amqp10

    --seconds S     of each measurement
    --size N        bytes of a message's body
    --frames N      in which a message is sent
    --root FOLDER   a Debian with RabbitMQ 4 in it, which is measured, too; needs root. It is made by
                    mmdebstrap --variant=minbase --include=rabbitmq-server trixie FOLDER

One publisher and one consumer on one durable queue, durable messages, settled or not. Clients are bare
sockets that count frames, so the broker is what is busy. The figure is the CPU time of the broker for each
message that was published and delivered.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Mapping
from ctypes import c_int64
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pika

from bench.cpu import cpu_seconds, wait_until_idle
from penstock.protocols.amqp10.codec.frames import (
    HEADER,
    SASL,
    SASL_HEADER,
    encode_frame,
    encode_transfer,
    read_frame,
)
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
)
from penstock.protocols.amqp10.messages import sections as s
from tests.support.brokers import Broker, Gateway, RabbitMQ

_WINDOW = 10_000
"""Unsettled messages of the publisher, and credit of the consumer, as those of `bench.light`."""
_AT_ONCE = 500
"""Messages that the publisher sends at once, at most."""
_HUGE = 2**31 - 1
_fork = multiprocessing.get_context("fork")


class Peer:
    """A connection with one session and one link."""

    def __init__(self, port: int, end: Any, *, settled: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.rest = b""
        self.first_id = 0
        """Of the transfers that come."""
        self.socket.sendall(SASL_HEADER)
        self.read(8)
        self.socket.sendall(encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest"), kind=SASL))
        while not isinstance(self.frame()[0], SaslOutcome):
            pass
        receives = isinstance(end, Source)
        attach = Attach(
            "bench",
            0,
            receives,
            1 if settled else 0,
            source=end if receives else Source("bench"),
            target=Target("bench") if receives else end,
            initial_delivery_count=None if receives else 0,
        )
        open_ = encode_frame(0, Open("bench", "localhost", max_frame_size=65536))
        begin = encode_frame(0, Begin(None, 0, _HUGE, _HUGE))
        self.socket.sendall(HEADER + open_ + begin + encode_frame(0, attach))
        self.read(8)
        while not isinstance(answer := self.frame()[0], Attach):
            if isinstance(answer, Begin):
                self.first_id = answer.next_outgoing_id

    def read(self, size: int) -> bytes:
        while len(self.rest) < size:
            self.more()
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def more(self) -> None:
        part = self.socket.recv(1 << 18)
        if not part:
            raise EOFError("the broker closed the connection")
        self.rest += part

    def transfers(self) -> int:
        """How many transfers have come; other frames are left out."""
        at, data, count = 0, self.rest, 0
        while len(data) - at >= 11 and len(data) - at >= (size := int.from_bytes(data[at : at + 4], "big")):
            count += data[at + 8 : at + 11] == b"\x00\x53\x14"
            at += size
        self.rest = data[at:]
        return count

    def frame(self) -> tuple[Any, bytes]:
        """The next performative and its payload."""
        while (found := read_frame(self.rest, 0, len(self.rest), 1 << 20)) is None:
            self.more()
        self.rest = self.rest[found[0] :]
        if isinstance(found[3], Close | End | Detach):
            raise EOFError(f"the broker ended it: {found[3]}")
        return found[3], found[4]


class Frames:
    """Transfers, made once: their ids, which are their tags, too, are all that differs between messages."""

    def __init__(self, *, settled: bool, size: int, frames: int = 1) -> None:
        payload = s.encode_section(s.HEADER, [True]) + s.encode_section(s.DATA, bytes(size))
        cuts = [len(payload) * i // frames for i in range(frames + 1)]
        parts = [payload[low:high] for low, high in pairwise(cuts)]
        frame = encode_transfer(0, 0, 2**32 - 1, settled, frames > 1, parts[0])
        for at, part in enumerate(parts[1:], 2):
            frame += encode_transfer(0, 0, None, settled, at < frames, part)
        self._size = len(frame)
        self._frames = memoryview(bytearray(frame * _AT_ONCE))
        at = frame.index(b"\xff\xff\xff\xff")
        self._ids = [(i * len(frame) + at, i * len(frame) + at + 6) for i in range(_AT_ONCE)]

    def numbered(self, first: int, count: int) -> memoryview:
        """Those of `count` messages from number `first` on; valid until the next call."""
        frames = self._frames
        for number, (at, tag_at) in enumerate(self._ids[:count], first):
            frames[at : at + 4] = frames[tag_at : tag_at + 4] = number.to_bytes(4, "big")
        return frames[: count * self._size]


def publish(port: int, address: str, settled: bool, size: int, frames: int, counts: Any) -> None:
    """Send until the process is ended."""
    peer = Peer(port, Target(address), settled=settled)
    made = Frames(settled=settled, size=size, frames=frames)
    credit = outstanding = sent = 0
    while True:
        room = credit if settled else min(credit, _WINDOW - outstanding)
        if room > 0:
            n = min(room, _AT_ONCE)
            peer.socket.sendall(made.numbered(sent, n))
            sent, credit, outstanding = sent + n, credit - n, outstanding + n
            counts[0] = sent
            continue
        performative, _ = peer.frame()
        if isinstance(performative, Flow) and performative.link_credit is not None:
            credit = (performative.delivery_count or 0) + performative.link_credit - sent
        elif isinstance(performative, Disposition):
            last = performative.first if performative.last is None else performative.last
            outstanding -= last - performative.first + 1


def consume(port: int, address: str, settled: bool, counts: Any) -> None:
    """Receive until the process is ended."""
    peer = Peer(port, Source(address), settled=settled)
    got = told = accepted = 0
    peer.socket.sendall(encode_frame(0, Flow(peer.first_id, _HUGE, 0, _HUGE, 0, 0, _WINDOW)))
    while True:
        got += peer.transfers()
        if got - accepted >= _WINDOW // 4 and not settled:
            peer.socket.sendall(encode_frame(0, Disposition(True, accepted, got - 1, True, Accepted())))
            accepted = got
        if got - told >= _WINDOW // 2:
            told = got
            flow = Flow((peer.first_id + got) % 2**32, _HUGE, 0, _HUGE, 0, got, _WINDOW)
            peer.socket.sendall(encode_frame(0, flow))
        counts[1] = got
        peer.more()


def measure(
    broker: Broker, address: str, *, settled: bool, size: int, frames: int, seconds: float
) -> tuple[float, float]:
    """Messages per second, and the broker's CPU in microseconds for each."""
    name = f"bench-{settled}-{size}"
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port)) as connection:
        connection.channel().queue_declare(name, durable=True)
    counts = _fork.RawArray(c_int64, 2)
    place = broker.amqp_port, address.format(name), settled
    roles = [
        _fork.Process(target=consume, args=(*place, counts), daemon=True),
        _fork.Process(target=publish, args=(*place, size, frames, counts), daemon=True),
    ]
    for role in roles:
        role.start()
    try:
        end = time.monotonic() + 60
        while counts[1] < 1000:
            if time.monotonic() > end or not all(role.is_alive() for role in roles):
                raise RuntimeError(f"{broker.name}: no messages came")
            time.sleep(0.01)
        began, cpu, first = time.monotonic(), cpu_seconds(broker.pid), counts[1]
        time.sleep(seconds)
        passed, used, moved = time.monotonic() - began, cpu_seconds(broker.pid) - cpu, counts[1] - first
    finally:
        for role in roles:
            role.terminate()
            role.join()
    return moved / passed, used / max(moved, 1) * 1e6


class NewerRabbitMQ(RabbitMQ):
    """RabbitMQ 4 of another Debian, with AMQP 1.0 in its core."""

    name = "rabbitmq4"

    def __init__(self, root: Path, folder: Path) -> None:
        """`root`: that Debian; `folder`, inside it: where the broker's files go."""
        super().__init__(folder)
        self._root = root

    def command(self) -> list[str]:
        script = next(self._root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
        return ["chroot", str(self._root), f"/{script.relative_to(self._root)}"]

    def environment(self) -> Mapping[str, str]:
        found = super().environment()
        return {name: value.removeprefix(str(self._root)) for name, value in found.items()}

    def version(self) -> str:
        place = next(self._root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
        return place.name.partition("-")[2]


COMPARABLE: Final = 1000
"""Messages per second below which CPU time says little about a message."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.amqp10", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--frames", type=int, default=1)
    parser.add_argument("--only", choices=("penstock", "rabbitmq", "rabbitmq4"))
    parser.add_argument("--root", type=Path)
    options = parser.parse_args()
    cpu: dict[tuple[str, bool], float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-amqp10-") as folder:
        brokers: list[tuple[Broker, str]] = [
            (Gateway(Path(folder, "penstock")), "/queues/{}"),
            (RabbitMQ(Path(folder, "rabbitmq"), plugins=("rabbitmq_amqp1_0",)), "/amq/queue/{}"),
        ]
        if options.root is not None:
            place = tempfile.mkdtemp(prefix="bench-amqp10-", dir=options.root / "tmp")
            brokers.append((NewerRabbitMQ(options.root, Path(place)), "/queues/{}"))
        for broker, address in brokers:
            if options.only not in (None, broker.name):
                continue
            with broker:
                wait_until_idle(broker.pid)
                for settled in (False, True):
                    rate, used = measure(
                        broker,
                        address,
                        settled=settled,
                        size=options.size,
                        frames=options.frames,
                        seconds=options.seconds,
                    )
                    word = "settled" if settled else "unsettled"
                    if rate < COMPARABLE:
                        print(f"{broker.name:9} {word:9} {rate:9,.0f} messages/s: too few to compare")
                        continue
                    cpu[broker.name, settled] = used
                    print(f"{broker.name:9} {word:9} {rate:9,.0f} messages/s {used:8.1f} us of CPU each")
    for other, settled in itertools.product(("rabbitmq", "rabbitmq4"), (False, True)):
        if ("penstock", settled) in cpu and (other, settled) in cpu:
            word = "settled" if settled else "unsettled"
            times = cpu[other, settled] / cpu["penstock", settled]
            print(f"{word}: {times:.1f} times the messages of {other}")


if __name__ == "__main__":
    main()
