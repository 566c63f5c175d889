"""How long a standby takes to make a folder anew out of Kafka: `python -m bench.cluster_rebuild --gib 10`.

An owner gets messages of 64 KiB that nobody consumes, until its folder has the size. Then a node with an
empty folder is started. Told are the seconds from when it follows until it has everything. There are as
many copies of the topic as brokers.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import MSG_DONTWAIT

from bench.cpu import cpu_seconds, resident_bytes
from bench.kafka import HEAP, jars
from bench.load_amqp import UNBLOCKED, Client, confirmed, message
from bench.report import machine
from penstock.config import Config
from tests.support.cluster import Node, make_nodes, start_brokers, wait_for_owner

SIZE = 64 * 1024


def fill(node: Node, nbytes: int) -> None:
    """Publish durable messages with confirms until they have so many bytes."""
    client = Client(node.amqp_port, capabilities=UNBLOCKED)
    client.socket.settimeout(None)  # with one, MSG_DONTWAIT would wait, too
    client.declare("q", durable=True)
    client.call(85, 10, b"\0", 11)
    chunk = message("q", SIZE, durable=True) * 16
    answered, rest = 0, b""
    for sent in range(0, nbytes, 16 * SIZE):
        client.socket.sendall(chunk)
        with suppress(BlockingIOError):
            answered, rest = confirmed(rest + client.socket.recv(1 << 16, MSG_DONTWAIT), answered)
        if sent % (1 << 30) == 0:
            print(f"{sent / 2**30:.0f} GiB are published", flush=True)
    while answered < nbytes // SIZE:
        answered, rest = confirmed(rest + client.socket.recv(1 << 16), answered)
    client.close()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_rebuild")
    parser.add_argument("--gib", type=float, default=10.0, help="size of the folder (default 10)")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    parser.add_argument("--data", metavar="DIR", help="where the data goes: five times the folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in machine().items()))
    log = Config().log
    sizes = {"log.segment_bytes": str(log.segment_bytes), "log.checkpoint_bytes": str(log.checkpoint_bytes)}
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-", dir=options.data)))
        brokers = start_brokers(ends, folder, jars(options.jars.absolute()), options.brokers, HEAP)
        owner, late = make_nodes(folder, brokers, "ab", None, **sizes)
        ends.callback(owner.kill9)
        owner.start()
        wait_for_owner([owner])
        fill(owner, int(options.gib * 2**30))
        ends.callback(late.kill9)
        late.start()
        whole = _bytes(owner)
        began, used = time.monotonic(), cpu_seconds(late.pid)
        told = 0
        while (made := _bytes(late)) < whole:
            if made >> 30 > told:
                told = made >> 30
                print(f"{told} GiB are made after {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(0.1)
        took_s, used = time.monotonic() - began, cpu_seconds(late.pid) - used
        [process] = late.children()
        print(
            f"{whole / 2**30:.2f} GiB in {took_s:.1f} s: {whole / took_s / 1e6:.0f} MB/s, "
            f"{used:.1f} s of CPU, {resident_bytes(process) / 2**20:.0f} MiB of memory"
        )
    return 0


def _bytes(node: Node) -> int:
    """Bytes in the blocks of the segments."""
    found = 0
    for path in node.data_dir.glob("shard-*/wal/*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found


if __name__ == "__main__":
    raise SystemExit(main())
