"""Cost of many MQTT clients: memory, CPU and time of one gateway, or of Mosquitto.

python -m bench.mqtt_scale [WHAT ...] [--scale F] [--broker mosquitto]

    sessions    100,000 sessions with 10 filters each, connected in turn, then away: memory of each, what a
                publish costs that one of them gets, how long a restart takes
    idle        10,000 connections that say nothing: memory of each, accepted per second
    fanout      1 publisher, 1,000 subscribers at QoS 0
    fanin       1,000 publishers, 1 subscriber at QoS 0
    wildcards   50,000 filters with a wildcard, of 50 clients; each message matches one
    retained    1,000,000 retained topics of 200 bytes: memory of each, restart, a wildcard SUBSCRIBE of 1,000

`--scale 0.1` does a tenth of each. Memory is the growth of the resident set of the gateway's process; CPU is
its user and system time. The client is this process, in plain sockets; the figures are the broker's.
Mosquitto runs as Debian packages it, but for its limit of queued messages, which would make it drop some;
`sessions` and `retained` restart the gateway and are for it alone.
"""

from __future__ import annotations

import argparse
import resource
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cpu import cpu_seconds, resident_bytes
from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker, Gateway, Mosquitto

NEVER = b"\x11\xff\xff\xff\xff"
PIPELINE = 256


class Client:
    """A blocking connection."""

    def __init__(self, port: int, client_id: str, *, clean: bool = True, props: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.packets: list[f.Packet] = []
        self.send(f.connect(client_id, version=5, clean=clean, props=props))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> list[f.Packet]:
        """The next `count` packets."""
        while len(self.packets) < count:
            data = self.socket.recv(1 << 18)
            assert data, "the gateway closed the connection"
            packets, self.rest = f.split(self.rest + data)
            self.packets += packets
        found, self.packets = self.packets[:count], self.packets[count:]
        return found

    def close(self) -> None:
        self.socket.close()


@contextmanager
def gateway(**settings: str) -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory() as folder:
        made = Gateway(Path(folder) / "data", settings=settings)
        with made:
            yield made


@contextmanager
def broker(name: str) -> Iterator[Broker]:
    """The gateway, or Mosquitto."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        options = ("max_queued_messages 0", "max_inflight_messages 0")
        made = Gateway(path) if name == "penstock" else Mosquitto(path, options=options)
        with made:
            yield made


def say(what: str, value: float, unit: str) -> None:
    print(f"  {what:<46} {value:>12,.2f} {unit}", flush=True)


def sessions(scale: float) -> None:
    count, filters = int(100_000 * scale), 10
    with gateway() as made:
        before, began, cpu = resident_bytes(made.pid), time.perf_counter(), cpu_seconds(made.pid)
        for start in range(0, count, PIPELINE):
            some = []
            for i in range(start, min(start + PIPELINE, count)):
                client = Client(made.mqtt_port, f"device-{i:06}", clean=False, props=NEVER)
                topics = [(f"site/{i % 100}/device/{i}/{j}", 1) for j in range(filters)]
                client.send(f.subscribe(1, *topics, version=5))
                some.append(client)
            for client in some:
                client.read(2)
                client.close()
        took = time.perf_counter() - began
        say("sessions made, with 10 filters each", count / took, "per second")
        say("CPU of making one", (cpu_seconds(made.pid) - cpu) / count * 1e6, "us")
        say("memory of one", (resident_bytes(made.pid) - before) / count, "bytes")
        publisher = Client(made.mqtt_port, "publisher")
        publisher.read(1)
        total = min(count, 20_000)
        cpu, began = cpu_seconds(made.pid), time.perf_counter()
        for start in range(0, total, PIPELINE):
            ids = range(start, min(start + PIPELINE, total))
            publisher.send(
                b"".join(
                    f.publish(
                        f"site/{i % 100}/device/{i}/3", b"x" * 100, qos=1, packet_id=i % 60000 + 1, props=b""
                    )
                    for i in ids
                )
            )
            publisher.read(len(ids))
        took = time.perf_counter() - began
        say("QoS 1 to one session each, new topics", total / took, "per second")
        say("CPU of one", (cpu_seconds(made.pid) - cpu) / total * 1e6, "us")
        publisher.close()
        began = time.perf_counter()
        made.restart()
        say("stop and start again", time.perf_counter() - began, "s")
        say("memory of one, after it", (resident_bytes(made.pid) - before) / count, "bytes")


def idle(scale: float, name: str) -> None:
    count = int(10_000 * scale)
    with broker(name) as made:
        warm = [Client(made.mqtt_port, f"warm-{i}") for i in range(20)]
        for client in warm:
            client.read(1)
        before, began = resident_bytes(made.pid), time.perf_counter()
        clients: list[Client] = []
        for start in range(0, count, PIPELINE):
            some = [Client(made.mqtt_port, f"c-{i}") for i in range(start, min(start + PIPELINE, count))]
            for client in some:
                client.read(1)
            clients += some
        took = time.perf_counter() - began
        say("connections accepted, CONNECT answered", count / took, "per second")
        say("memory of one", (resident_bytes(made.pid) - before) / count, "bytes")
        for client in clients + warm:
            client.close()


def _drain(clients: list[Client], expected: int) -> float:
    """Read until `expected` bytes came in all; the time of the last ones."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.socket.setblocking(False)
            selector.register(client.socket, selectors.EVENT_READ)
        got = 0
        while got < expected:
            for key, _ in selector.select(10):
                got += len(key.fileobj.recv(1 << 18))  # type: ignore[union-attr]
    return time.perf_counter()


def fanout(scale: float, name: str) -> None:
    count, messages = int(1000 * scale), 500
    with broker(name) as made:
        subscribers = [Client(made.mqtt_port, f"s-{i}") for i in range(count)]
        for client in subscribers:
            client.send(f.subscribe(1, ("news/#", 0), version=5))
            client.read(2)
        publisher = Client(made.mqtt_port, "p")
        publisher.read(1)
        packet = f.publish("news/today", b"x" * 100, props=b"")
        cpu, began = cpu_seconds(made.pid), time.perf_counter()
        for _ in range(0, messages, 10):
            publisher.send(packet * 10)
        took = _drain(subscribers, len(packet) * messages * count) - began
        say("deliveries", messages * count / took, "per second")
        say("CPU of one", (cpu_seconds(made.pid) - cpu) / (messages * count) * 1e6, "us")


def fanin(scale: float, name: str) -> None:
    count, each = int(1000 * scale), 200
    with broker(name) as made:
        subscriber = Client(made.mqtt_port, "s")
        subscriber.send(f.subscribe(1, ("in/#", 0), version=5))
        subscriber.read(2)
        publishers = [Client(made.mqtt_port, f"p-{i}") for i in range(count)]
        for client in publishers:
            client.read(1)
        packets = [f.publish(f"in/{i:04}", b"x" * 100, props=b"") for i in range(count)]
        cpu, began = cpu_seconds(made.pid), time.perf_counter()
        for _ in range(each // 10):
            for client, packet in zip(publishers, packets, strict=True):
                client.send(packet * 10)
        took = _drain([subscriber], sum(map(len, packets)) * each) - began
        say("messages", count * each / took, "per second")
        say("CPU of one", (cpu_seconds(made.pid) - cpu) / (count * each) * 1e6, "us")


def wildcards(scale: float, name: str) -> None:
    clients, each = 50, int(1000 * scale)
    with broker(name) as made:
        before, began = resident_bytes(made.pid), time.perf_counter()
        subscribers = [Client(made.mqtt_port, f"s-{i}") for i in range(clients)]
        for i, client in enumerate(subscribers):
            for start in range(0, each, 100):
                topics = [(f"plant/{i}/+/{j}/#", 0) for j in range(start, min(start + 100, each))]
                client.send(f.subscribe(1, *topics, version=5))
                client.read(1)
            client.read(1)
        count = clients * each
        say("filters subscribed", count / (time.perf_counter() - began), "per second")
        say("memory of one", (resident_bytes(made.pid) - before) / count, "bytes")
        publisher = Client(made.mqtt_port, "p")
        publisher.read(1)
        for what in ("first messages of 10,000 topics", "further messages of them"):
            packets = [
                f.publish(f"plant/{i % clients}/x{i}/{i * 7 % each}/v", b"x" * 100, props=b"")
                for i in range(10_000)
            ]
            cpu, began = cpu_seconds(made.pid), time.perf_counter()
            for start in range(0, len(packets), PIPELINE):
                publisher.send(b"".join(packets[start : start + PIPELINE]))
            took = _drain(subscribers, sum(map(len, packets))) - began
            say(what, len(packets) / took, "per second")
            say("CPU of one", (cpu_seconds(made.pid) - cpu) / len(packets) * 1e6, "us")
            for client in subscribers:
                client.socket.setblocking(True)


def retained(scale: float) -> None:
    count = int(1_000_000 * scale)
    with gateway() as made:
        publisher = Client(made.mqtt_port, "p")
        publisher.read(1)
        before, began = resident_bytes(made.pid), time.perf_counter()
        for start in range(0, count, 1000):
            some = range(start, min(start + 1000, count))
            publisher.send(
                b"".join(
                    f.publish(f"state/{i // 1000}/{i}", b"x" * 200, retain=True, props=b"") for i in some
                )
            )
            publisher.send(b"\xc0\0")
            publisher.read(1)
        took = time.perf_counter() - began
        say("retained messages stored", count / took, "per second")
        say("memory of one", (resident_bytes(made.pid) - before) / count, "bytes")
        _subscribe_thousand(made)
        began = time.perf_counter()
        made.restart()
        say("stop and start again", time.perf_counter() - began, "s")
        say("memory of one, after it", (resident_bytes(made.pid) - before) / count, "bytes")
        _subscribe_thousand(made)


def _subscribe_thousand(made: Gateway) -> None:
    client = Client(made.mqtt_port, "s")
    client.read(1)
    began = time.perf_counter()
    client.send(f.subscribe(1, ("state/0/+", 0), version=5))
    client.read(1001)
    say("a wildcard SUBSCRIBE that gets 1,000 of them", (time.perf_counter() - began) * 1000, "ms")
    client.close()


BOTH: dict[str, Callable[[float, str], None]] = {
    "idle": idle,
    "fanout": fanout,
    "fanin": fanin,
    "wildcards": wildcards,
}
ALONE: dict[str, Callable[[float], None]] = {"sessions": sessions, "retained": retained}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"of {', '.join([*BOTH, *ALONE])}; nothing = all")
    parser.add_argument("--broker", choices=["penstock", "mosquitto"], default="penstock")
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    others = list(ALONE) if arguments.broker == "penstock" else []
    for name in arguments.what or [*BOTH, *others]:
        print(name, flush=True)
        if name in BOTH:
            BOTH[name](arguments.scale, arguments.broker)
        elif name in others:
            ALONE[name](arguments.scale)
        else:
            parser.error(f"{name} is not there for {arguments.broker}")


if __name__ == "__main__":
    main()
