"""Instructions of the gateway per message or login, counted by Callgrind, here and in another checkout.

python -m bench.instructions [--other CHECKOUT] [--only PATTERN] [--chunks N] [--functions N]

Times on a shared machine differ by a third from run to run; counts of instructions hardly differ. This shows
a loss of 2 % that no run of `bench.compare` can show. It counts user code only: no system call, no cache
miss. Publisher and subscribers take turns: a chunk of equal messages is sent, delivered and answered before
the next one. Rows of logins count clients that connect, log in and leave, eight at a time; in `mqtt_takeover`
each takes the session of the one before it. `--other` names
a checkout whose kernels are built. Callgrind is fifty times slower than the
processor: a row takes about a minute. Needs Debian's package valgrind.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from bench.amqp10_lone import QUEUE as LONE_QUEUE
from bench.amqp10_lone import Client as Lone
from bench.amqp10_lone import amqp091, amqp10
from bench.connections.drive import opened
from bench.connections.logins import AMQP_LOGIN, Script, come_and_go, mqtt_login
from bench.connections.rows import Row
from bench.load import LoadFailed, connect, read_exactly
from bench.load_amqp import CONFIRM_BYTES, UNBLOCKED, Client, message
from bench.load_mqtt import PUBACK_BYTES, open_session, packet, publish_packet, retained_packets, subscribe
from bench.report import machine
from tests.support.brokers import ROOT, Gateway
from tests.support.certificates import Authority

BODY_BYTES = 100
CHUNK_MESSAGES = 200
"""As many as one read takes: with more, the number of reads depends on the load of the machine."""
IN_FLIGHT = 20
"""Deliveries of QoS 1 that a subscriber has unacknowledged, at most."""
TIMEOUT_S = 600.0
_FUNCTION = re.compile(r"\s*([\d,]+) \([^)]*\)\s+\S*?:__pyx_\w+?_8penstock_(\w+)")

Layer: TypeAlias = Literal["tcp", "tls", "ws"]
_LISTENERS: dict[Layer, str] = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws"}
Exchange: TypeAlias = Callable[[], None]
"""Sends one chunk; it returns when all of it is delivered and answered."""


class CountedGateway(Gateway):
    """A gateway of a checkout under Callgrind."""

    start_timeout_s = TIMEOUT_S
    stop_timeout_s = TIMEOUT_S

    def __init__(self, folder: Path, checkout: Path) -> None:
        folder.mkdir(exist_ok=True)
        cert, key = Authority(folder / "certificates").server()
        any_port = dict.fromkeys(("mqtt.tls_listen", "mqtt.ws_listen"), "127.0.0.1:0")
        files = {"tls.cert_file": str(cert), "tls.key_file": str(key)}
        super().__init__(folder / "gateway", settings=any_port | files)
        self._checkout = checkout
        self._dumps = 0

    def command(self) -> list[str]:
        return [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={self.folder}/counts",
            *super().command(),
        ]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(self._checkout / "src"), "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}

    def counted(self) -> Path:
        """The file of what was counted since the last call."""
        self._dumps += 1
        subprocess.run(["callgrind_control", "--dump", str(self.pid)], check=True, capture_output=True)
        return self.folder / f"counts.{self._dumps}"


def _connect(port: int) -> socket.socket:
    """A connection that waits for a gateway under Callgrind."""
    return connect(port, TIMEOUT_S)


def _drop(s: socket.socket, size: int) -> None:
    """Read that many bytes."""
    buffer = bytearray(1 << 18)
    while size:
        got = s.recv_into(buffer, min(size, len(buffer)))
        if not got:
            raise EOFError("closed by the gateway")
        size -= got


def _mqtt(port: int, closing: ExitStack, *, qos: int = 0, subscribers: int = 1) -> Exchange:
    topic, body = f"bench/{qos}/{subscribers}", b"x" * BODY_BYTES
    publisher, *others = (
        closing.enter_context(open_session(port, f"count-{qos}-{subscribers}-{i}", opens=_connect))
        for i in range(subscribers + 1)
    )
    for s in others:
        subscribe(s, topic, qos)
    size = len(publish_packet(topic, body, qos=qos))
    chunk = b"".join(publish_packet(topic, body, qos=qos, packet_id=i + 1) for i in range(CHUNK_MESSAGES))

    def exchange() -> None:
        publisher.sendall(chunk)
        for s in others:
            if not qos:
                _drop(s, len(chunk))
                continue
            for _ in range(CHUNK_MESSAGES // IN_FLIGHT):
                got = s.recv(size * IN_FLIGHT, socket.MSG_WAITALL)
                at = range(size - BODY_BYTES - 2, len(got), size)
                s.sendall(b"".join(packet(0x40, got[i : i + 2]) for i in at))
        if qos:
            _drop(publisher, PUBACK_BYTES * CHUNK_MESSAGES)

    return exchange


def _retained(port: int, closing: ExitStack) -> Exchange:
    """Messages of QoS 1, each retained for a topic of its own."""
    publisher = closing.enter_context(open_session(port, "count-retained", opens=_connect))
    numbers = itertools.count()

    def exchange() -> None:
        some = itertools.islice(numbers, CHUNK_MESSAGES)
        publisher.sendall(retained_packets(some, b"x" * BODY_BYTES))
        _drop(publisher, PUBACK_BYTES * CHUNK_MESSAGES)

    return exchange


def _amqp(port: int, closing: ExitStack, *, durable: bool = False) -> Exchange:
    queue = f"count-{durable}"
    publisher, consumer = (Client(port, capabilities=UNBLOCKED, timeout_s=TIMEOUT_S) for _ in range(2))
    closing.callback(publisher.close)
    closing.callback(consumer.close)
    publisher.declare(queue, durable=durable)
    if durable:
        publisher.call(85, 10, b"\0", 11)
    consumer.consume(queue, no_ack=True)
    one = message(queue, BODY_BYTES, durable=durable)
    publisher.socket.sendall(one)
    stride, sent = 0, 1
    for _ in range(3):  # the frames of one delivery
        size = int.from_bytes(read_exactly(consumer.socket, 7)[3:], "big") + 1
        _drop(consumer.socket, size)
        stride += 7 + size

    def exchange() -> None:
        nonlocal sent
        publisher.socket.sendall(one * CHUNK_MESSAGES)
        sent += CHUNK_MESSAGES
        _drop(consumer.socket, stride * CHUNK_MESSAGES)
        confirmed = 0
        while durable and confirmed < sent:
            confirmed = int.from_bytes(read_exactly(publisher.socket, CONFIRM_BYTES)[11:19], "big")

    return exchange


def _logins(port: int, script: Script, *, overlap: bool = False) -> Exchange:
    window = 1 if overlap else 8

    def exchange() -> None:
        came = come_and_go(script, port, CHUNK_MESSAGES, window=window, overlap=overlap, patience_s=TIMEOUT_S)
        if came.refused:
            raise LoadFailed(f"{came.refused} clients were refused")

    return exchange


def _pairs(gateway: CountedGateway, closing: ExitStack, layer: Layer) -> Exchange:
    """Messages of QoS 1 of many pairs; each publisher waits for its PUBACK."""
    row = Row(name="count", layer=layer, publishers=50, consumers=50, pairs=True, qos=1)
    clients = closing.enter_context(opened(row, gateway.ports[_LISTENERS[layer]]))

    def exchange() -> None:
        clients.run(0, messages=CHUNK_MESSAGES)

    return exchange


def _lone(gateway: CountedGateway, closing: ExitStack, connect: Callable[[int], Lone]) -> Exchange:
    """One message of each of many connections, and its outcome."""
    queue = Client(gateway.amqp_port, timeout_s=TIMEOUT_S)
    closing.callback(queue.close)
    queue.declare(LONE_QUEUE, durable=True)
    clients = [connect(gateway.amqp_port) for _ in range(CHUNK_MESSAGES)]
    for client in clients:
        closing.callback(client.socket.close)
        client.socket.settimeout(TIMEOUT_S)
    numbers = itertools.count()

    def exchange() -> None:
        number = next(numbers)
        for client in clients:
            client.socket.sendall(client.message(number))
        for client in clients:
            while client.outcome not in client.socket.recv(65536):
                pass

    return exchange


ROWS: dict[str, Callable[[CountedGateway, ExitStack], Exchange]] = {
    "mqtt_qos0_1_to_1": lambda gateway, closing: _mqtt(gateway.mqtt_port, closing),
    "mqtt_qos1_1_to_1": lambda gateway, closing: _mqtt(gateway.mqtt_port, closing, qos=1),
    "mqtt_qos0_1_to_10": lambda gateway, closing: _mqtt(gateway.mqtt_port, closing, subscribers=10),
    "mqtt_retained_qos1": lambda gateway, closing: _retained(gateway.mqtt_port, closing),
    "amqp_transient_autoack": lambda gateway, closing: _amqp(gateway.amqp_port, closing),
    "amqp_durable_confirm_autoack": lambda gateway, closing: _amqp(gateway.amqp_port, closing, durable=True),
    "mqtt_login": lambda gateway, _: _logins(gateway.mqtt_port, mqtt_login()),
    "mqtt_takeover": lambda gateway, _: _logins(
        gateway.mqtt_port, mqtt_login(same=True, leaves=False), overlap=True
    ),
    "mqtt_persistent_return": lambda gateway, _: _logins(gateway.mqtt_port, mqtt_login(clean=False)),
    "mqtt_pairs_qos1": lambda gateway, closing: _pairs(gateway, closing, "tcp"),
    "mqtt_pairs_qos1_tls": lambda gateway, closing: _pairs(gateway, closing, "tls"),
    "mqtt_pairs_qos1_ws": lambda gateway, closing: _pairs(gateway, closing, "ws"),
    "amqp_login": lambda gateway, _: _logins(gateway.amqp_port, AMQP_LOGIN),
    "amqp_lone_confirm": lambda gateway, closing: _lone(gateway, closing, amqp091),
    "amqp10_lone_unsettled": lambda gateway, closing: _lone(gateway, closing, amqp10),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Instructions of one row."""

    per_message: float
    """Of a published message, or of a client that logs in and leaves."""
    functions: Counter[str]
    """The same by function of our kernels, without the functions that it calls."""


def _totals(path: Path) -> tuple[int, Counter[str]]:
    """Instructions in a dump, and of each function of our kernels."""
    command = ["callgrind_annotate", "--threshold=100", "--auto=no", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    functions: Counter[str] = Counter()
    total = 0
    for line in text.splitlines():
        if "PROGRAM TOTALS" in line:
            total = int(line.split()[0].replace(",", ""))
        elif found := _FUNCTION.match(line):
            functions[found[2]] += int(found[1].replace(",", ""))
    return total, functions


def count(checkout: Path, names: list[str], chunks: int, folder: Path) -> Iterator[tuple[str, Counts]]:
    """Each row of one checkout."""
    with CountedGateway(folder, checkout) as gateway:
        for name in names:
            with ExitStack() as closing:
                exchange = ROWS[name](gateway, closing)
                for _ in range(3):  # buffers grow, routes are found
                    exchange()
                gateway.counted()
                for _ in range(chunks):
                    exchange()
                total, functions = _totals(gateway.counted())
            messages = chunks * CHUNK_MESSAGES
            yield name, Counts(total / messages, Counter({k: n / messages for k, n in functions.items()}))


def main() -> int:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--other", type=Path, help="a checkout to compare with")
    parser.add_argument("--only", default="*", help="rows whose name has this pattern")
    parser.add_argument(
        "--chunks", type=int, default=100, help=f"chunks of {CHUNK_MESSAGES} messages for each row"
    )
    parser.add_argument(
        "--functions", type=int, default=0, help="print as many functions, those that differ most"
    )
    args = parser.parse_args()
    if shutil.which("callgrind_control") is None:
        print("valgrind is not installed: apt-get install valgrind", file=sys.stderr)
        return 1
    names = fnmatch.filter(ROWS, args.only)
    print(machine())
    checkouts = [*([args.other.resolve()] if args.other else []), ROOT]
    rows: dict[str, list[Counts]] = {name: [] for name in names}
    for checkout in checkouts:
        with tempfile.TemporaryDirectory(prefix="penstock-instructions-") as folder:
            for name, counts in count(checkout, names, args.chunks, Path(folder)):
                rows[name].append(counts)
                print(f"{name:32} {counts.per_message:10,.0f}  {checkout}", flush=True)
    for name, found in rows.items() if args.other else ():
        other, here = found
        print(
            f"{name:32} {other.per_message:10,.0f} {here.per_message:10,.0f}"
            f" {here.per_message / other.per_message:6.3f}"
        )
        here.functions.subtract(other.functions)
        for function, more in sorted(here.functions.items(), key=lambda item: -abs(item[1]))[
            : args.functions
        ]:
            print(f"    {more:+8.1f}  {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
