"""The clients of one row: opened in Python, driven by the compiled loop in load.c."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bench import load_amqp, load_mqtt
from bench.connections.compiled import library
from bench.connections.layers import framed, over_tls, over_websocket
from bench.connections.rows import Row
from bench.load import LoadFailed, connect

__all__ = ["NUMBER", "Clients", "Seen", "opened"]

_KEPT: Final = 2_000_000
"""Latencies noted in one run."""
_FAILED: Final = {
    -1: "a socket cannot be watched",
    -2: "the broker closed a publisher's connection",
    -3: "the broker closed a connection",
    -4: "a connection broke",
    -5: "a packet is larger than the load's own",
}
_PROTOCOLS: Final = {"mqtt": 1, "amqp": 2, "amqp10": 3}
NUMBER: Final = b"\xff\xff\xff\xff"
"""Stands in a publisher's frame of AMQP 1.0 where the delivery-id goes."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one run."""

    sent: int
    delivered: int
    seconds: float
    """From the first message to the last one, or to the end of the time."""
    p50_us: float
    p99_us: float
    slowest_gap_ms: float
    """Closed load: the longest time that one publisher waited between two acknowledgements."""


class _Plan(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]
        ("protocol", ctypes.c_int),
        ("size", ctypes.c_int),
        ("publishers", ctypes.c_int),
        ("consumers", ctypes.c_int),
        ("publisher_fds", ctypes.POINTER(ctypes.c_int)),
        ("consumer_fds", ctypes.POINTER(ctypes.c_int)),
        ("frames", ctypes.c_void_p),
        ("frame_at", ctypes.POINTER(ctypes.c_uint32)),
        ("closed", ctypes.c_int),
        ("window", ctypes.c_int),
        ("acknowledgement_bytes", ctypes.c_int),
        ("acknowledges", ctypes.c_int),
        ("rate", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("latencies_ns", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
        ("stop_after", ctypes.c_uint64),
        ("copies", ctypes.c_uint64),
        ("tls", ctypes.POINTER(ctypes.c_void_p)),
        ("frames_ws", ctypes.c_int),
        ("id_at", ctypes.c_int),
        ("ids", ctypes.POINTER(ctypes.c_uint32)),
    ]


class _Figures(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]
        ("sent", ctypes.c_uint64),
        ("answered", ctypes.c_uint64),
        ("delivered", ctypes.c_uint64),
        ("elapsed_ns", ctypes.c_uint64),
        ("slowest_gap_ns", ctypes.c_uint64),
    ]


def _compiled() -> ctypes.CDLL:
    found = library("load")
    found.tls_open.restype = ctypes.c_void_p
    return found


class Clients:
    """The open connections of one row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._publishers: list[socket.socket] = []
        self._consumers: list[socket.socket] = []
        self._frames: list[bytes] = []
        self._ids: Any = None
        """AMQP 1.0: the next delivery-id of each publisher."""

    def add_publisher(self, s: socket.socket, frame: bytes) -> None:
        """One that is logged in, and the frame that it sends."""
        self._publishers.append(s)
        self._frames.append(frame)

    def run(self, seconds: float, *, messages: int = 0) -> Seen:
        """Load for so long, or with so many messages in all, and wait for what is under way.

        Raises:
            LoadFailed: a connection ended.

        """
        row = self.row
        if self._ids is None:
            self._ids = (ctypes.c_uint32 * row.publishers)()
        frames = bytearray(b"".join(self._frames))
        ends = list(itertools.accumulate(map(len, self._frames), initial=0))
        latencies = np.zeros(_KEPT, dtype=np.uint64)
        acknowledgement = load_mqtt.PUBACK_BYTES if row.protocol == "mqtt" else load_amqp.CONFIRM_BYTES
        plan = _Plan(
            protocol=_PROTOCOLS[row.protocol],
            size=row.size,
            publishers=row.publishers,
            consumers=row.consumers,
            publisher_fds=_numbers_of(self._publishers),
            consumer_fds=_numbers_of(self._consumers),
            frames=ctypes.addressof((ctypes.c_char * len(frames)).from_buffer(frames)),
            frame_at=(ctypes.c_uint32 * len(ends))(*ends),
            closed=int(row.closed),
            window=1,
            acknowledgement_bytes=acknowledgement if row.qos or row.durable else 0,
            acknowledges=int(row.acknowledges),
            rate=row.rate,
            seconds=seconds,
            latencies_ns=latencies.ctypes.data,
            room=_KEPT,
            stop_after=messages,
            copies=row.copies if row.consumers else 0,
            tls=self._tls(),
            frames_ws=int(row.layer == "ws"),
            id_at=self._frames[0].index(NUMBER) if row.protocol == "amqp10" else 0,
            ids=self._ids,
        )
        figures = _Figures()
        failed = _compiled().drive(ctypes.byref(plan), ctypes.byref(figures))
        if failed:
            raise LoadFailed(f"{row.name}: {_FAILED.get(failed, failed)}")
        found = latencies[: min(figures.delivered, _KEPT)] / 1e3
        p50, p99 = np.percentile(found, [50, 99]) if len(found) else (0.0, 0.0)
        return Seen(
            figures.sent,
            figures.delivered,
            figures.elapsed_ns / 1e9,
            float(p50),
            float(p99),
            figures.slowest_gap_ns / 1e6,
        )

    def _tls(self) -> Any:
        if self.row.layer != "tls":
            return None
        opened: list[Any] = [*self._publishers, *self._consumers]
        return (ctypes.c_void_p * len(opened))(*[one.tls for one in opened])

    def _open_mqtt(self, stack: ExitStack, port: int) -> None:
        row, run = self.row, f"{os.getpid()}-{next(_numbers)}"
        opens = {"tcp": connect, "ws": over_websocket, "tls": over_tls(_compiled())}[row.layer]
        if row.flooded:
            stack.enter_context(_flood(port, f"f{run}"))
        for i in range(row.consumers):
            s = stack.enter_context(closing(load_mqtt.open_session(port, f"c{run}-{i:05d}", opens=opens)))
            topic = f"load/{run}/{i:05d}" if row.pairs else f"load/{run}/#"
            load_mqtt.subscribe(s, topic, row.consumer_qos)
            self._consumers.append(s)
        for i in range(row.publishers):
            s = stack.enter_context(closing(load_mqtt.open_session(port, f"p{run}-{i:05d}", opens=opens)))
            self._publishers.append(s)
            packet = load_mqtt.publish_packet(f"load/{run}/{i:05d}", b"x" * row.size, qos=row.qos)
            self._frames.append(framed(packet) if row.layer == "ws" else packet)

    def _open_amqp(self, stack: ExitStack, port: int) -> None:
        row, run = self.row, f"{os.getpid()}-{next(_numbers)}"
        for i in range(row.consumers):
            client = load_amqp.Client(port)
            stack.enter_context(closing(client))
            queue = f"load-{run}-{i:05d}"
            client.declare(queue, durable=row.durable)
            client.consume(queue, no_ack=not row.acknowledges)
            self._consumers.append(client.socket)
        for i in range(row.publishers):
            client = load_amqp.Client(port)
            stack.enter_context(closing(client))
            if row.durable:
                client.call(85, 10, b"\0", 11)
            self._publishers.append(client.socket)
            queue = f"load-{run}-{i if row.pairs else 0:05d}"
            self._frames.append(load_amqp.message(queue, row.size, durable=row.durable))


@contextmanager
def opened(row: Row, port: int) -> Iterator[Clients]:
    """The row's clients on 127.0.0.1:`port`, logged in and subscribed; they are closed in the end."""
    clients = Clients(row)
    with ExitStack() as stack:
        if row.protocol == "amqp":
            clients._open_amqp(stack, port)
        else:
            clients._open_mqtt(stack, port)
        for s in (*clients._publishers, *clients._consumers):
            s.setblocking(True)
        yield clients


@contextmanager
def _flood(port: int, client_id: str) -> Iterator[None]:
    """Another thread publishes at full speed meanwhile. Sending does not need Python's lock."""
    with closing(load_mqtt.open_session(port, client_id)) as s:
        s.settimeout(None)
        chunk = load_mqtt.publish_packet(f"flood/{client_id}", b"x" * 100) * 500

        def send() -> None:
            with suppress(OSError):
                while True:
                    s.sendall(chunk)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            s.shutdown(socket.SHUT_RDWR)
            thread.join()


def _numbers_of(sockets: list[socket.socket]) -> Any:
    return (ctypes.c_int * len(sockets))(*[s.fileno() for s in sockets])
