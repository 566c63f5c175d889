"""AMQP 0-9-1 roles of the load runner: a bare client that publishes chunks and counts deliveries by stride.

One published message is three frames (method, content header, body), one delivery the same; with equal
names and sizes each delivery of a consumer has the same length, its stride. Offsets inside a delivery:

    +----+---------+------+-----------+-----+-----+--------------+-----------------+---
    | 1  | channel | size | 60 u16    | 60  | tag | delivery tag | redelivered ... | header, body
    | u8 | u16     | u32  | (class)   | u16 | sstr| u64          |                 |
    +----+---------+------+-----------+-----+-----+--------------+-----------------+---

A confirm is a basic.ack frame of 21 bytes: 7 header, 4 class and method, 8 tag, 1 multiple, 1 end.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.load import CHUNK_BYTES, Board, Load, connect, hold, latencies_ns, paced, read_exactly, strides

CONFIRM_BYTES = 21
_TAG_LENGTH_AT = 11

UNBLOCKED = ("publisher_confirms", "basic.nack", "consumer_cancel_notify")
"""Capabilities of a publisher that counts confirms by their size, and is not to be told of a block."""
_CAPABILITIES = (*UNBLOCKED, "connection.blocked")


def short_string(text: str) -> bytes:
    """A length byte and the text."""
    raw = text.encode()
    return bytes([len(raw)]) + raw


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One AMQP frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """One method frame."""
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


class Client:
    """A blocking AMQP connection with channel 1 open; `socket` is used directly once the talking is done."""

    def __init__(
        self,
        port: int,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        *,
        capabilities: Sequence[str] = _CAPABILITIES,
        timeout_s: float = 10.0,
    ) -> None:
        self.socket = connect(port, timeout_s)
        self._capabilities = capabilities
        try:
            self._handshake(user, password, vhost)
        except BaseException:
            self.socket.close()
            raise

    def _handshake(self, user: str, password: str, vhost: str) -> None:
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.wait_for(10, 10)
        response = b"\0" + user.encode() + b"\0" + password.encode()
        capabilities = b"".join(short_string(name) + b"t\x01" for name in self._capabilities)
        table = short_string("capabilities") + b"F" + struct.pack(">I", len(capabilities)) + capabilities
        self.socket.sendall(
            method(
                0,
                10,
                11,
                struct.pack(">I", len(table))
                + table
                + short_string("PLAIN")
                + struct.pack(">I", len(response))
                + response
                + short_string("en_US"),
            )
        )
        channel_max, frame_max, _ = struct.unpack(">HIH", self.wait_for(10, 30)[:8])
        self.socket.sendall(
            method(0, 10, 31, struct.pack(">HIH", channel_max, frame_max or CHUNK_BYTES, 0))
            + method(0, 10, 40, short_string(vhost) + b"\0\0")
        )
        self.wait_for(10, 41)
        self.call(20, 10, b"\0", 11)

    def call(self, class_id: int, method_id: int, arguments: bytes, reply_id: int) -> bytes:
        """Send a method on channel 1 and return the arguments of the reply of the same class."""
        self.socket.sendall(method(1, class_id, method_id, arguments))
        return self.wait_for(class_id, reply_id)

    def declare(self, queue: str, *, durable: bool, passive: bool = False, quorum: bool = False) -> None:
        """Declare a queue, or (`passive`) find that it is there; `quorum`: of that type."""
        bits = passive | durable << 1
        table = short_string("x-queue-type") + b"S" + struct.pack(">I", 6) + b"quorum" if quorum else b""
        arguments = struct.pack(">I", len(table)) + table
        self.call(50, 10, b"\0\0" + short_string(queue) + bytes([bits]) + arguments, 11)

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind a queue to an exchange."""
        words = short_string(queue) + short_string(exchange) + short_string(key)
        self.call(50, 20, b"\0\0" + words + b"\0" + b"\0\0\0\0", 21)

    def consume(self, queue: str, *, no_ack: bool) -> None:
        """Have what is in a queue delivered."""
        flags = bytes([2 if no_ack else 0])
        self.call(60, 20, b"\0\0" + short_string(queue) + short_string("t") + flags + b"\0\0\0\0", 21)

    def delete(self, queue: str) -> None:
        """Delete a queue."""
        self.call(50, 40, b"\0\0" + short_string(queue) + b"\0", 41)

    def close(self) -> None:
        """Close the socket without the handshake."""
        self.socket.close()

    def wait_for(self, class_id: int, method_id: int) -> bytes:
        """The arguments of the next method, which must be this one; content frames before it are skipped.

        Raises EOFError: the broker closes the connection.
        """
        while True:
            kind, _, size = struct.unpack(">BHI", read_exactly(self.socket, 7))
            payload = read_exactly(self.socket, size + 1)[:-1]
            if kind != 1:
                continue
            got = struct.unpack(">HH", payload[:4])
            if got == (10, 50):
                raise EOFError(f"closed by the broker: {payload!r}")
            if got != (class_id, method_id):
                raise RuntimeError(f"expected {class_id}.{method_id}, got {got} {payload!r}")
            return payload[4:]


def message(key: str, size: int, *, durable: bool, exchange: str = "") -> bytes:
    """The frames of one publish; through the default exchange `key` is the queue."""
    publish = method(1, 60, 40, b"\0\0" + short_string(exchange) + short_string(key) + b"\0")
    header = frame(2, 1, struct.pack(">HHQH", 60, 0, size, 0x1000) + bytes([2 if durable else 1]))
    return publish + header + (frame(3, 1, b"x" * size) if size else b"")


@contextmanager
def prepared(load: Load, port: int) -> Iterator[list[str]]:
    """Fresh queues for a run (a broker may still work off an earlier one's), deleted after it."""
    client = Client(port, vhost=load.vhost)
    names = [f"bench-{os.getpid()}-{time.monotonic_ns()}-{i}" for i in range(load.queues)]
    for name in names:
        client.declare(name, durable=load.durable, quorum=load.quorum)
    client.close()
    try:
        yield names
    finally:
        client = Client(port, vhost=load.vhost)
        client.socket.settimeout(60)
        for name in names:
            client.delete(name)
        client.close()


def publish(load: Load, port: int, name: str, board: Board, i: int) -> None:
    """Publish to queue `name` until told to stop, within the confirm window if the load asks for confirms."""
    client = Client(port, vhost=load.vhost, capabilities=UNBLOCKED)
    s = client.socket
    if load.confirm:
        client.call(85, 10, b"\0", 11)
    one = message(name, load.size, durable=load.durable)
    if load.rate:
        stamped = bytearray(one)

        def stamp(_: int) -> bytes:
            struct.pack_into(">Q", stamped, len(one) - 1 - load.size, time.monotonic_ns())
            return bytes(stamped)

        paced(s, stamp, load, board, i)
        return
    count = max(1, min(load.window // 4 if load.confirm else CHUNK_BYTES, CHUNK_BYTES // len(one)))
    chunk = one * count
    s.settimeout(None)
    sent = answered = 0
    confirms = bytearray()
    while board.publishing.value:
        if load.confirm:
            while sent - answered >= load.window and board.publishing.value:
                answered = _confirmed(s, confirms, answered)
                board.answered[i] = answered
        s.sendall(chunk)
        sent += count
        board.sent[i] = sent
        if not load.confirm:
            board.answered[i] = sent
    while load.confirm and board.running.value and answered < sent:
        answered = _confirmed(s, confirms, answered)
        board.answered[i] = answered
    hold(s, board)


def _confirmed(s: socket.socket, confirms: bytearray, answered: int) -> int:
    """Read once for at most a second and return the highest tag confirmed so far."""
    s.settimeout(1)
    try:
        data = s.recv(1 << 18)
    except TimeoutError:
        return answered
    finally:
        s.settimeout(None)
    if not data:
        raise EOFError("closed while waiting for confirms")
    confirms += data
    answered, rest = confirmed(bytes(confirms), answered)
    confirms[:] = rest
    return answered


def confirmed(data: bytes, answered: int) -> tuple[int, bytes]:
    """The highest tag confirmed, `answered` before, and what is left of `data`."""
    count = len(data) // CONFIRM_BYTES
    if count == 0:
        return answered, data
    acks = strides(data, count, CONFIRM_BYTES)
    # 60.80 is basic.ack; a basic.nack (60.120) or a channel.close would break the stride.
    is_ack = (acks[:, 0] == 1) & (acks[:, 8] == 60) & (acks[:, 10] == 80)
    if not is_ack.all():
        other = int(is_ack.argmin()) * CONFIRM_BYTES
        raise RuntimeError(f"something else among the confirms: {data[other : other + 80]!r}")
    highest = int(acks[:, 11:19].copy().view(">u8").max())
    return max(answered, highest), data[count * CONFIRM_BYTES :]


def consume(load: Load, port: int, name: str, board: Board, i: int) -> None:
    """Consume from queue `name`, counting deliveries, with one multiple ack per read if the load asks for
    acks.
    """
    client = Client(port, vhost=load.vhost)
    s = client.socket
    if load.ack:
        client.call(60, 10, struct.pack(">IH", 0, load.prefetch) + b"\0", 11)
    client.consume(name, no_ack=not load.ack)
    board.subscribed[i] = 1
    s.settimeout(0.2)
    buffer = bytearray()
    stride = tag_at = total = 0
    ages: list[int] = []
    while board.running.value:
        try:
            data = s.recv(1 << 19)
        except TimeoutError:
            continue
        if not data:
            raise EOFError("closed while consuming")
        buffer += data
        if not stride:
            stride = delivery_bytes(buffer, frames=3 if load.size else 2)
            if not stride:
                continue
            tag_at = _TAG_LENGTH_AT + 1 + buffer[_TAG_LENGTH_AT]
        count = len(buffer) // stride
        if not count:
            continue
        frames = strides(buffer, count, stride)
        if not ((frames[:, 0] == 1) & (frames[:, 10] == 60) & (frames[:, -1] == 0xCE)).all():
            raise RuntimeError(f"stride lost at {total}: {bytes(buffer[:200])!r}")
        if load.rate:
            ages += latencies_ns(frames, stride - 1 - load.size)
        tag = struct.unpack_from(">Q", buffer, (count - 1) * stride + tag_at)[0]
        del frames
        del buffer[: count * stride]
        if load.ack:
            s.sendall(method(1, 60, 80, struct.pack(">QB", tag, 1)))
        total += count
        board.delivered[i] = total
    if load.rate:
        board.latencies.put(ages)


def delivery_bytes(buffer: bytes | bytearray, frames: int) -> int:
    """Length of the first delivery in `buffer`, which is `frames` frames long; 0 when it is not whole yet."""
    at = 0
    for _ in range(frames):
        if len(buffer) - at < 7:
            return 0
        at += 8 + struct.unpack_from(">I", buffer, at + 3)[0]
    return at if len(buffer) >= at else 0
