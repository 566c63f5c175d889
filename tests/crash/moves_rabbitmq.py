"""A live move from RabbitMQ over kills: python -m tests.crash.moves_rabbitmq [--messages N] [--queues N].

Queues with a backlog move one by one while a publisher and a consumer work on all of them. First the consumer
goes to the gateway, then the queue is drained, then the publisher goes, then the rest is drained. Both
brokers are killed meanwhile. With --reverse they move from the gateway to RabbitMQ. Then each confirmed
message must have been received, and no more may have come twice than kills may repeat. Exit code 0 only when
that holds.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pamqp import commands

from penstock.migrate.rabbitmq.shovel import WINDOW
from tests.support.amqp_client import Closed, Connection
from tests.support.brokers import ROOT, Broker, Gateway, RabbitMQ
from tests.support.management import SETTINGS

_BATCH = 100
_BACKLOG_BATCH = 1000
_START_S = 3600.0
_KEPT = commands.Basic.Properties(delivery_mode=2)


@dataclass
class Queue:
    """One queue, and the numbers of its messages."""

    name: str
    publishes_to: Broker
    consumes_from: Broker
    sent: int = 0
    """Numbers below it are given."""
    confirmed: set[int] = field(default_factory=set)
    received: dict[int, int] = field(default_factory=dict)
    """How often, by number."""


@dataclass
class Report:
    """The result of a run."""

    confirmed: int
    lost: int
    twice: int
    kills: int
    wanted_kills: int
    moved_s: float
    live: int
    """Messages that were published while the queues moved."""

    @property
    def ok(self) -> bool:
        """Whether nothing is lost over all kills, and duplicates are only those of kills."""
        # The consumer's own deliveries come again, too.
        return (
            self.lost == 0
            and self.kills == self.wanted_kills
            and self.twice <= self.kills * 2 * (WINDOW + _BATCH)
        )


class Client:
    """Works on all queues in turn, with one connection to each broker, which it makes again."""

    def __init__(
        self, queues: list[Queue], work: Callable[[Connection, Queue], bool], *, confirms: bool
    ) -> None:
        self._queues = queues
        self._work = work
        self._confirms = confirms
        self._open: dict[Broker, Connection] = {}

    def turn(self, broker_of: Callable[[Queue], Broker]) -> bool:
        """Work on each queue once; whether there was anything to do."""
        return any([self._one(queue, broker_of(queue)) for queue in self._queues])

    def _one(self, queue: Queue, broker: Broker) -> bool:
        try:
            if broker not in self._open:
                self._open[broker] = Connection(broker.amqp_port)
                self._open[broker].channel()
                if self._confirms:
                    self._open[broker].call(1, commands.Confirm.Select())
            return self._work(self._open[broker], queue)
        except (OSError, Closed):
            # It was killed, and is started again.
            if (broken := self._open.pop(broker, None)) is not None:
                broken.socket.close()
            return True

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


class Publisher:
    """Publishes batches of numbers, with the queue's name as routing key, and waits for their confirms."""

    def __init__(self, exchange: str = "", batch: int = _BATCH) -> None:
        self._exchange = exchange
        self._batch = batch
        self._numbers: dict[Connection, int] = {}

    def __call__(self, connection: Connection, queue: Queue) -> bool:
        first = queue.sent
        # A batch whose confirms do not come may be there or not: its numbers are not used again.
        queue.sent += self._batch
        for number in range(first, queue.sent):
            connection.publish(1, self._exchange, queue.name, b"%d" % number, properties=_KEPT)
        before = self._numbers.get(connection, 0)
        reached, single = before, set[int]()
        while reached + len(single) < before + self._batch:
            ack = connection.wait_for(commands.Basic.Ack)
            assert isinstance(ack, commands.Basic.Ack)
            if ack.multiple:
                reached = ack.delivery_tag
                single = {tag for tag in single if tag > reached}
            else:
                single.add(ack.delivery_tag)
        self._numbers[connection] = before + self._batch
        queue.confirmed.update(range(first, queue.sent))
        return True


def consume(connection: Connection, queue: Queue) -> bool:
    """Take a batch of a queue, and acknowledge it; whether there was anything."""
    return bool(taken(connection, queue))


def taken(connection: Connection, queue: Queue) -> list[int]:
    """The numbers of a batch of a queue, which is acknowledged."""
    got, tag = list[int](), 0
    # One, to see whether there is anything, and then the others at once.
    for count in (1, _BATCH - 1):
        for _ in range(count):
            connection.send(1, commands.Basic.Get(queue=queue.name))
        for _ in range(count):
            _, answer = connection.read()
            if isinstance(answer, commands.Basic.GetOk):
                connection.read()
                _, body = connection.read()
                number = int(body.value)  # type: ignore[attr-defined]
                queue.received[number] = queue.received.get(number, 0) + 1
                got.append(number)
                tag = answer.delivery_tag
        if not got:
            break
    if got:
        connection.send(1, commands.Basic.Ack(tag, multiple=True))
    return got


@contextmanager
def working(turn: Callable[[], bool], *, pause_s: float = 0.0) -> Iterator[None]:
    """Call it again and again in a thread, with pauses, and begin nothing new at the end."""
    stopping = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            while not stopping.wait(pause_s):
                turn()
        except Exception as error:  # raised below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    if failures:
        raise failures[0]


@dataclass
class Move:
    """The two brokers, and the way between them."""

    rabbitmq: RabbitMQ
    gateway: Gateway
    reverse: bool

    @property
    def source(self) -> Broker:
        return self.gateway if self.reverse else self.rabbitmq

    @property
    def target(self) -> Broker:
        return self.rabbitmq if self.reverse else self.gateway

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Begin to move what the words say."""
        rabbitmq = f"http://guest:guest@127.0.0.1:{self.rabbitmq.management_port}"
        gateway = f"http://guest:guest@127.0.0.1:{self.gateway.ports['management']}"
        command = [sys.executable, "-m", "penstock", "migrate", "rabbitmq", rabbitmq, "--url", gateway]
        command += ["--wait", f"{_START_S:g}", "--apply", *(["--reverse"] if self.reverse else [])]
        return subprocess.Popen([*command, *words], env={**os.environ, "PYTHONPATH": str(ROOT / "src")})

    def all(self, *words: str) -> None:
        """Move what the words say."""
        assert self.start(*words).wait() == 0


def run(
    folder: Path, *, messages: int, queues: int, rate: int, kills: int, seed: int, reverse: bool = False
) -> Report:
    """Move, and compare; meanwhile at most `rate` messages a second are published."""
    chance = random.Random(seed)
    with (
        RabbitMQ(folder / "rabbitmq", plugins=("rabbitmq_management",)) as rabbitmq,
        Gateway(folder / "target", settings={**SETTINGS, "server.login_timeout_s": "5m"}) as gateway,
    ):
        # With a large backlog it takes minutes to start again after a kill, on a loaded machine far more.
        rabbitmq.start_timeout_s = _START_S
        # The port of the management API stays over a restart.
        gateway.settings["management.listen"] = f"127.0.0.1:{gateway.ports['management']}"
        move = Move(rabbitmq, gateway, reverse)
        source, target = move.source, move.target
        all_queues = [Queue(f"q{number}", source, source) for number in range(queues)]
        with Connection(source.amqp_port) as connection:
            connection.channel()
            for queue in all_queues:
                connection.call(1, commands.Queue.Declare(queue=queue.name, durable=True))
        filler = Client(all_queues, Publisher(batch=_BACKLOG_BATCH), confirms=True)
        while sum(queue.sent for queue in all_queues) < messages:
            filler.turn(lambda queue: queue.publishes_to)
        filler.close()
        publisher = Client(all_queues, Publisher(), confirms=True)
        consumer = Client(all_queues, consume, confirms=False)
        backlog = sum(queue.sent for queue in all_queues)
        began = time.monotonic()
        move.all("--only", "definitions")
        # A kill waits for the next queue when the move of its own was too quick for it.
        numbers = deque(sorted(chance.sample(range(queues), kills)))
        doomed = deque((source, target)[at % 2] for at in range(kills))
        with (
            working(lambda: publisher.turn(lambda queue: queue.publishes_to), pause_s=queues * _BATCH / rate),
            working(lambda: consumer.turn(lambda queue: queue.consumes_from)),
        ):
            for number, queue in enumerate(all_queues):
                queue.consumes_from = target
                moving = move.start("--only", "messages", "--queues", queue.name)
                if numbers and numbers[0] <= number and _takes(moving, source, queue.name):
                    doomed[0].kill9()
                    doomed[0].start()
                    doomed.popleft()
                    numbers.popleft()
                assert moving.wait() == 0
                queue.publishes_to = target
                move.all("--only", "messages", "--queues", queue.name)
        moved_s = time.monotonic() - began
        publisher.close()
        # A batch that was on its way when its queue changed sides.
        move.all("--only", "messages")
        while consumer.turn(lambda queue: queue.consumes_from):
            pass
        consumer.close()
    return Report(
        confirmed=sum(len(queue.confirmed) for queue in all_queues),
        lost=sum(len(queue.confirmed - queue.received.keys()) for queue in all_queues),
        twice=sum(sum(queue.received.values()) - len(queue.received) for queue in all_queues),
        kills=kills - len(doomed),
        wanted_kills=kills,
        moved_s=moved_s,
        live=sum(queue.sent for queue in all_queues) - backlog,
    )


def _takes(moving: subprocess.Popen[bytes], broker: Broker, queue: str) -> bool:
    """Wait until the move consumes a queue; False: it ended before that was seen.

    The publisher and the consumer of this check do not consume.
    """
    with Connection(broker.amqp_port) as connection:
        connection.channel()
        while moving.poll() is None:
            found = connection.call(1, commands.Queue.Declare(queue=queue, passive=True))
            assert isinstance(found, commands.Queue.DeclareOk)
            if found.consumer_count:
                return True
    return False


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.moves_rabbitmq")
    parser.add_argument("--messages", type=int, default=1_000_000, help="of the backlog")
    parser.add_argument("--queues", type=int, default=50)
    parser.add_argument("--rate", type=int, default=1000, help="messages published a second meanwhile")
    parser.add_argument("--kills", type=int, default=4, help="of RabbitMQ and the gateway in turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reverse", action="store_true", help="from the gateway to RabbitMQ")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-moves-") as folder:
        report = run(
            Path(folder),
            messages=options.messages,
            queues=options.queues,
            rate=options.rate,
            kills=options.kills,
            seed=options.seed,
            reverse=options.reverse,
        )
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
