"""Cost of very many durable queues: to declare, in memory while idle, to publish to all, to start with.

    python -m bench.many_queues [--queues 100000] [--fanout 10000]

Without sockets: the router over a log in a temporary folder, syncing off, so that the figures are the CPU's.
Three processes, one after the other, over the same folder:

    declares the queues, and is killed
    starts with them; binds `fanout` of them to a fanout exchange, publishes, sets a policy for all; stops
    starts with that

Memory is what a process grew by (its resident set), rows in the log's tables included. While queues are
declared that counts the part of the log that is still in memory, too; the figure for an idle queue is that of
the process that starts with them.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.memory import give_back, return_large_blocks
from penstock.router.authentication.users import AuthOptions
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.broker import DEFAULT_VHOST, Broker, BrokerOptions
from penstock.router.names import ENC_AMQP091, join_key_block
from penstock.router.policies.policies import Policy
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.tick.tick import Tick

FLUSH_EACH = 1000


MESSAGES = 10_000
ACTOR = Actor(Identity("guest"), object())


class _Loop:
    """A loop that runs nothing by itself, and keeps what is to be called at once."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: object, *args: object) -> None: ...
    def call_later(self, delay: float, callback: Callable[[], object], *args: object) -> None:
        if delay == 0:
            self.due.append(callback)

    def time(self) -> float:
        return 0.0


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_broker(folder: Path) -> tuple[Log, Broker, Vhost, _Loop]:
    """A broker over the data in `folder`."""
    return_large_blocks()
    loop = _Loop()
    log = Log.open(folder, LogOptions(fsync="never"))
    broker = Broker.open(log, Tick(log, loop), BrokerOptions(auth=AuthOptions(default_user="")))
    give_back()  # as the server does, here and above
    return log, broker, broker.vhost(DEFAULT_VHOST), loop


def declare(log: Log, vhost: Vhost, actor: Actor, names: list[str]) -> None:
    """Durable queues, written now and then as a tick does."""
    for i, name in enumerate(names):
        vhost.declare_queue(name, actor, durable=True)
        if i % FLUSH_EACH == FLUSH_EACH - 1:
            log.flush()
    log.flush()


def start(folder: Path, how: str) -> tuple[Log, Broker, Vhost, _Loop]:
    """A broker over what another one left, and a line that says how long that took."""
    began = time.perf_counter()
    opened = open_broker(folder)
    print(f"{f'start after {how}':44} {time.perf_counter() - began:10.2f} s", flush=True)
    return opened


def make(folder: Path, queues: int, fanout: int) -> None:
    """The first process."""
    log, broker, vhost, _ = open_broker(folder)
    broker.authorizer.set("guest", DEFAULT_VHOST, Permission())
    declare(log, vhost, ACTOR, ["warm"])
    before = resident()
    began = time.perf_counter()
    declare(log, vhost, ACTOR, [f"queue-{i:06}" for i in range(queues)])
    seconds = time.perf_counter() - began
    print(f"{'declare':44} {queues / seconds:10,.0f} queues/s")
    print(
        f"{'declared queue, log in memory included':44} {(resident() - before) / queues:10,.0f} bytes",
        flush=True,
    )
    os.kill(os.getpid(), signal.SIGKILL)


def use(folder: Path, queues: int, fanout: int) -> None:
    """The second one."""
    with tempfile.TemporaryDirectory() as empty:
        log, broker, *_ = open_broker(Path(empty) / "data")
        broker.close()
        log.close_sync()
        del log, broker, _
    before = resident()
    log, broker, vhost, loop = start(folder, "kill -9")
    idle = (resident() - before) / queues
    print(f"{'idle durable queue, rows included':44} {idle:10,.0f} bytes")

    vhost.declare_exchange("fan", "fanout", ACTOR, durable=True)
    before = resident()
    began = time.perf_counter()
    for i in range(fanout):
        vhost.bind_queue(f"queue-{i:06}", "fan", "", ACTOR)
        if i % FLUSH_EACH == FLUSH_EACH - 1:
            log.flush()
    log.flush()
    seconds = time.perf_counter() - began
    bound = (resident() - before) / fanout
    print(f"{'bind':44} {fanout / seconds:10,.0f} bindings/s")
    print(f"{'binding and membership, rows included':44} {bound:10,.0f} bytes")

    table = vhost.publisher(ACTOR.identity, ENC_AMQP091)
    key = join_key_block("fan", "")
    table.route(key)
    began = time.process_time()
    for _ in range(MESSAGES):
        route = table.route(key)
        log.appender.append_record(
            route.lp, route.target, key, b"\0\0", b"x" * 100, PERSISTENT, 0, ENC_AMQP091
        )
    log.flush()
    micro = (time.process_time() - began) / MESSAGES * 1e6
    print(f"{f'publish to {fanout:,} offline queues':44} {micro:10.2f} us of CPU")

    gc.collect()
    gc.freeze()  # as the server does with what stands
    gc.set_threshold(50_000, 50, 100)
    began = time.thread_time()
    vhost.set_policy("policy", Policy("all", "", {"message-ttl": 10**9}))
    longest = time.thread_time() - began
    while loop.due:
        began = time.thread_time()
        loop.due.popleft()()
        longest = max(longest, time.thread_time() - began)
    assert all(entry.effective for entry in vhost.queues.values())
    print(f"{'policy for all of them, longest turn, CPU':44} {longest * 1000:10.1f} ms", flush=True)
    broker.close()
    log.close_sync()


def end(folder: Path, queues: int, fanout: int) -> None:
    """The third one."""
    log, broker, vhost, _ = start(folder, "a clean stop")
    assert len(vhost.queues) == queues + 1
    assert vhost.queue("queue-000000", ACTOR).ready_count == MESSAGES
    broker.close()
    log.close_sync()


STEPS = {"make": make, "use": use, "end": end}


def main() -> None:
    """Run all and print a line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--fanout", type=int, default=10_000)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        STEPS[arguments.step](arguments.folder, arguments.queues, arguments.fanout)
        return
    with tempfile.TemporaryDirectory() as folder:
        for step in STEPS:
            options = ["--step", step, "--folder", f"{folder}/data"]
            numbers = ["--queues", str(arguments.queues), "--fanout", str(arguments.fanout)]
            done = subprocess.run([sys.executable, "-m", "bench.many_queues", *options, *numbers])
            if done.returncode != (-signal.SIGKILL if step == "make" else 0):
                sys.exit(f"{step} failed")


if __name__ == "__main__":
    main()
