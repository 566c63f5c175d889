"""MQTT 3.1.1 roles of the load runner: publishes chunks of equal packets and counts deliveries by stride.

With one topic and one size every PUBLISH has the same length. Its offsets, from the end because the
remaining length takes 1 to 4 bytes: payload at -size, packet id (QoS 1) at -size-2.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from bench.load import CHUNK_BYTES, Board, Load, connect, hold, latencies_ns, paced, read_exactly, strides

PUBACK_BYTES = 4
PACKET_IDS = 65000
"""Packet ids run from 1 to this; a multiple of the chunks used, so that chunks can be prebuilt."""


def remaining_length(size: int) -> bytes:
    """MQTT's variable byte integer."""
    out = bytearray()
    while True:
        size, low = divmod(size, 128)
        out.append(low | (128 if size else 0))
        if not size:
            return bytes(out)


def utf8(text: str) -> bytes:
    """A two-byte length and the text."""
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def packet(first_byte: int, body: bytes) -> bytes:
    """One control packet."""
    return bytes([first_byte]) + remaining_length(len(body)) + body


def publish_packet(
    topic: str, payload: bytes, *, qos: int = 0, packet_id: int = 1, retain: bool = False
) -> bytes:
    """One PUBLISH."""
    said = utf8(topic) + (struct.pack(">H", packet_id) if qos else b"") + payload
    return packet(0x30 | qos << 1 | retain, said)


def retained_packets(numbers: Iterable[int], payload: bytes) -> bytes:
    """PUBLISH of QoS 1 for each number, retained for a topic of its own."""
    return b"".join(
        publish_packet(f"state/{i // 1000}/{i}", payload, qos=1, packet_id=i % PACKET_IDS + 1, retain=True)
        for i in numbers
    )


def open_session(
    port: int, client_id: str, vhost: str = "", *, opens: Callable[[int], socket.socket] = connect
) -> socket.socket:
    """A connection with a clean session and no keep-alive; `opens` makes the socket, or what is like one."""
    return log_in(port, client_id, clean=True, vhost=vhost, opens=opens)[0]


def log_in(
    port: int,
    client_id: str,
    *,
    clean: bool,
    keep_alive_s: int = 0,
    vhost: str = "",
    opens: Callable[[int], socket.socket] = connect,
) -> tuple[socket.socket, bool]:
    """A connection, and whether the broker had the session already. `vhost`: penstock's, as guest there."""
    s = opens(port)
    try:
        flags = bytes([4, (2 if clean else 0) | (0xC0 if vhost else 0)])
        login = utf8(f"{vhost}:guest") + utf8("guest") if vhost else b""
        said = utf8("MQTT") + flags + struct.pack(">H", keep_alive_s) + utf8(client_id) + login
        s.sendall(packet(0x10, said))
        answer = read_exactly(s, 4)
        if answer[0] != 0x20 or answer[3]:
            raise RuntimeError(f"not connected: {answer!r}")
    except BaseException:
        s.close()
        raise
    return s, bool(answer[2])


def subscribe(s: socket.socket, pattern: str, qos: int) -> None:
    """Subscribe, and be granted what was asked for."""
    s.sendall(packet(0x82, struct.pack(">H", 1) + utf8(pattern) + bytes([qos])))
    granted = read_exactly(s, 5)
    if granted[0] != 0x90 or granted[4] != qos:
        raise RuntimeError(f"not subscribed: {granted!r}")


@contextmanager
def prepared(load: Load, port: int) -> Iterator[list[str]]:
    """The topic of a run; MQTT needs nothing made beforehand."""
    yield [f"bench/{os.getpid()}/{time.monotonic_ns()}"]


def publish(load: Load, port: int, name: str, board: Board, i: int) -> None:
    """Publish to topic `name` until told to stop, at QoS 1 within the window of unacknowledged messages."""
    s = open_session(port, f"bench-p{os.getpid()}")
    one = publish_packet(name, b"x" * load.size, qos=load.qos)
    if load.rate:
        stamped = bytearray(one)

        def stamp(n: int) -> bytes:
            struct.pack_into(">Q", stamped, len(one) - load.size, time.monotonic_ns())
            if load.qos:
                struct.pack_into(">H", stamped, len(one) - load.size - 2, n % PACKET_IDS + 1)
            return bytes(stamped)

        paced(s, stamp, load, board, i)
    elif load.qos:
        _publish_acknowledged(s, load, name, board, i)
    else:
        count = max(1, CHUNK_BYTES // len(one))
        chunk = one * count
        s.settimeout(None)
        sent = 0
        while board.publishing.value:
            s.sendall(chunk)
            sent += count
            board.sent[i] = board.answered[i] = sent
        hold(s, board)


def _publish_acknowledged(s: socket.socket, load: Load, name: str, board: Board, i: int) -> None:
    count = min(load.window, 1000)
    payload = b"x" * load.size
    chunks = [
        b"".join(
            publish_packet(name, payload, qos=1, packet_id=packet_id)
            for packet_id in range(base, base + count)
        )
        for base in range(1, PACKET_IDS - count + 2, count)
    ]
    sent = received = turn = 0
    while board.running.value:
        full = sent - received // PUBACK_BYTES + count > load.window
        if board.publishing.value and not full:
            s.settimeout(None)
            s.sendall(chunks[turn % len(chunks)])
            turn += 1
            sent += count
            board.sent[i] = sent
            continue
        s.settimeout(0.2)
        try:
            data = s.recv(1 << 18)
        except TimeoutError:
            continue
        if not data:
            raise EOFError("closed while waiting for PUBACK")
        received += len(data)
        board.answered[i] = received // PUBACK_BYTES


def consume(load: Load, port: int, name: str, board: Board, i: int) -> None:
    """Subscribe to topic `name` and count deliveries; at QoS 1 acknowledge each read in one go."""
    s = open_session(port, f"bench-s{os.getpid()}")
    subscribe(s, name, load.qos)
    board.subscribed[i] = 1
    stride = len(publish_packet(name, b"x" * load.size, qos=load.qos))
    payload_at = stride - load.size
    first_byte = 0x30 | load.qos << 1
    s.settimeout(0.2)
    total = 0
    buffer = bytearray()
    ages: list[int] = []
    while board.running.value:
        try:
            data = s.recv(1 << 19)
        except TimeoutError:
            continue
        if not data:
            raise EOFError("closed while consuming")
        buffer += data
        count = len(buffer) // stride
        if not count:
            continue
        frames = strides(buffer, count, stride)
        # 0x08 is DUP, which a broker may set on a redelivery.
        if not ((frames[:, 0] & 0xF7) == first_byte).all():
            raise RuntimeError(f"stride lost at {total}: {bytes(buffer[:200])!r}")
        if load.rate:
            ages += latencies_ns(frames, payload_at)
        if load.qos:
            acks = np.empty((count, PUBACK_BYTES), np.uint8)
            acks[:, 0] = 0x40
            acks[:, 1] = 2
            acks[:, 2:] = frames[:, payload_at - 2 : payload_at]
            s.sendall(acks.tobytes())
        del frames
        del buffer[: count * stride]
        total += count
        board.delivered[i] = total
    if load.rate:
        board.latencies.put(ages)
