"""Filters of AMQP 1.0: python -m bench.amqp10_filters [--messages N]

A stream has N messages that do not pass, and behind them one that does. Receivers read it from the beginning
until that one comes, with one filter after the other. The figure is the CPU time of the gateway for each
message.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

import pika

from bench.amqp10 import Peer
from bench.cpu import cpu_seconds, wait_until_idle
from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.frames import encode_frame, encode_transfer
from penstock.protocols.amqp10.codec.performatives import Flow, Source, Target
from penstock.protocols.amqp10.messages import sections as s
from tests.support.brokers import Gateway

_QUEUE: Final = "filtered"
_AT_ONCE: Final = 500
_HUGE: Final = 2**31 - 1
_SELECTOR: Final = "amqp:sql-filter"
_FILTERS: Final[dict[str, tuple[str, Any]]] = {
    "one application property": ("amqp:application-properties-filter", {"color": "red"}),
    "a selector with two comparisons": (_SELECTOR, "color = 'red' AND number > 5"),
    "a selector with LIKE": (_SELECTOR, "color LIKE 'r%'"),
    "a selector with arithmetic": (_SELECTOR, "number + 1 > 100"),
}


def _message(color: str, number: int) -> bytes:
    properties = {"color": color, "number": v.Int(number)}
    sections = ((s.HEADER, [True]), (s.APPLICATION_PROPERTIES, properties), (s.DATA, bytes(100)))
    return b"".join(s.encode_section(code, value) for code, value in sections)


def fill(port: int, count: int) -> None:
    """Publish `count` messages that do not pass, and one that does."""
    peer = Peer(port, Target(f"/queues/{_QUEUE}"), settled=True)
    other, last = _message("blue", 7), _message("red", 100)
    sent = credit = 0
    while sent <= count:
        if credit == 0:
            performative, _ = peer.frame()
            if isinstance(performative, Flow) and performative.link_credit is not None:
                credit = (performative.delivery_count or 0) + performative.link_credit - sent
            continue
        n = min(credit, _AT_ONCE, count + 1 - sent)
        payloads = (last if sent + i == count else other for i in range(n))
        frames = (encode_transfer(0, 0, sent + i, True, False, one) for i, one in enumerate(payloads))
        peer.socket.sendall(b"".join(frames))
        sent, credit = sent + n, credit - n
    peer.socket.close()


def read(port: int, name: str, value: object) -> None:
    """Read the stream from its beginning until a message passes."""
    filters = {v.Symbol("rabbitmq:stream-offset-spec"): "first", v.Symbol(name): value}
    described = {key: v.Described(key, one) for key, one in filters.items()}
    peer = Peer(port, Source(f"/queues/{_QUEUE}", filter=described), settled=True)
    peer.socket.sendall(encode_frame(0, Flow(peer.first_id, _HUGE, 0, _HUGE, 0, 0, 1)))
    while not peer.transfers():
        peer.more()
    peer.socket.close()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.amqp10_filters", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-filters-") as folder, Gateway(Path(folder)) as gateway:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
            connection.channel().queue_declare(_QUEUE, durable=True, arguments={"x-queue-type": "stream"})
        fill(gateway.amqp_port, options.messages)
        found: dict[str, list[float]] = {name: [] for name in _FILTERS}
        for _ in range(options.repeat):
            for name, (kind, value) in _FILTERS.items():
                wait_until_idle(gateway.pid)
                before = cpu_seconds(gateway.pid)
                read(gateway.amqp_port, kind, value)
                found[name].append((cpu_seconds(gateway.pid) - before) * 1e6 / options.messages)
    for name, each in found.items():
        print(f"{name:32} {statistics.median(each):6.2f} us ({min(each):.2f} to {max(each):.2f})")


if __name__ == "__main__":
    main()
