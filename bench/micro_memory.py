"""Memory of waiting and idle parts of the native protocol: bytes of the process for each.

    python -m bench.micro_memory [--count 10000]

    subscription  durable, shared, without a consumer
    consumer      of one shared subscription, without credit
    pull          that waits, of ten consumers of one connection
    message       delivered and not acknowledged, with what its consumer knows of it

Without sockets: sessions over a log in a temporary folder. A figure is what the resident set grew by.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.cpu import resident_bytes
from penstock.memory import give_back
from penstock.protocols.native.options import NativeOptions
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="memory of what waits and idles")
    parser.add_argument("--count", type=int, default=10_000, help="of each, [1000, 10000]")
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), NativeOptions(), segment_bytes=16 << 20)
        client = Client(world)
        client.request("open_producer", handle=1, topic="t", create=True)
        _subscribe(client, 2, "warm")
        _report("subscription", count, lambda: _subscriptions(world, client, count))
        _report("consumer", count, lambda: _consumers(world, count))
        _report("pull", count, lambda: _pulls(world, count))
        _report("message", count, lambda: _messages(world, client, count))
        world.close()


def _report(what: str, count: int, work: Callable[[], None]) -> None:
    gc.collect()
    give_back()
    before = resident_bytes(os.getpid())
    work()
    gc.collect()
    give_back()
    print(
        f"{what:14} {(resident_bytes(os.getpid()) - before) / count:8.0f} bytes each, of {count}", flush=True
    )


def _subscribe(client: Client, handle: int, name: str) -> None:
    asked = {"topic": "t", "subscription": name, "start": "latest", "create": True}
    found = client.request("subscribe", handle=handle, **asked)
    assert found == {"handle": handle}, found


def _subscriptions(world: World, client: Client, count: int) -> None:
    for i in range(count):
        _subscribe(client, 3, f"idle {i}")
        client.request("close", handle=3)
        client.take()


def _consumers(world: World, count: int) -> None:
    """Of two connections: each has so many handles at most."""
    for part in range(2):
        client = Client(world)
        for i in range(count // 2):
            _subscribe(client, i + 1, f"many {part}")
        client.take()


def _pulls(world: World, count: int) -> None:
    client = Client(world)
    for handle in range(1, 11):
        _subscribe(client, handle, "pulled")
    client.send(b"".join(wire.pull(1 + i % 10, i, 1, 1, 60_000) for i in range(count)))
    assert client.session.codec.outgoing.pulls == count


def _messages(world: World, producer: Client, count: int) -> None:
    client = Client(world)
    _subscribe(client, 1, "warm")
    client.send(wire.credit(1, count, 1 << 30))
    producer.produce(1, *[b""] * count)
    taker = client.session.codec.consumer(1)
    assert taker is not None and taker.unacked == count
    client.take()
    producer.take()


if __name__ == "__main__":
    main()
