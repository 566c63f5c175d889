"""How long a publisher waits for a confirm while the log has other work: `python -m bench.publish_latency`.

One publisher sends a persistent message of 1 KiB every 5 ms, whatever became of the one before, and notes
when each is confirmed; time counts from when a message was due, so that a stall counts for all that it holds
up. The other work, each beside the same without it, in turns, in one gateway or two:

    behind    ten consumers of ten queues read backlogs that have left memory, at --behind MB/s together; in
              both, 10 MB/s are published to a queue that is consumed, whose batches should be in the tail
    sealing   --ingest MB/s are published to a queue that is consumed, and every hundredth chunk to one that
              is not; without: traffic retention keeps all segments as they are, with: none, so each segment
              is rewritten with what the stuck queue needs, compressed

Clients are processes on the same machine: with few cores they take CPU from the gateway. Printed per case:
the quotient of the medians of p99 (or p50) over the rounds; and for `behind` how often the gateway found a
batch in the tail, in the read cache, and in neither.
"""

from __future__ import annotations

import argparse
import random
import selectors
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median, quantiles
from urllib.request import urlopen

from bench.cpu import cpu_seconds
from bench.load_amqp import CONFIRM_BYTES, UNBLOCKED, Client, frame, message, method, short_string
from tests.support.brokers import Gateway

EACH_S = 0.005
SIZE = 1024
_fork = get_context("fork")


def bulk(queue: str, count: int) -> bytes:
    """The frames of `count` persistent messages to a queue, with bodies of which half can be compressed."""
    rng = random.Random(queue)
    publish = method(1, 60, 40, b"\0\0" + short_string("") + short_string(queue) + b"\0")
    header = frame(2, 1, struct.pack(">HHQH", 60, 0, SIZE, 0x1000) + b"\2")
    return b"".join(
        publish + header + frame(3, 1, rng.randbytes(SIZE // 2).ljust(SIZE)) for _ in range(count)
    )


def declare(port: int, queues: Sequence[str]) -> None:
    """Durable queues of these names."""
    client = Client(port)
    for queue in queues:
        client.declare(queue, durable=True)
    client.close()


def probe(
    port: int, seconds: float, *, each_s: float = EACH_S, size: int = SIZE, quorum: bool = False
) -> list[float]:
    """Seconds from when each message was due, one each `each_s`, until its confirm."""
    client = Client(port)
    client.declare("probe", durable=True, quorum=quorum)
    client.call(60, 20, b"\0\0" + short_string("probe") + short_string("t") + b"\2" + b"\0\0\0\0", 21)
    client.close()
    client = Client(port, capabilities=UNBLOCKED)
    client.declare("probe", durable=True, quorum=quorum)
    client.call(85, 10, b"\0", 11)
    client.socket.setblocking(False)
    one = message("probe", size, durable=True)
    took: list[float] = []
    answers = bytearray()
    sent = 0
    begins = time.monotonic()
    total = int(seconds / each_s)
    with selectors.SelectSelector() as selector:  # waits by the microsecond, epoll by the millisecond
        selector.register(client.socket, selectors.EVENT_READ)
        while len(took) < total:
            due = begins + sent * each_s
            now = time.monotonic()
            if sent < total and now >= due:
                client.socket.setblocking(True)
                client.socket.sendall(one)
                client.socket.setblocking(False)
                sent += 1
                continue
            if not selector.select(max(due - now, 0) if sent < total else 60):
                assert sent < total, "no confirm for 60 s"
                continue
            answers += client.socket.recv(65536)
            now = time.monotonic()
            while len(answers) >= CONFIRM_BYTES:
                (tag,) = struct.unpack_from(">Q", answers, 11)
                del answers[:CONFIRM_BYTES]
                while len(took) < tag:
                    took.append(now - begins - len(took) * each_s)
    client.socket.setblocking(True)
    client.call(50, 30, b"\0\0" + short_string("probe") + b"\0", 31)  # purge
    client.close()
    return took


def feed(
    port: int, queues: Sequence[str], rate: float, running: Synchronized[int], moved: Synchronized[int]
) -> None:
    """Publish `rate` bytes per second to the first queue, each hundredth chunk to the second."""
    client = Client(port)
    client.socket.settimeout(60)
    chunks = [bulk(queue, 64) for queue in queues]
    begins = time.monotonic()
    sent = number = 0
    while running.value:
        time.sleep(max(0.0, begins + sent / rate - time.monotonic()))
        chunk = chunks[number % 100 == 99]
        client.socket.sendall(chunk)
        sent += len(chunk)
        moved.value = sent
        number += 1


def drain(port: int, queue: str, rate: float, running: Synchronized[int], moved: Synchronized[int]) -> None:
    """Consume and acknowledge `rate` bytes per second (0: as they come)."""
    client = Client(port)
    client.call(60, 10, struct.pack(">IH", 0, 500) + b"\0", 11)
    client.call(60, 20, b"\0\0" + short_string(queue) + short_string("t") + b"\0" + b"\0\0\0\0", 21)
    client.socket.settimeout(0.2)
    one = len(frame(1, 1, b"\0" * 4 + short_string("t") + b"\0" * 9 + short_string("") + short_string(queue)))
    one += len(frame(2, 1, b"\0" * 15)) + len(frame(3, 1, b"\0" * SIZE))
    begins = time.monotonic()
    got = tag = 0
    while running.value:
        try:
            got += len(client.socket.recv(1 << 18))
        except TimeoutError:
            continue
        moved.value = got
        if got // one > tag:
            tag = got // one
            client.socket.sendall(method(1, 60, 80, struct.pack(">QB", tag, 1)))
        if rate:
            time.sleep(max(0.0, begins + got / rate - time.monotonic()))


@contextmanager
def beside(*work: tuple[object, ...]) -> Iterator[Sequence[Synchronized[int]]]:
    """These (function, *arguments) in processes of their own, meanwhile; the bytes that each has moved."""
    running = _fork.Value("i", 1)
    moved = [_fork.Value("q", 0) for _ in work]
    made = [
        _fork.Process(target=one[0], args=(*one[1:], running, count), daemon=True)  # type: ignore[arg-type]
        for one, count in zip(work, moved, strict=True)
    ]
    for process in made:
        process.start()
    try:
        yield moved
    finally:
        running.value = 0
        for process in made:
            process.join(90)
            assert process.exitcode == 0, "a client failed"


def lookups(gateway: Gateway) -> tuple[int, ...]:
    """Batches found in the tail, in the read cache, and in neither."""
    if "metrics" not in gateway.ports:
        return ()
    with urlopen(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=30) as answer:
        values = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    names = ("tail_hits", "read_hits", "cache_misses")
    return tuple(int(float(values[f"penstock_log_{name}_total"])) for name in names)


def measured(
    gateway: Gateway, what: str, seconds: float, moved: Sequence[Synchronized[int]] = ()
) -> tuple[float, float]:
    """Probe a gateway and print a line; p50 and p99."""
    found = lookups(gateway)
    cpu_s, began, before = cpu_seconds(gateway.pid), time.monotonic(), sum(count.value for count in moved)
    took = probe(gateway.amqp_port, seconds)
    cpu_s = cpu_seconds(gateway.pid) - cpu_s
    took_s, after = time.monotonic() - began, sum(count.value for count in moved)
    cuts = quantiles(took, n=1000)
    p50, p99 = cuts[499], cuts[989]
    print(
        f"{what:12} p50 {p50 * 1e3:7.2f}  p99 {p99 * 1e3:7.2f}  p99.9 {cuts[998] * 1e3:7.2f}  "
        f"max {max(took) * 1e3:7.2f} ms  gateway {cpu_s / took_s:4.2f} cores  "
        f"beside it {(after - before) / took_s / 1e6:4.0f} MB/s",
        flush=True,
    )
    if found:
        tail, read, neither = (now - then for now, then in zip(lookups(gateway), found, strict=True))
        print(
            f"             found in the tail {tail}, in the read cache {read}, in neither {neither}",
            flush=True,
        )
    return p50, p99


def compared(what: str, without: Sequence[tuple[float, float]], with_: Sequence[tuple[float, float]]) -> None:
    """Print how much longer it took."""
    quotients = [median(one[at] for one in with_) / median(one[at] for one in without) for at in (0, 1)]
    print(f"{what}: p50 x {quotients[0]:.2f}, p99 x {quotients[1]:.2f}\n", flush=True)


def behind(folder: Path, rounds: int, seconds: float, rate: float) -> None:
    """Ten consumers that catch up."""
    queues = [f"behind-{number}" for number in range(10)]
    with Gateway(folder, settings={"metrics.listen": "127.0.0.1:0"}) as gateway:
        declare(gateway.amqp_port, [*queues, "live"])
        each = int(rate * seconds * rounds * 1.3 / len(queues)) or 96 << 20
        client = Client(gateway.amqp_port)
        client.socket.settimeout(120)
        client.call(85, 10, b"\0", 11)
        for queue in queues:
            chunk = bulk(queue, 64)
            for _ in range(each // len(chunk) + 1):
                client.socket.sendall(chunk)
        client.close()
        gateway.restart()  # nothing of it is in memory
        without, with_ = [], []
        port = gateway.amqp_port
        live = [(feed, port, ["live", "live"], 10e6), (drain, port, "live", 0.0)]
        for _ in range(rounds):
            with beside(*live):
                without.append(measured(gateway, "alone", seconds))
            work = [(drain, port, queue, rate / len(queues)) for queue in queues]
            with beside(*live), beside(*work) as moved:
                with_.append(measured(gateway, "10 behind", seconds, moved))
        compared(f"ten consumers behind, {rate / 1e6:.0f} MB/s", without, with_)


def sealing(folder: Path, rounds: int, seconds: float, rate: float) -> None:
    """Segments that are rewritten while they are written."""
    figures: dict[str, list[tuple[float, float]]] = {"not sealing": [], "sealing": []}
    gateways = {
        "not sealing": Gateway(folder / "without", settings={"log.checkpoint_bytes": "64MiB"}),
        "sealing": Gateway(
            folder / "with", settings={"log.checkpoint_bytes": "64MiB", "log.traffic_retention_bytes": "0"}
        ),
    }
    for _ in range(rounds):
        for what, gateway in gateways.items():
            with gateway:
                declare(gateway.amqp_port, ["busy", "stuck"])
                port = gateway.amqp_port
                work = [(feed, port, ["busy", "stuck"], rate), (drain, port, "busy", 0.0)]
                with beside(*work) as moved:
                    probe(port, 4.0)  # until segments are closed and checkpoints behind them
                    figures[what].append(measured(gateway, what, seconds, moved[:1]))
                sizes = [path.stat().st_size for path in (gateway.data_dir / "shard-000" / "wal").iterdir()]
                print(f"             {len(sizes)} segments, {sum(sizes) / 1e6:.0f} MB", flush=True)
    compared(f"sealing at {rate / 1e6:.0f} MB/s", figures["not sealing"], figures["sealing"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="per line (default 8)")
    parser.add_argument("--behind", type=float, default=40.0, help="MB/s of the ten consumers together")
    parser.add_argument("--ingest", type=float, default=100.0, help="MB/s")
    parser.add_argument("--case", choices=["behind", "sealing"], default=None, help="only this one")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-latency-") as name:
        if chosen.case in (None, "behind"):
            behind(Path(name) / "behind", chosen.rounds, chosen.seconds, chosen.behind * 1e6)
        if chosen.case in (None, "sealing"):
            sealing(Path(name) / "sealing", chosen.rounds, chosen.seconds, chosen.ingest * 1e6)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
