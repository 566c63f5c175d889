"""A load that costs a fraction of what it makes a broker do, so that every core can be the broker's.

One process with one loop does the work of all clients. Publishers send prebuilt chunks out of a file in
memory with `sendfile`, which copies nothing on the way into the socket. Consumers have the kernel drop what
came (MSG_TRUNC) and count its bytes: every message of a run is equally long, so bytes are messages. The
first delivery of each consumer is read and taken apart, which tells its length; in the end what each
consumer got has to be what was sent, to the byte, or the run failed.

The load is closed: a publisher has at most `window` messages that are not confirmed, or that not every
consumer of its vhost has got. So the broker is busy at all times and no backlog grows.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench import load_amqp, load_mqtt
from bench.load import CHUNK_BYTES, LoadFailed

__all__ = ["Light", "Measured", "run"]

_READ_AT_ONCE: Final = 4 << 20
_WAKE_BYTES: Final = 512 << 10
"""A consumer is woken when so much has come (SO_RCVLOWAT)."""
_DRAIN_S: Final = 60.0
_START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Light:
    """The load of each vhost: by one publisher, to `consumers` that each get all of it."""

    name: str
    protocol: Literal["amqp", "mqtt"]
    consumers: int = 1
    """AMQP: each with a queue of its own, bound to one exchange; with one, through the default exchange."""
    durable: bool = False
    """AMQP: durable queues, persistent messages, confirms, and consumers that acknowledge. MQTT: QoS 0
    without."""
    size: int = 100
    """Bytes of payload, at least 1."""
    window: int = 10_000
    prefetch: int = 20_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    seconds: float
    delivered: int
    """In the window, in all vhosts."""
    load_cpu_s: float
    """CPU time of the load itself in the window."""
    before: Any
    after: Any
    """The results of `sample` at both ends of the window."""


class _Consumer:
    def __init__(self, s: socket.socket, measure: Callable[[bytes], int], ack_each: int) -> None:
        """`measure` tells the length of the first delivery, 0 when it is not whole; `ack_each`: messages,
        0 for none."""
        self.socket = s
        self.count = 0
        self._measure = measure
        self._ack_each = ack_each
        self._acked = 0
        self._bytes = 0
        self._stride = 0
        self._first = b""
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _WAKE_BYTES)

    def on_readable(self, trash: bytearray) -> None:
        if self._stride:
            size = self.socket.recv_into(trash, 0, socket.MSG_TRUNC)
        else:
            data = self.socket.recv(1 << 16)
            size = len(data)
            self._first += data
            self._stride = self._measure(self._first)
        if not size:
            raise LoadFailed("closed while consuming")
        self._bytes += size
        if not self._stride:
            return
        self.count = self._bytes // self._stride
        if self._ack_each and self.count - self._acked >= self._ack_each:
            self._acknowledge()

    def _acknowledge(self) -> None:
        # 21 bytes: they always find room, for the broker reads them before it sends more.
        self.socket.send(load_amqp.method(1, 60, 80, struct.pack(">QB", self.count, 1)))
        self._acked = self.count

    def check(self, sent: int) -> None:
        """In the end. Raises LoadFailed: it is not what was sent."""
        if self._bytes != sent * self._stride:
            raise LoadFailed(f"{self._bytes} bytes came, and {sent} messages of {self._stride} were sent")


class _Publisher:
    def __init__(self, s: socket.socket, one: bytes, *, window: int, confirms: bool) -> None:
        self.socket = s
        self.sent = 0
        self.full = False
        """The socket takes no more at the moment."""
        self._window = window
        self._confirms = confirms
        self._confirmed = 0
        self._rest = b""
        self._count = max(1, min(window // 4, CHUNK_BYTES // len(one)))
        self._size = self._count * len(one)
        self._file = os.memfd_create("chunk")
        os.write(self._file, one * self._count)
        self._at = 0
        s.setblocking(False)

    def close(self) -> None:
        os.close(self._file)
        self.socket.close()

    def pump(self, arrived: int, *, more: bool) -> None:
        """Send what the window allows; a chunk that was begun goes on whatever `more` says."""
        done = min(arrived, self._confirmed) if self._confirms else arrived
        while self._at or (more and self.sent - done < self._window):
            try:
                self._at += os.sendfile(self.socket.fileno(), self._file, self._at, self._size - self._at)
            except BlockingIOError:
                self.full = True
                return
            if self._at == self._size:
                self._at = 0
                self.sent += self._count
        self.full = False

    def on_readable(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise LoadFailed("closed while publishing")
        self._rest += data
        self._confirmed, self._rest = load_amqp.confirmed(self._rest, self._confirmed)


@dataclass(slots=True)
class _Vhost:
    publisher: _Publisher
    consumers: list[_Consumer]

    @property
    def arrived(self) -> int:
        """The number of messages of every consumer."""
        return min(consumer.count for consumer in self.consumers)


def run(
    light: Light,
    port: int,
    vhosts: Sequence[str],
    *,
    seconds: float,
    warm_s: float = 1.0,
    sample: Callable[[], Any],
) -> Measured:
    """Load each of `vhosts` at 127.0.0.1:`port`; `sample` is called at both ends of the window.

    Raises:
        LoadFailed: a connection ended, or what came in the end is not what was sent.

    """
    opened = _amqp if light.protocol == "amqp" else _mqtt
    with ExitStack() as stack:
        loaded = [stack.enter_context(opened(light, port, vhost)) for vhost in vhosts]
        loop = _Loop(loaded)
        stack.enter_context(closing(loop))
        loop.until(lambda: all(one.arrived for one in loaded), _START_S)
        loop.turn_for(warm_s)
        at, count, used, before = time.perf_counter(), loop.delivered, time.process_time(), sample()
        loop.turn_for(seconds)
        measured = Measured(
            time.perf_counter() - at,
            loop.delivered - count,
            time.process_time() - used,
            before,
            sample(),
        )
        loop.stop()
        loop.until(lambda: all(one.arrived >= one.publisher.sent for one in loaded), _DRAIN_S)
        for one in loaded:
            for consumer in one.consumers:
                consumer.check(one.publisher.sent)
    return measured


class _Loop:
    def __init__(self, vhosts: Sequence[_Vhost]) -> None:
        self._vhosts = vhosts
        self._more = True
        self._trash = bytearray(_READ_AT_ONCE)
        self._poll = select.epoll()
        self._found: dict[int, tuple[_Vhost, _Consumer | None]] = {}
        self._written: dict[int, bool] = {}
        for vhost in vhosts:
            for consumer in vhost.consumers:
                self._add(consumer.socket, vhost, consumer)
            self._add(vhost.publisher.socket, vhost, None)

    def _add(self, s: socket.socket, vhost: _Vhost, consumer: _Consumer | None) -> None:
        self._poll.register(s, select.EPOLLIN)
        self._found[s.fileno()] = vhost, consumer

    def close(self) -> None:
        self._poll.close()

    @property
    def delivered(self) -> int:
        return sum(consumer.count for vhost in self._vhosts for consumer in vhost.consumers)

    def stop(self) -> None:
        """Publish no more; be woken by every byte."""
        self._more = False
        for vhost in self._vhosts:
            for consumer in vhost.consumers:
                consumer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def turn_for(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._turn()

    def until(self, done: Callable[[], bool], limit_s: float) -> None:
        end = time.perf_counter() + limit_s
        while not done():
            if time.perf_counter() > end:
                raise LoadFailed(f"what was sent did not arrive within {limit_s} s")
            self._turn()

    def _turn(self) -> None:
        for vhost in self._vhosts:
            publisher = vhost.publisher
            publisher.pump(vhost.arrived, more=self._more)
            at = publisher.socket.fileno()
            if self._written.get(at, False) != publisher.full:
                self._written[at] = publisher.full
                self._poll.modify(at, select.EPOLLIN | (select.EPOLLOUT if publisher.full else 0))
        for at, events in self._poll.poll(0.05):
            vhost, consumer = self._found[at]
            if consumer is not None:
                consumer.on_readable(self._trash)
            elif events & ~select.EPOLLOUT:
                vhost.publisher.on_readable()


@contextmanager
def _amqp(light: Light, port: int, vhost: str) -> Iterator[_Vhost]:
    names = [f"light-{number}" for number in range(light.consumers)]
    exchange, key = ("", names[0]) if light.consumers == 1 else ("amq.topic", "light.all")
    with ExitStack() as stack:
        consumers = []
        for name in names:
            client = load_amqp.Client(port, vhost=vhost)
            stack.callback(client.close)
            client.declare(name, durable=light.durable)
            if exchange:
                client.bind(name, exchange, "light.#")
            if light.durable:
                client.call(60, 10, struct.pack(">IH", 0, light.prefetch) + b"\0", 11)
            client.consume(name, no_ack=not light.durable)
            consumers.append(
                _Consumer(
                    client.socket,
                    lambda data: load_amqp.delivery_bytes(data, frames=3),
                    light.prefetch // 4 if light.durable else 0,
                )
            )
        client = load_amqp.Client(port, vhost=vhost)
        if light.durable:
            client.call(85, 10, b"\0", 11)
        one = load_amqp.message(key, light.size, durable=light.durable, exchange=exchange)
        publisher = _Publisher(client.socket, one, window=light.window, confirms=light.durable)
        stack.callback(publisher.close)
        yield _Vhost(publisher, consumers)


@contextmanager
def _mqtt(light: Light, port: int, vhost: str) -> Iterator[_Vhost]:
    with ExitStack() as stack:
        consumers = []
        one = load_mqtt.publish_packet("light/all", b"x" * light.size)
        for number in range(light.consumers):
            s = load_mqtt.open_session(port, f"light-{number}", vhost)
            stack.callback(s.close)
            load_mqtt.subscribe(s, "light/#", 0)
            consumers.append(_Consumer(s, lambda data: len(one) if len(data) >= len(one) else 0, 0))
        publisher = _Publisher(
            load_mqtt.open_session(port, "light-publisher", vhost), one, window=light.window, confirms=False
        )
        stack.callback(publisher.close)
        yield _Vhost(publisher, consumers)
