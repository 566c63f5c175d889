"""Kernels move the messages of many connections: no Python function runs per message or acknowledgement."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pika
import pytest

from bench.amqp10 import Frames, Peer
from bench.connections.drive import opened
from bench.connections.logins import AMQP_LOGIN, Came, Script, come_and_go, mqtt_login
from bench.connections.rows import ROWS, Row
from bench.load import read_exactly
from bench.load_mqtt import PUBACK_BYTES, open_session, publish_packet, retained_packets, subscribe
from penstock.protocols.amqp10.codec.frames import encode_frame
from penstock.protocols.amqp10.codec.performatives import Accepted, Disposition, Flow, Source, Target
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.data_plane import until
from tests.support.limits import LIMIT_S

MESSAGES = 10_000
MOST = MESSAGES // 100

CLIENTS = 200


class Login(NamedTuple):
    """A way to log in, and the calls that it may cost."""

    name: str
    script: Script
    most: int
    takes_over: bool = False
    """Each takes the session of the one before it, one at a time."""

    def come_and_go(self, port: int) -> Came:
        return come_and_go(
            self.script, port, CLIENTS, window=1 if self.takes_over else 8, overlap=self.takes_over
        )


LOGINS = (
    Login("mqtt", mqtt_login(), 13),
    Login("mqtt_takeover", mqtt_login(same=True, leaves=False), 14, takes_over=True),
    Login("mqtt5_password", mqtt_login(version=5, user="guest", password="guest"), 31),
    Login("mqtt_return", mqtt_login(clean=False), 16),
    Login("amqp", AMQP_LOGIN, 228),
)

BY_TIME = (
    "Listener._check",
    "Listener._check_some",
    "Periodic._fire",
    "Clients._save_dirty",
    "Log.tend",
    "Queues._flush",
    "Queue.mark_dirty",
)
"""The calls of timers, at any number of messages. Cursors are saved; the first cursor to be saved starts
the timer, once per `cursor_flush_ms`."""


class Counted(Gateway):
    """A gateway that counts its calls of Python functions."""

    @property
    def counts(self) -> Path:
        return self.folder / "counts.json"

    def command(self) -> list[str]:
        words = super().command()
        at = words.index("penstock")
        return [*words[:at], "tests.support.call_counts", str(self.counts), *words[at + 1 :]]

    def environment(self) -> dict[str, str]:
        inherited = dict(super().environment())
        root = str(Path(__file__).parents[3])
        return {**inherited, "PYTHONPATH": f"{inherited['PYTHONPATH']}:{root}"}

    def begin(self) -> None:
        """Count from now on."""
        self.counts.unlink(missing_ok=True)
        self._signal(signal.SIGUSR1)

    def end(self) -> dict[str, int]:
        """The calls since `begin` by who made them, without those of timers."""
        self._signal(signal.SIGUSR2)
        end = time.monotonic() + LIMIT_S
        while not self.counts.exists():
            assert time.monotonic() < end, "the gateway did not say what it counted"
            time.sleep(0.01)
        counts: dict[str, int] = json.loads(self.counts.read_text())
        return {root: n for root, n in counts.items() if not root.endswith(BY_TIME)}

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    folder = tmp_path_factory.mktemp("counted")
    cert, key = Authority(folder).server()
    any_port = dict.fromkeys(("mqtt.tls_listen", "mqtt.ws_listen"), "127.0.0.1:0")
    files = {"tls.cert_file": str(cert), "tls.key_file": str(key)}
    with Counted(folder, settings=any_port | files) as gateway:
        yield gateway


_LISTENERS = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws"}


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.connections <= 2000 and not row.flooded], ids=lambda row: row.name
)
def test_no_python_function_runs_per_message(row: Row, gateway: Counted) -> None:
    with opened(row, gateway.ports["amqp" if row.protocol == "amqp" else _LISTENERS[row.layer]]) as clients:
        clients.run(0, messages=max(4 * row.publishers // row.copies, 10))
        gateway.begin()
        seen = clients.run(0, messages=MESSAGES // row.copies)
        found = gateway.end()
    assert seen.delivered == seen.sent * row.copies >= MESSAGES
    assert sum(found.values()) < MOST, f"{sum(found.values())} calls for {seen.delivered} messages: {found}"


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login.name)
def test_few_python_functions_run_per_login(login: Login, gateway: Counted) -> None:
    """A client that connects, logs in and leaves, eight at a time; it had logged in before."""
    port = gateway.ports[login.script.protocol]
    login.come_and_go(port)
    gateway.begin()
    came = login.come_and_go(port)
    found = gateway.end()
    assert came.answered == CLIENTS
    calls = sum(found.values()) / CLIENTS
    assert calls < login.most, f"{calls} calls for a login: {found}"


def test_no_python_function_runs_per_retained_message(gateway: Counted) -> None:
    """One client publishes by QoS 1; each message is kept for a topic of its own.

    Reads, waits for the disk and stretches of the file have calls.
    """
    count = 1000
    with contextlib.closing(open_session(gateway.mqtt_port, "retains")) as publisher:
        for number, first in enumerate(range(0, MESSAGES + count, count)):
            if number == 1:
                gateway.begin()
            publisher.sendall(retained_packets(range(first, first + count), b"x" * 100))
            read_exactly(publisher, PUBACK_BYTES * count)
        found = gateway.end()
    assert sum(found.values()) < 10 * MOST, f"{sum(found.values())} calls for {MESSAGES} messages: {found}"


def test_few_python_functions_run_for_a_bridge(gateway: Counted, tmp_path: Path) -> None:
    """The calls are those of the gateway whose bridge it is, for reads and turns of the loop."""
    counted = Counted(tmp_path / "source")
    there = f"127.0.0.1:{gateway.mqtt_port}"
    counted.settings["links.bridges"] = f'[{{name = "b", address = "{there}", topics = ["bridged/# out 1"]}}]'
    with counted, contextlib.closing(open_session(gateway.mqtt_port, "beyond")) as beyond:
        subscribe(beyond, "bridged/#", 0)
        until(lambda: "a link runs" in counted.log_text())
        one = publish_packet("bridged/a", b"x" * 100, qos=0)
        with contextlib.closing(open_session(counted.mqtt_port, "bridged")) as publisher:

            def moved(count: int) -> None:
                publisher.sendall(
                    b"".join(
                        publish_packet("bridged/a", b"x" * 100, qos=1, packet_id=packet_id + 1)
                        for packet_id in range(count)
                    )
                )
                read_exactly(publisher, PUBACK_BYTES * count)
                read_exactly(beyond, len(one) * count)

            moved(100)
            counted.begin()
            moved(MESSAGES)
            found = counted.end()
    assert sum(found.values()) < 10 * MOST, f"{sum(found.values())} calls for {MESSAGES} messages: {found}"


class Pair:
    """A sender and a receiver of AMQP 1.0 at one queue."""

    def __init__(self, port: int, queue: str, *, settled: bool) -> None:
        self._settled = settled
        self._receiver = Peer(port, Source(queue), settled=settled)
        self._receiver.socket.sendall(encode_frame(0, Flow(0, 2**31 - 1, 0, 1, 0, 0, 2 * MESSAGES)))
        self._sender = Peer(port, Target(queue), settled=settled)
        self._frames = Frames(settled=settled, size=100)
        self._moved = self._credit = 0

    def move(self, count: int) -> None:
        """Send messages in runs, and wait until each run was delivered and accepted at both ends."""
        last = self._moved + count
        while self._moved < last:
            while self._credit == 0:
                self._look(self._sender.frame()[0])
            n = min(self._credit, last - self._moved, 100)
            self._sender.socket.sendall(self._frames.numbered(self._moved, n))
            self._credit -= n
            came = 0
            while came < n:
                self._receiver.more()
                came += self._receiver.transfers()
            first, self._moved = self._moved, self._moved + n
            if self._settled:
                continue
            accepted = Disposition(True, first, self._moved - 1, True, Accepted())
            self._receiver.socket.sendall(encode_frame(0, accepted))
            outcomes = 0
            while outcomes < n:
                outcomes += self._look(self._sender.frame()[0])

    def _look(self, performative: object) -> int:
        """Take up credit; how many messages have an outcome now."""
        if isinstance(performative, Flow) and performative.link_credit is not None:
            self._credit = (performative.delivery_count or 0) + performative.link_credit - self._moved
        elif isinstance(performative, Disposition):
            assert performative.state == Accepted()
            last = performative.first if performative.last is None else performative.last
            return last - performative.first + 1
        return 0

    def close(self) -> None:
        self._receiver.socket.close()
        self._sender.socket.close()


@pytest.mark.parametrize("settled", [False, True])
def test_no_python_function_runs_per_message_of_amqp_1_0(gateway: Counted, *, settled: bool) -> None:
    queue = f"amqp10-{settled}"
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        connection.channel().queue_declare(queue, durable=True)
    with contextlib.closing(Pair(gateway.amqp_port, queue, settled=settled)) as pair:
        pair.move(100)
        gateway.begin()
        pair.move(MESSAGES)
        found = gateway.end()
    assert sum(found.values()) < MOST, f"{sum(found.values())} calls for {MESSAGES} messages: {found}"
