"""Unmodified clients over takeovers: `python -m tests.cluster.clients --takeovers 10`.

pika, aio-pika, Celery, paho with a persistent session at QoS 2 and with wills, webhooks and the SDK, of which
`tests.cluster.campaign` has more. Each goes on by its own means, at a link that leads to all nodes in turn,
so that half of the connections go through a standby. Each must get what was confirmed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import aio_pika
import httpx
import paho.mqtt.client as paho
import pika
from kombu.exceptions import OperationalError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

import penstock
from bench.kafka import Kafka, jars
from tests.cluster import tasks
from tests.cluster.faults import World, kill_machine, kill_process, stop_owner
from tests.support import paho_sockets
from tests.support.brokers import ROOT, free_port
from tests.support.cluster import fronts, make_nodes, start_brokers
from tests.support.proxy import Links
from tests.support.receiver import Receiver

__all__ = ["CLIENTS", "run"]

WAIT_S = 120.0
PAUSE_S = 0.02
WILL_DELAY_S = 2
SILENT_S = 5.0


class Client(threading.Thread):
    """Publishes numbers and gets them back, until it is told to stop."""

    def __init__(self, ports: dict[str, int], folder: Path) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.ports = ports
        self.folder = folder
        self.stopping = threading.Event()
        self.confirmed: set[int] = set()
        self.got: Counter[int] = Counter()
        self.failure = ""
        self._next = 0

    def run(self) -> None:
        try:
            self.work()
        except BaseException:
            self.failure = traceback.format_exc()

    def work(self) -> None:
        """Ends when all that was confirmed has come, or some time behind the stop."""
        raise NotImplementedError

    def taken_over(self) -> None:
        """A takeover is about to happen."""

    def take(self) -> int:
        """The next number."""
        self._next += 1
        return self._next

    @property
    def finished(self) -> bool:
        return self.stopping.is_set() and self.confirmed <= set(self.got)

    def findings(self) -> list[str]:
        """The broken promises."""
        lost = sorted(self.confirmed - set(self.got))
        found = [self.failure] if self.failure else []
        return found + ([f"{self.name} lost {len(lost)}, first {lost[:5]}"] if lost else [])


class Pika(Client):
    def work(self) -> None:
        until = float("inf")
        while not self.finished and time.monotonic() < until:
            if self.stopping.is_set() and until == float("inf"):
                until = time.monotonic() + WAIT_S
            with suppress(AMQPError, AMQPConnectorException, OSError):
                self._session()
            time.sleep(PAUSE_S)

    def _session(self) -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self.ports["amqp"], heartbeat=4, blocked_connection_timeout=10
        )
        connection = pika.BlockingConnection(parameters)
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("pika", durable=True)

            def on_message(channel: object, method: object, _: object, body: bytes) -> None:
                self.got[int(body)] += 1
                connection.add_callback_threadsafe(
                    lambda: consuming.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]
                )

            consuming = connection.channel()
            consuming.basic_consume("pika", on_message)
            while not self.finished:
                if not self.stopping.is_set():
                    number = self.take()
                    channel.basic_publish("", "pika", b"%d" % number, pika.BasicProperties(delivery_mode=2))
                    self.confirmed.add(number)
                connection.process_data_events(PAUSE_S)
        finally:
            with suppress(AMQPError):
                connection.close()


class AioPika(Client):
    """Its robust connection comes back by itself, with channel, queue and consumer."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{self.ports['amqp']}/?heartbeat=4"
        connection = await aio_pika.connect_robust(url, reconnect_interval=0.2, fail_fast=False)
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue("aio-pika", durable=True)

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            self.got[int(message.body)] += 1
            with suppress(Exception):  # the channel is gone: it comes again
                await message.ack()

        await queue.consume(on_message)
        until = float("inf")
        while not self.finished and time.monotonic() < until:
            if self.stopping.is_set():
                until = min(until, time.monotonic() + WAIT_S)
                await asyncio.sleep(PAUSE_S)
                continue
            number = self.take()
            message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            with suppress(Exception):  # it has many kinds, of several libraries
                await channel.default_exchange.publish(message, "aio-pika", timeout=10)
                self.confirmed.add(number)
            await asyncio.sleep(PAUSE_S)
        await connection.close()


class Celery(Client):
    """A worker of its own process; it acknowledges when a task is done."""

    def work(self) -> None:
        file = self.folder / "tasks"
        file.touch()
        url = f"amqp://guest:guest@127.0.0.1:{self.ports['amqp']}//"
        environment = {**os.environ, "PENSTOCK_TEST_URL": url, "PENSTOCK_TEST_FILE": str(file)}
        words = [sys.executable, "-m", "celery", "-A", "tests.cluster.tasks", "worker"]
        words += ["--pool=solo", "--loglevel=INFO", "-n", "takeovers@localhost"]
        tasks.app.conf.update(broker_url=url)
        with (self.folder / "celery.log").open("wb") as log:
            worker = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            until = float("inf")
            while not self.finished and time.monotonic() < until:
                if self.stopping.is_set():
                    until = min(until, time.monotonic() + WAIT_S)
                else:
                    number = self.take()
                    with suppress(OperationalError, OSError, TimeoutError):
                        tasks.note.apply_async((number,), retry=False)
                        self.confirmed.add(number)
                time.sleep(PAUSE_S)
                self.got = Counter(map(int, file.read_text().split()))
        finally:
            worker.terminate()
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


class Paho(Client):
    """A persistent session at QoS 2, and devices with a will that are gone at a takeover."""

    def __init__(self, ports: dict[str, int], folder: Path) -> None:
        super().__init__(ports, folder)
        self._wills: Counter[str] = Counter()
        self._devices: list[paho.Client] = []
        self._gone: list[str] = []
        self._lost_sessions = 0

    def work(self) -> None:
        subscribed = threading.Event()
        reader = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho-reader", clean_session=False)
        reader.reconnect_delay_set(1, 1)

        def on_connect(client: paho.Client, _: object, flags: paho.ConnectFlags, *__: object) -> None:
            if subscribed.is_set() and not flags.session_present:
                self._lost_sessions += 1
            client.subscribe([("paho/number", 2), ("paho/will/+", 1)])

        def on_message(client: paho.Client, _: object, message: paho.MQTTMessage) -> None:
            if message.topic == "paho/number":
                self.got[int(message.payload)] += 1
            else:
                self._wills[message.topic] += 1

        reader.on_connect, reader.on_message = on_connect, on_message
        reader.on_subscribe = lambda *_: subscribed.set()
        writer = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho-writer", clean_session=False)
        writer.reconnect_delay_set(1, 1)
        published: set[int] = set()
        writer.on_publish = lambda _, __, mid, *___: published.add(mid)
        for client in (reader, writer):
            client.connect("127.0.0.1", self.ports["mqtt"], keepalive=4)
            client.loop_start()
        assert subscribed.wait(WAIT_S)
        self._device()
        until = float("inf")
        while not self.finished and time.monotonic() < until:
            if self.stopping.is_set():
                until = min(until, time.monotonic() + WAIT_S)
                time.sleep(PAUSE_S)
                continue
            number = self.take()
            sent = writer.publish("paho/number", b"%d" % number, qos=1)
            while sent.mid not in published:  # paho sends it again when it has reconnected
                time.sleep(0.005)
            published.discard(sent.mid)
            self.confirmed.add(number)
            time.sleep(PAUSE_S)
        until = time.monotonic() + WAIT_S
        while not set(self._gone) <= set(self._wills) and time.monotonic() < until:
            time.sleep(PAUSE_S)
        for client in (reader, writer, *self._devices):
            paho_sockets.close(client)

    def _device(self) -> None:
        """A client of MQTT 5 whose will is published some seconds after it is gone."""
        name = f"paho/will/{len(self._devices)}"
        device = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            name.replace("/", "-"),
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
        )
        will = Properties(PacketTypes.WILLMESSAGE)
        will.WillDelayInterval = WILL_DELAY_S
        device.will_set(name, b"gone", qos=1, properties=will)
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = 3600
        connected = threading.Event()
        device.on_connect = lambda *_: connected.set()
        device.connect("127.0.0.1", self.ports["mqtt"], properties=session)
        device.loop_start()
        assert connected.wait(WAIT_S)
        self._devices.append(device)

    def taken_over(self) -> None:
        """The device has been there for a while, and is gone with the owner."""
        self._gone.append(f"paho/will/{len(self._devices) - 1}")

    def came_back(self) -> None:
        """Another device, for the next takeover."""
        self._device()

    def findings(self) -> list[str]:
        found = super().findings()
        if self._lost_sessions:
            found.append(f"{self._lost_sessions} sessions of paho were lost")
        counts = {name: self._wills[name] for name in self._gone}
        if set(counts.values()) != {1}:
            found.append(f"wills of devices that are gone came so often: {counts}")
        return found


class Webhooks(Client):
    """Messages of a queue go to a receiver in order."""

    def work(self) -> None:
        with Receiver() as receiver, httpx.Client(auth=("guest", "guest"), timeout=30) as client:
            base = f"http://127.0.0.1:{self.ports['http']}/v1/vhosts/%2F"
            retry = {"schedule_ms": [100] * 100, "max_age_ms": 600_000}
            hook = {"source": {"queue": "hooked"}, "url": receiver.url, "format": "raw", "retry": retry}
            self._until(lambda: client.put(f"{base}/queues/hooked").is_success)
            self._until(lambda: client.put(f"{base}/webhooks/hooked", json=hook).is_success)
            until = float("inf")
            while not self.finished and time.monotonic() < until:
                if self.stopping.is_set():
                    until = min(until, time.monotonic() + WAIT_S)
                else:
                    number = self.take()
                    message = {"messages": [{"value": str(number)}]}
                    with suppress(httpx.TransportError):
                        if client.post(f"{base}/queues/hooked/messages", json=message).status_code == 200:
                            self.confirmed.add(number)
                time.sleep(PAUSE_S)
                self.got = Counter(int(got.body) for got in list(receiver.got))

    def _until(self, does: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_S
        while True:
            with suppress(httpx.TransportError):
                if does():
                    return
            assert time.monotonic() < until, "the API refuses"
            time.sleep(PAUSE_S)


class Sdk(Client):
    """A named producer, and a subscription: a number comes twice only as the same record, with a flag.

    Both come back by themselves.
    """

    def __init__(self, ports: dict[str, int], folder: Path) -> None:
        super().__init__(ports, folder)
        self._records: dict[int, tuple[int, int]] = {}
        self._twice: list[int] = []

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        url = f"penstock://127.0.0.1:{self.ports['native']}"
        async with (
            penstock.connect(url, close_timeout_s=WAIT_S) as client,
            client.producer("sdk", name="steady") as producer,
            client.subscribe("sdk", "all", start="earliest") as consumer,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._get(consumer))
            while not self.stopping.is_set():
                number = self.take()
                await producer.send(b"%d" % number)
                self.confirmed.add(number)
                await asyncio.sleep(PAUSE_S)
            until = time.monotonic() + WAIT_S
            while not self.finished and time.monotonic() < until:
                await asyncio.sleep(PAUSE_S)
            consumer.stop()

    async def _get(self, consumer: penstock.Consumer[bytes]) -> None:
        async for message in consumer:
            number = int(message.body)
            record = (message.position, message.timestamp_ms)
            if number in self._records and (record != self._records[number] or not message.redelivered):
                self._twice.append(number)
            self._records[number] = record
            self.got[number] += 1
            await consumer.ack(message)

    def findings(self) -> list[str]:
        found = super().findings()
        return found + ([f"the SDK got {self._twice[:5]} twice"] if self._twice else [])


CLIENTS: dict[str, type[Client]] = {
    "pika": Pika,
    "aio-pika": AioPika,
    "celery": Celery,
    "paho": Paho,
    "webhooks": Webhooks,
    "sdk": Sdk,
}


def run(
    folder: Path,
    brokers: list[Kafka],
    *,
    clients: Sequence[str],
    takeovers: int,
    seed: int,
    links: Links,
    names: str = "abc",
    cluster: str = "clients",
) -> list[str]:
    """Have the owner replaced so often under these clients; the broken promises. The nodes are ended."""
    with ExitStack() as ends:
        nodes = make_nodes(folder, brokers, names, None, **{"cluster.name": cluster})
        for node in nodes:
            for listener in ("native.listen", "http.listen"):
                node.settings[listener] = f"127.0.0.1:{free_port()}"
            node.settings["webhooks.allow_networks"] = "127.0.0.0/8"
            ends.callback(node.kill9)
            node.launch()
        world = World(nodes, brokers, None, random.Random(seed))
        world.owner()
        for node in nodes:
            node.wait_until_serving()
        ports = fronts(links, nodes, SILENT_S)
        made = [CLIENTS[name](ports, folder) for name in clients]
        for client in made:
            client.start()
        _wait(made)
        for number in range(takeovers):
            began = time.monotonic()
            for client in made:
                client.taken_over()
            fault = (kill_process, stop_owner, kill_machine)[number % 3]
            fault(world)
            until = time.monotonic() + WAIT_S
            while sum(node.is_owner for node in nodes) != 1:  # the old one has not told that it is a standby
                assert time.monotonic() < until, "there is not one owner"
                time.sleep(0.02)
            _wait(made)
            for client in made:
                if isinstance(client, Paho):
                    client.came_back()
            _wait(made)
            print(f"{fault.__name__}: all clients went on after {time.monotonic() - began:.1f} s", flush=True)
        for client in made:
            client.stopping.set()
        for client in made:
            client.join(2 * WAIT_S)
        found = [text for client in made for text in client.findings()]
        for node in nodes:
            node.wait_until_serving()  # a process that has just begun would die of the signal
            node.terminate()
    return found


def _wait(clients: list[Client]) -> None:
    """Wait until each client has something confirmed, and gets it."""
    first = [client._next for client in clients]
    until = time.monotonic() + WAIT_S
    for client, number in zip(clients, first, strict=True):
        while not any(it > number for it in client.confirmed & set(client.got)):
            if client.failure or time.monotonic() > until:
                raise AssertionError(client.failure or f"{client.name} gets nothing")
            time.sleep(0.05)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.clients")
    parser.add_argument("--takeovers", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--only", default=",".join(CLIENTS), help="names of clients, separated by commas")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-clients-")))
        links = ends.enter_context(Links())
        brokers = start_brokers(ends, folder, jars(options.jars.absolute()), options.brokers)
        found = run(
            folder,
            brokers,
            clients=options.only.split(","),
            takeovers=options.takeovers,
            seed=options.seed,
            links=links,
        )
    print("\n".join(found) or "PASS")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
