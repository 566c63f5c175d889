"""The load runner: publishers and consumers as processes, counted over a window of time.

A run must keep the *broker* busy, not this client. So no message is ever touched on its own in Python:
publishers send prebuilt chunks of frames, consumers count fixed strides with numpy, and acknowledgements
are computed for a whole read. That needs every message of a run to have the same size; a lost stride ends
the run with an error.

    consumers subscribe -> publishers start -> warm-up -> [window] -> publishers stop -> drain -> end

The rates come from the window. The drain shows what arrives in the end: a message that was sent, and is
neither delivered nor still on its way when deliveries have stood still for a while, is lost.

Roles (publish, consume) live in `load_amqp` and `load_mqtt`; they talk to the runner through a `Board` in
shared memory.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32, c_int64
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bench.cpu import cpu_seconds

CHUNK_BYTES = 131072
"""About how much a publisher hands to the kernel at once."""

STALL_S = 1.5
"""Deliveries that stand still for this long after the publishers stopped have ended."""

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Load:
    """One load: messages, clients and guarantees."""

    protocol: Literal["amqp", "mqtt"]
    size: int = 100
    """Bytes of payload; at least 8 in latency mode."""
    publishers: int = 1
    consumers: int = 1
    qos: int = 0
    """MQTT quality of service of publishers and subscribers: 0 or 1."""
    durable: bool = False
    """AMQP: durable queue and persistent messages."""
    confirm: bool = False
    """AMQP: publisher confirms."""
    ack: bool = False
    """AMQP: consumers acknowledge, one multiple ack per read; otherwise no_ack."""
    quorum: bool = False
    """AMQP: queues of RabbitMQ's type quorum."""
    queues: int = 1
    prefetch: int = 2000
    window: int = 2000
    """Messages a publisher may have unconfirmed (AMQP confirm, MQTT QoS 1)."""
    vhost: str = "/"
    """AMQP: where the queues are."""
    rate: float = 0.0
    """Messages per second of the one publisher in latency mode; 0 sends as fast as possible."""

    @property
    def copies(self) -> int:
        """How many deliveries each published message makes."""
        return self.consumers if self.protocol == "mqtt" else 1


class Board:
    """Shared memory between the runner and its roles: counters, flags, and a queue for what does not fit a
    counter.
    """

    def __init__(self, load: Load) -> None:
        self.sent = _fork.RawArray(c_int64, load.publishers)
        """Messages handed to the kernel, per publisher."""
        self.answered = _fork.RawArray(c_int64, load.publishers)
        """Of these, confirmed by the broker; equal to `sent` where nothing is confirmed."""
        self.delivered = _fork.RawArray(c_int64, max(1, load.consumers))
        self.subscribed = _fork.RawArray(c_int32, max(1, load.consumers))
        self.publishing = _fork.RawValue(c_int32, 1)
        """Publishers go on while this is 1."""
        self.running = _fork.RawValue(c_int32, 1)
        """Connections are held and read while this is 1."""
        self.latencies: multiprocessing.Queue[list[int]] = _fork.Queue()
        """One list of nanoseconds per consumer, in latency mode."""
        self.failures: multiprocessing.Queue[str] = _fork.Queue()


Role: TypeAlias = Callable[[Load, int, str, Board, int], None]
"""(load, port, name of the queue or topic, board, index of this role): runs until the board says stop."""


class LoadFailed(Exception):
    """A publisher or consumer ended with an error; the text is its traceback."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run."""

    seconds: float
    published_per_s: float
    """Confirmed per second where the load asks for confirms, otherwise sent."""
    delivered_per_s: float
    cpu_us_per_delivered: float | None
    """Broker CPU, its children included, per delivered message; None without a broker pid."""
    cpu_cores: float | None
    sent_total: int
    delivered_total: int
    lost: int
    """Deliveries missing when nothing arrived any more."""
    backlog: int
    """Deliveries still on their way when the drain limit was reached."""
    latency_us: dict[str, float] = field(default_factory=dict)
    """p50, p99, p999 and max in latency mode."""
    beside_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds of further processes in the window, by the names given to `run`."""


def connect(port: int, timeout_s: float = 10.0) -> socket.socket:
    """A TCP connection to 127.0.0.1:`port` without Nagle's delay."""
    s = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_exactly(s: socket.socket, size: int) -> bytes:
    """The next `size` bytes; raises EOFError when the peer closes before."""
    data = b""
    while len(data) < size:
        piece = s.recv(size - len(data))
        if not piece:
            raise EOFError(f"closed after {len(data)} of {size} bytes: {data!r}")
        data += piece
    return data


def strides(buffer: bytes | bytearray, count: int, stride: int) -> npt.NDArray[np.uint8]:
    """A view of the first `count` frames of `stride` bytes; release it before the buffer is cut."""
    return np.frombuffer(buffer, np.uint8, count * stride).reshape(count, stride)


def latencies_ns(frames: npt.NDArray[np.uint8], payload_at: int) -> list[int]:
    """Nanoseconds since the send times in the first 8 payload bytes of each frame."""
    sent = frames[:, payload_at : payload_at + 8].copy().view(">u8").ravel().astype(np.int64)
    ages: list[int] = (time.monotonic_ns() - sent).tolist()
    return ages


def paced(
    s: socket.socket,
    stamp: Callable[[int], bytes],
    load: Load,
    board: Board,
    i: int,
) -> None:
    """Latency mode: one message at a time at `load.rate`, its send time in its first 8 payload bytes.

    Confirms are read and dropped.

    Args:
        s: The connection.
        stamp: Makes the n-th message, n from 0, with the present time in it.
        load: The load.
        board: Its board.
        i: Index of this publisher.

    """
    # With a timeout, recv would wait for data even under MSG_DONTWAIT.
    s.settimeout(None)
    gap = 1 / load.rate
    due = time.monotonic()
    sent = 0
    while board.publishing.value:
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)
        s.sendall(stamp(sent))
        sent += 1
        due += gap
        try:
            s.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        board.sent[i] = board.answered[i] = sent
    hold(s, board)


def hold(s: socket.socket, board: Board) -> None:
    """Keep reading and dropping until the run ends: closing with unread bytes would reset the connection."""
    s.settimeout(0.1)
    while board.running.value:
        try:
            if not s.recv(1 << 16):
                return
        except TimeoutError:
            continue


def run(
    load: Load,
    port: int,
    *,
    broker_pid: int | None,
    seconds: float,
    warm_s: float = 1.5,
    drain_s: float = 10.0,
    beside: Mapping[str, int] | None = None,
) -> Result:
    """Put `load` on the broker at 127.0.0.1:`port` and measure it for `seconds`.

    `beside`: further processes, by name, whose CPU is told, too.

    Raises:
        LoadFailed: A publisher or consumer failed, or a consumer did not subscribe in 20 s.

    """
    from bench import load_amqp, load_mqtt

    module = load_amqp if load.protocol == "amqp" else load_mqtt
    if load.rate and load.size < 8:
        raise ValueError("latency mode needs 8 bytes of payload for the send time")
    board = Board(load)
    with module.prepared(load, port) as names:
        consumers = [
            _role(module.consume, load, port, names[i % len(names)], board, i) for i in range(load.consumers)
        ]
        publishers = [
            _role(module.publish, load, port, names[i % len(names)], board, i) for i in range(load.publishers)
        ]
        try:
            for process in consumers:
                process.start()
            _wait(lambda: all(board.subscribed[i] for i in range(load.consumers)), 20, board, "subscribing")
            for process in publishers:
                process.start()
            time.sleep(warm_s)
            pids = (broker_pid, beside or {})
            return _measure(load, board, pids, seconds, drain_s, [*consumers, *publishers])
        finally:
            board.publishing.value = board.running.value = 0
            for process in [*publishers, *consumers]:
                if process.pid is None:
                    continue
                process.join(3)
                if process.is_alive():
                    process.kill()
                    process.join()


def _role(
    role: Role, load: Load, port: int, name: str, board: Board, i: int
) -> multiprocessing.context.ForkProcess:
    return _fork.Process(target=_guarded, args=(role, load, port, name, board, i))


def _guarded(role: Role, load: Load, port: int, name: str, board: Board, i: int) -> None:
    try:
        role(load, port, name, board, i)
    except Exception:
        if board.running.value:
            board.failures.put(traceback.format_exc())


def _measure(
    load: Load,
    board: Board,
    pids: tuple[int | None, Mapping[str, int]],
    seconds: float,
    drain_s: float,
    processes: Sequence[multiprocessing.context.ForkProcess],
) -> Result:
    broker_pid, beside = pids

    def snapshot() -> tuple[float, int, int, float, dict[str, float]]:
        used = cpu_seconds(broker_pid) if broker_pid is not None else 0.0
        others = {name: cpu_seconds(pid) for name, pid in beside.items()}
        return time.perf_counter(), sum(board.answered), sum(board.delivered), used, others

    t0, p0, d0, c0, b0 = snapshot()
    time.sleep(seconds)
    t1, p1, d1, c1, b1 = snapshot()
    board.publishing.value = 0
    _raise_failure(board)
    if any(process.exitcode is not None for process in processes):
        raise LoadFailed("a publisher or consumer was disconnected during the run")
    standing = _drain(load, board, drain_s)
    sent, delivered = sum(board.sent), sum(board.delivered)
    missing = max(0, sent * load.copies - delivered)
    board.running.value = 0
    ages: list[int] = []
    if load.rate:
        for _ in range(load.consumers):
            ages += board.latencies.get(timeout=10)
        ages.sort()
    return Result(
        seconds=round(t1 - t0, 3),
        published_per_s=(p1 - p0) / (t1 - t0),
        delivered_per_s=(d1 - d0) / (t1 - t0),
        cpu_us_per_delivered=(c1 - c0) / max(1, d1 - d0) * 1e6 if broker_pid is not None else None,
        cpu_cores=(c1 - c0) / (t1 - t0) if broker_pid is not None else None,
        sent_total=sent,
        delivered_total=delivered,
        lost=missing if standing else 0,
        backlog=0 if standing else missing,
        latency_us=percentiles_us(ages),
        beside_s={name: b1[name] - b0[name] for name in beside},
    )


def _drain(load: Load, board: Board, limit_s: float) -> bool:
    """Wait until everything sent has arrived or nothing moves any more; False when it still moved at the
    limit.
    """
    end = time.monotonic() + limit_s
    before = (-1, -1)
    still_since = time.monotonic()
    while time.monotonic() < end:
        now = (sum(board.sent), sum(board.delivered))
        if now != before:
            before, still_since = now, time.monotonic()
        stood_s = time.monotonic() - still_since
        if stood_s > STALL_S or (now[1] >= now[0] * load.copies and stood_s > 0.3):
            return True
        time.sleep(0.05)
    return False


def percentiles_us(ages_ns: Sequence[int]) -> dict[str, float]:
    """p50, p99, p999 and max of sorted nanoseconds, in microseconds; empty for none."""
    if not ages_ns:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {k: round(ages_ns[min(len(ages_ns) - 1, int(len(ages_ns) * f))] / 1e3, 1) for k, f in at.items()}


def _wait(ready: Callable[[], bool], limit_s: float, board: Board, doing: str) -> None:
    end = time.monotonic() + limit_s
    while not ready():
        _raise_failure(board)
        if time.monotonic() > end:
            raise LoadFailed(f"{doing} took longer than {limit_s} s")
        time.sleep(0.01)


def _raise_failure(board: Board) -> None:
    if not board.failures.empty():
        raise LoadFailed(board.failures.get())
