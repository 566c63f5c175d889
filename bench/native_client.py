"""The native protocol from outside: a client that costs next to nothing, so that the gateway is measured.

It sends frames made once and counts what comes by the heads of frames. `python -m bench.compare_native`
has the SDK beside it.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._gathering import Gathering
from penstock.sdk.message import PLAIN

HEAD = struct.Struct(">IBBHI")
CONFIRM = struct.Struct(">QQII")
HANDLE = 1
WAKE_BYTES = 65536
"""In the middle of a frame: see `Connection._sleep_until`."""
ACKS = {"fsync": kinds.ACKS_FSYNC, "written": kinds.ACKS_WRITTEN}


_LETTERS = bytes(65 + i % 26 for i in range(256))


class Connection:
    """A connection that is logged in."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 22)
        self._held = 0
        self._least = 1
        self._frames = self._read()
        hello = {"versions": [1], "client": "bench", "capabilities": [kinds.STORED]}
        login = {"mechanism": "PLAIN", "user": "guest", "password": "guest"}
        self.send(kinds.PREFACE + self._json(kinds.HELLO, hello) + self._json(kinds.LOGIN, login))
        self.wait(kinds.READY)

    @staticmethod
    def _json(kind: int, value: Mapping[str, object], id: int = 0) -> bytes:
        payload = json.dumps(value).encode()
        return HEAD.pack(len(payload) + 8, kind, 0, 0, id) + payload

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _read(self) -> Iterator[tuple[int, int, int, memoryview]]:
        """(type, id, size of the payload, its beginning) of each frame, valid until the next is asked for."""
        view = memoryview(self._buffer)
        at = 0
        while True:
            while self._held - at >= HEAD.size:
                size, kind, _, _, id = HEAD.unpack_from(view, at)
                if self._held - at < size + 4:
                    break
                yield kind, id, size - 8, view[at + HEAD.size : at + size + 4]
                at += size + 4
            view[: self._held - at] = view[at : self._held]
            self._held, at = self._held - at, 0
            self._sleep_until(HEAD.unpack_from(view)[0] + 4 - self._held if self._held >= HEAD.size else 1)
            n = self._socket.recv_into(view[self._held :])
            if not n:
                raise EOFError("the gateway closed the connection")
            self._held += n

    def _sleep_until(self, missing: int) -> None:
        """Be woken when so many bytes, which are announced, are there: not for each piece sent."""
        least = min(max(missing, 1), WAKE_BYTES)
        if least != self._least:
            self._least = least
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def wait(self, *wanted: int) -> tuple[int, memoryview]:
        """The next frame of these types: size and beginning of its payload; RuntimeError for an ERROR."""
        _, size, payload = self.wait_for(*wanted)
        return size, payload

    def wait_for(self, *wanted: int) -> tuple[int, int, memoryview]:
        """The same, with its type."""
        for kind, _, size, payload in self._frames:
            if kind in wanted:
                return kind, size, payload
            if kind in (kinds.ERROR, kinds.REFUSED):
                raise RuntimeError(bytes(payload).decode())
            if kind == kinds.PING:
                self.send(HEAD.pack(8, kinds.PONG, 0, 0, 0))
        raise AssertionError

    def request(self, **fields: object) -> None:
        self.send(self._json(kinds.REQUEST, fields, 1))
        self.wait(kinds.RESPONSE)

    def close(self) -> None:
        self._socket.close()


def letters(size: int, count: int) -> list[bytes]:
    """Bodies as kafka-producer-perf-test makes them: random capital letters."""
    drawn = random.randbytes(size * count).translate(_LETTERS)
    return [drawn[i * size : (i + 1) * size] for i in range(count)]


def _frame(bodies: list[bytes], acks: int) -> bytes:
    """A whole PRODUCE frame."""
    batch = Gathering(PLAIN, sys.maxsize, len(bodies), 0).whole(bodies, 0, PLAIN)
    batch.seal(HANDLE, 0, acks)
    assert batch.frame is not None
    return batch.frame


def produce(
    port: int, topic: str, records: int, size: int, batch: int, *, acks: str, window: int, rate: float = 0
) -> int:
    """Send batches, `window` unconfirmed at most, and at most `rate` records per second (0: no limit);
    how many records were confirmed."""
    connection = Connection(port)
    connection.request(do="open_producer", handle=HANDLE, topic=topic, create=True)
    frames = [_frame(letters(size, batch), ACKS[acks]) for _ in range(16)]
    confirmed = sent = 0
    began = time.monotonic()
    while confirmed < records:
        if rate and confirmed == sent:
            time.sleep(max(sent / rate - (time.monotonic() - began), 0))
        while (
            sent < records
            and sent - confirmed < window * batch
            and (not rate or sent <= rate * (time.monotonic() - began))
        ):
            connection.send(frames[sent // batch % len(frames)])
            sent += batch
        confirmed += CONFIRM.unpack_from(connection.wait(kinds.CONFIRM)[1])[2]
    connection.close()
    return confirmed


def consume(
    port: int,
    topic: str,
    records: int,
    *,
    subscription: str = "",
    credit: int = 100_000,
    rate: float = 0,
) -> tuple[int, int]:
    """Read a topic from its beginning, by a reader or by a subscription of that name, which acknowledges, at
    most `rate` records per second (0: no limit); messages, bytes of frames."""
    connection = Connection(port)
    place = {"do": "subscribe", "subscription": subscription} if subscription else {"do": "read"}
    connection.request(**place, handle=HANDLE, topic=topic, start="earliest")
    grant = struct.Struct(">IBBHIII")
    connection.send(grant.pack(16, kinds.CREDIT, 0, 0, HANDLE, credit, 1 << 30))
    got = total = ungranted = ungranted_bytes = 0
    began = time.monotonic()
    while got < records:
        if rate:
            time.sleep(max(got / rate - (time.monotonic() - began), 0))
        kind, size, payload = connection.wait_for(kinds.DELIVER, kinds.DELIVER_STORED)
        if kind == kinds.DELIVER:
            first, count = struct.unpack_from(">QI", payload)
        else:
            first, _, count = struct.unpack_from(">QQI", payload)
        got += count
        total += size
        ungranted += count
        ungranted_bytes += size
        if subscription:
            ack = struct.pack(">IBBHQQ", 0, 0, 0, 0, first, first + count - 1)
            connection.send(HEAD.pack(len(ack) + 8, kinds.ACK, 0, 0, HANDLE) + ack)
        if 2 * ungranted >= credit:
            connection.send(grant.pack(16, kinds.CREDIT, 0, 0, HANDLE, ungranted, ungranted_bytes))
            ungranted = ungranted_bytes = 0
    connection.close()
    return got, total
