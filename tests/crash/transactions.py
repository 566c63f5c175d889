"""Transactions over kills: python -m tests.crash.transactions --cycles 50 [--seed N].

Three clients, over the SDK, AMQP (tx) and HTTP, take numbered messages from inputs of their own. Each is put
into two outputs and acknowledged in one transaction; some transactions are rolled back before. Meanwhile the
gateway is killed again and again, and somebody reads the outputs. At the end the run compares their content:

    all or nothing    a number is in both outputs, or in none, and in each once, though its input comes again
                      when its transaction did not happen
    kept              whatever was confirmed as input, or as committed, is in them
    read committed    nothing was ever read that is not in both outputs in the end, or was rolled back

Exit code 0 only when all of that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pika
import pika.exceptions

import penstock
from penstock.sdk.errors import ClientError, ConnectionLost
from tests.support.brokers import Gateway, free_port
from tests.support.data_plane import SERVED, make_queue, open_client

_FED_AT_ONCE = 40
_UNDONE = 0.2
"""Of the transactions so many are rolled back, and done again."""
_WAIT_S = 240.0
"""An event that has not happened by then will never happen."""
_PAUSE_S = 0.05
"""Between tries to connect: a gateway that starts needs the core."""
_UNDONE_BODY = "undone"
_STREAMS = ("sdk-a", "sdk-b", "http-b")
"""Of the outputs; the others are queues."""


@dataclass
class Report:
    """The result of a run."""

    committed: int
    rolled_back: int
    kills: int
    inputs: int
    torn: int = 0
    """Numbers that are in one output, and not in the other."""
    twice: int = 0
    lost: int = 0
    undone: int = 0
    """Outputs that were rolled back, but are present or were read."""
    phantoms: int = 0
    """Outputs that a reader got, but that are missing at the end."""

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not (self.torn or self.twice or self.lost or self.undone or self.phantoms)


class Worker(threading.Thread):
    """A client: what it was told, by number. `work` ends when nothing is left, or the gateway is lost."""

    name = ""
    gone: tuple[type[Exception], ...] = ()
    """The errors that the client raises when the gateway dies."""

    def __init__(self, gateway: Gateway, seed: int) -> None:
        super().__init__(daemon=True)
        self.gateway = gateway
        self.chance = random.Random(seed)
        self.ending = threading.Event()
        self.confirmed: set[str] = set()
        self.committed: set[str] = set()
        self.rolled_back = 0
        self.failure: BaseException | None = None
        self._made = 0

    @property
    def outputs(self) -> tuple[str, str]:
        """The names of its outputs."""
        return f"{self.name}-a", f"{self.name}-b"

    def run(self) -> None:
        """Work, over as many connections as it takes."""
        ends = time.monotonic() + 10 * _WAIT_S
        try:
            while time.monotonic() < ends:
                try:
                    self.work()
                except self.gone:
                    time.sleep(_PAUSE_S)
                    continue
                return
            raise TimeoutError(f"{self.name} came to no end")
        except BaseException as error:
            self.failure = error
            raise

    def work(self) -> None:
        raise NotImplementedError

    def next_inputs(self) -> list[str]:
        """Numbers that were never used: what becomes of an input without a confirm, nobody knows."""
        if self.ending.is_set():
            return []
        self._made += _FED_AT_ONCE
        return [str(number) for number in range(self._made - _FED_AT_ONCE, self._made)]

    def undoes(self) -> bool:
        """Whether the next transaction is rolled back first."""
        return self.chance.random() < _UNDONE


class Sdk(Worker):
    """Two topics and a subscription."""

    name = "sdk"
    gone = (ConnectionLost,)

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        a, b = self.outputs
        async with (
            penstock.connect(f"penstock://{self.gateway.settings['native.listen']}") as client,
            # By name: what it sends again, when the gateway died before it confirmed, is kept once.
            client.producer("sdk", name="source") as source,
            client.producer(a) as to_a,
            client.producer(b) as to_b,
            client.subscribe("sdk", "s", start="earliest", prefetch=20) as consumer,
        ):
            while True:
                message = await consumer.receive(0.05)
                if message is None:
                    about = (await client.admin.describe("sdk"))["subscriptions"]["s"]
                    if about["backlog"] or about["unacked"]:
                        continue
                    numbers = self.next_inputs()
                    if not numbers:
                        return
                    await source.send_many([number.encode() for number in numbers])
                    self.confirmed.update(numbers)
                    continue
                try:
                    if self.undoes():
                        tx = client.transaction()
                        tx.send(_UNDONE_BODY, to=to_a)
                        tx.ack(message)
                        tx.abort()
                        self.rolled_back += 1
                    async with client.transaction() as tx:
                        for output in (to_a, to_b):
                            tx.send(message.body, to=output)
                        tx.ack(message)
                except ConnectionLost:
                    raise
                except ClientError as error:
                    if error.code != "stale_delivery":
                        raise
                else:
                    self.committed.add(message.body.decode())


class Amqp(Worker):
    """Two queues, and tx."""

    name = "amqp"
    gone = (pika.exceptions.AMQPError, OSError)

    def work(self) -> None:
        kept = pika.BasicProperties(delivery_mode=2)
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.gateway.amqp_port)
        ) as connection:
            source, channel = connection.channel(), connection.channel()
            source.confirm_delivery()
            channel.tx_select()
            while True:
                method, _, body = channel.basic_get("amqp")
                if method is None:
                    numbers = self.next_inputs()
                    if not numbers:
                        return
                    for number in numbers:
                        source.basic_publish("", "amqp", number.encode(), kept)
                        self.confirmed.add(number)
                    continue
                if self.undoes():
                    channel.basic_publish("", self.outputs[0], _UNDONE_BODY.encode(), kept)
                    channel.basic_ack(method.delivery_tag)
                    channel.tx_rollback()
                    self.rolled_back += 1
                for output in self.outputs:
                    channel.basic_publish("", output, body, kept)
                channel.basic_ack(method.delivery_tag)
                channel.tx_commit()
                self.committed.add(body.decode())


class Http(Worker):
    """A queue and a stream, and transactions over several requests."""

    name = "http"
    gone = (httpx.TransportError,)

    def work(self) -> None:
        with open_client(self.gateway) as http:
            while True:
                pulled = self._post(http, "queues/http/pull", max_messages=3, lease_ms=600_000)["messages"]
                if not pulled:
                    numbers = self.next_inputs()
                    if not numbers:
                        return
                    self._publish(http, "queues/http/messages", numbers)
                    self.confirmed.update(numbers)
                    continue
                handles = [one["handle"] for one in pulled]
                if self.undoes():
                    txn = self._post(http, "transactions")["id"]
                    self._publish(http, f"queues/http-a/messages?txn={txn}", [_UNDONE_BODY])
                    self._post(http, f"queues/http/ack?txn={txn}", handles=handles)
                    self._post(http, f"transactions/{txn}/rollback")
                    self.rolled_back += 1
                txn = self._post(http, "transactions")["id"]
                values = [one["value"] for one in pulled]
                self._publish(http, f"queues/http-a/messages?txn={txn}", values)
                self._publish(http, f"streams/http-b/messages?txn={txn}", values)
                self._post(http, f"queues/http/ack?txn={txn}", handles=handles)
                self._post(http, f"transactions/{txn}/commit")
                self.committed.update(values)

    def _publish(self, http: httpx.Client, path: str, values: Sequence[str]) -> None:
        self._post(http, path, messages=[{"value": value} for value in values])

    def _post(self, http: httpx.Client, path: str, **body: object) -> dict[str, list[dict[str, str]]]:
        answer = http.post(path, json=body)
        if answer.status_code in (207, 404, 409, 410) or answer.status_code >= 500:
            # Between two requests it was another gateway: what the one before knew by name is gone.
            raise httpx.ReadError(f"{path}: {answer.status_code} {answer.text}")
        if answer.status_code >= 400:
            raise AssertionError(f"{path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else {}


class Watcher(Worker):
    """Reads outputs while they are written."""

    gone = (ConnectionLost,)

    def __init__(self, gateway: Gateway, topic: str) -> None:
        super().__init__(gateway, 0)
        self.topic = topic
        self.seen: set[str] = set()

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with (
            penstock.connect(f"penstock://{self.gateway.settings['native.listen']}") as client,
            client.reader(self.topic, start="earliest") as reader,
        ):
            while not self.ending.is_set():
                self.seen.update(message.body.decode() for message in await reader.receive_many(1000, 0.1))


def run(folder: Path, *, cycles: int, each: int, seed: int) -> Report:
    """Kill the gateway `cycles` times, each time after every client has committed `each` times; compare."""
    chance = random.Random(seed)
    with Gateway(folder, settings={**SERVED, "native.listen": f"127.0.0.1:{free_port()}"}) as gateway:
        _make(gateway)
        workers = [kind(gateway, chance.getrandbits(32)) for kind in (Sdk, Amqp, Http)]
        watchers = [Watcher(gateway, topic) for topic in _STREAMS]
        for worker in (*workers, *watchers):
            worker.start()
        kills = 0
        try:
            for _ in range(cycles):
                _wait_for_commits(workers, each)
                time.sleep(chance.uniform(0, 0.3))
                gateway.kill9()
                kills += 1
                gateway.launch()
                if chance.random() < 0.3:
                    time.sleep(chance.uniform(0, 0.3))
                    gateway.kill9()
                    kills += 1
                    gateway.launch()
                gateway.wait_until_serving()
        finally:
            _end(workers)
            _end(watchers)
        return asyncio.run(_judge(gateway, workers, watchers, kills))


def _make(gateway: Gateway) -> None:
    for queue in ("amqp", "amqp-a", "amqp-b", "http", "http-a"):
        make_queue(gateway, queue)
    for stream in ("sdk", *_STREAMS):
        make_queue(gateway, stream, **{"x-queue-type": "stream"})


def _wait_for_commits(workers: Sequence[Worker], each: int) -> None:
    wanted = [len(worker.committed) + each for worker in workers]
    _until(lambda: all(len(one.committed) >= n for one, n in zip(workers, wanted, strict=True)), workers)


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.ending.set()
    _until(lambda: not any(worker.is_alive() for worker in workers), workers)


def _until(condition: Callable[[], bool], workers: Sequence[Worker]) -> None:
    ends = time.monotonic() + _WAIT_S
    while not condition():
        for worker in workers:
            if worker.failure is not None:
                raise RuntimeError(f"{worker.name} failed") from worker.failure
        if time.monotonic() > ends:
            raise TimeoutError({worker.name: len(worker.committed) for worker in workers})
        time.sleep(0.002)


async def _judge(
    gateway: Gateway, workers: Sequence[Worker], watchers: Sequence[Watcher], kills: int
) -> Report:
    report = Report(
        sum(len(worker.committed) for worker in workers),
        sum(worker.rolled_back for worker in workers),
        kills,
        sum(len(worker.confirmed) for worker in workers),
    )
    found: dict[str, Counter[str]] = {}
    async with penstock.connect(f"penstock://{gateway.settings['native.listen']}") as client:
        for output in (output for worker in workers for output in worker.outputs):
            found[output] = await _all_of(client, output)
    for worker in workers:
        a, b = (found[output] for output in worker.outputs)
        for output in (a, b):
            report.undone += output.pop(_UNDONE_BODY, 0)
            report.twice += sum(count - 1 for count in output.values())
        report.torn += len(set(a) ^ set(b))
        report.lost += len((worker.confirmed | worker.committed) - set(a))
    for watcher in watchers:
        report.undone += _UNDONE_BODY in watcher.seen
        report.phantoms += len(watcher.seen - {_UNDONE_BODY} - set(found[watcher.topic]))
    return report


async def _all_of(client: penstock.Client, name: str) -> Counter[str]:
    """All messages ever published there; a reader removes none, even from queues."""
    found: Counter[str] = Counter()
    marker = "the end"
    source = {"topic" if name in _STREAMS else "queue": name}
    async with client.producer(**source) as producer:
        await producer.send(marker)
    async with client.reader(**source, start="earliest") as reader:
        while marker not in found:
            messages = await reader.receive_many(1000, _WAIT_S)
            assert messages, f"{name}: its end does not come"
            found.update(message.body.decode() for message in messages)
    del found[marker]
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.transactions")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--each", type=int, default=20, help="commits of each client between two kills")
    parser.add_argument("--seed", type=int, default=None, help="repeat the times of an earlier run")
    parser.add_argument("--data", metavar="DIR", help="where the data goes (default: the temporary folder)")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-transactions-", dir=options.data) as folder:
        report = run(Path(folder), cycles=options.cycles, each=options.each, seed=seed)
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
