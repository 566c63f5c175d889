"""Cost of the AMQP kernels per message: scanning and appending, delivering, acknowledging.

    python bench/micro_amqp.py [--reads 20] [--size 100]

One queue, one channel with confirms, reads of 256 KiB. Prints nanoseconds per message, the best of the reads:
from the bytes of a read into the open batch; from the batch into the output as basic.deliver; and from single
basic.acks to a settled cursor. The log is in a temporary folder; its writes and the cursor's take are not
measured.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from pathlib import Path

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.amqp.codec._channel import Channel, Consumer
from penstock.protocols.amqp.codec._codec import Codec
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.protocols.properties._tables import encode_table
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.broker import Broker
from penstock.subscriptions.tick.tick import Tick

READ = 262_144


class NoLoop:
    """Nothing runs by itself here."""

    def time(self) -> float:
        return 0.0

    def call_soon(self, *_: object) -> None:
        """The queue is pumped by hand."""

    def call_later(self, *_: object) -> NoLoop:
        return self

    def cancel(self) -> None:
        """Nothing was scheduled."""


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"


def message(properties: bytes, size: int) -> bytes:
    return (
        frame(1, struct.pack(">HHH", 60, 40, 0) + b"\0\x01q\0")
        + frame(2, struct.pack(">HHQ", 60, 0, size) + properties)
        + frame(3, bytes(size))
    )


def measure(broker: Broker, log: Log, one: bytes, reads: int) -> tuple[float, float, float]:
    """Seconds per message of scanning, delivering and acknowledging."""
    vhost = broker.vhost("/")
    actor = Actor(Identity("guest"), object())
    queue = vhost.declare_queue("q", actor).queue
    codec = Codec(OutBuffer(), 131_072, 1 << 27)
    codec.open(vhost.publisher(actor.identity, 1), log.appender, b"guest")
    channel = Channel(1, codec.out, 131_072, None, lambda: None)
    channel.confirm_select()
    codec.add_channel(channel)
    consumer = Consumer(channel, b"ctag1", queue, False, 0, 0, lambda: 1 << 30, lambda *_: None)
    consumer.attached = True
    count = READ // len(one)
    stream = bytearray(one * count)
    best = [float("inf")] * 3
    for _ in range(reads):
        codec.feed(stream, 0, len(stream))
        started = time.perf_counter()
        assert codec.next() is None
        scanned = time.perf_counter() - started
        log.flush()
        codec.confirm(log.written_lsn, log.written_lsn)
        first, delivered, taken = channel.next_tag, 0.0, 0
        while taken < count:
            taken += queue.cursor.take(1024)
            started = time.perf_counter()
            consumer.deliver(queue.cursor, 0, 1)
            delivered += time.perf_counter() - started
        codec.out.take()
        tags = range(first, channel.next_tag)
        acks = bytearray(b"".join(frame(1, struct.pack(">HHQB", 60, 80, tag, 0)) for tag in tags))
        codec.feed(acks, 0, len(acks))
        started = time.perf_counter()
        assert codec.next() is None
        settled = time.perf_counter() - started
        assert queue.cursor.outstanding == 0
        log.unwritten.take_dirty()
        best = [min(pair) for pair in zip(best, (scanned, delivered, settled), strict=True)]
    return best[0] / count, best[1] / count, best[2] / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reads", type=int, default=20, help="reads of 256 KiB")
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    options = parser.parse_args()
    headers = encode_table({f"header-{i}": "some value" for i in range(8)})
    kinds = {
        "delivery-mode only": struct.pack(">HB", 0x1000, 2),
        "8 headers": struct.pack(">H", 0x3000) + headers + b"\x02",
    }
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder), LogOptions())
        broker = Broker.open(log, Tick(log, NoLoop()))
        print(f"{'ns per message':20} {'scan+append':>12} {'deliver':>9} {'ack':>6}")
        for name, properties in kinds.items():
            scan, deliver, ack = measure(broker, log, message(properties, options.size), options.reads)
            print(f"{name:20} {scan * 1e9:12.0f} {deliver * 1e9:9.0f} {ack * 1e9:6.0f}")
        broker.close()
        log.close_sync()


if __name__ == "__main__":
    main()
