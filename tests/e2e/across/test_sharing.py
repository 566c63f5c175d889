"""One stream of messages shared three ways at once: by key (SDK), by topic (MQTT), as a queue (AMQP, SDK).

The members of each group come, leave, vanish, acknowledge and give back at random. While one of them has a
key, or a message, nobody else gets it; nothing is lost, nothing that is settled comes again, and a key whose
messages nobody gives back is in order (`tests/support/sharing.py`). `make fuzz` tries many more seeds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import aio_pika
import pytest

import penstock
from penstock.testing import Gateway
from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.examples import histories
from tests.support.limits import LIMIT_S
from tests.support.sharing import KEYS, Ledger, gives_back, key_of
from tests.support.sharing_members import Amqp, Member, Mqtt, Sdk

SEEDS = histories(1)
MESSAGES = 30 * KEYS
CHUNK = 5 * KEYS
MEMBERS = 4
"""Of a group at once."""


class Publishers:
    """Each key has a publisher, over one of the protocols; all publish to `amq.topic`."""

    def __init__(self, client: penstock.Client, exchange: aio_pika.abc.AbstractExchange, port: int) -> None:
        self._client = client
        self._exchange = exchange
        self._port = port

    async def publish(self, numbers: Iterable[int]) -> None:
        """In order; confirmed when it returns."""
        by: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for number in numbers:
            by[key_of(number) // 3 % 3].append(number)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._by_sdk(by[0]))
            group.create_task(self._by_amqp(by[1]))
            group.create_task(asyncio.to_thread(self._by_mqtt, by[2]))

    async def _by_sdk(self, numbers: list[int]) -> None:
        for number in numbers:
            async with self._client.producer(
                exchange="amq.topic", routing_key=f"plant.{key_of(number)}"
            ) as producer:
                await producer.send(b"%d" % number)

    async def _by_amqp(self, numbers: list[int]) -> None:
        for number in numbers:
            message = aio_pika.Message(b"%d" % number, delivery_mode=2)
            await self._exchange.publish(message, f"plant.{key_of(number)}", timeout=LIMIT_S)

    def _by_mqtt(self, numbers: list[int]) -> None:
        with connected(self._port) as mqtt:
            for number in numbers:
                mqtt.publish(f"plant/{key_of(number)}", b"%d" % number, qos=1)


class Group:
    """Members that come and go, until all that is published is through."""

    def __init__(self, ledger: Ledger, make: Callable[[str, random.Random], Member], seed: int) -> None:
        self.ledger = ledger
        self.make = make
        self.chance = random.Random(f"{seed} {ledger.group}")
        self.members: set[Member] = set()
        self.stopping = False
        self.changed = asyncio.Event()
        """Something was acknowledged."""

    async def run(self) -> None:
        """Until `stop`; a place that a member leaves is another one's."""
        async with asyncio.TaskGroup() as group:
            for place in range(MEMBERS):
                group.create_task(self._place(place))

    def stop(self) -> None:
        self.stopping = True
        for member in self.members:
            member.news.set()

    async def _place(self, place: int) -> None:
        lives = 0
        while not self.stopping:
            lives += 1
            member = self.make(f"{self.ledger.group}-{place}-{lives}", self.chance)
            await member.open()
            self.members.add(member)
            try:
                await self._live(member)
            finally:
                self.members.discard(member)

    async def _live(self, member: Member) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 25)):
            while not member.held and not self.stopping:
                member.news.clear()
                # Acknowledge before waiting: other members may wait for these messages.
                await member.confirm()
                self.changed.set()
                if not member.held and not self.stopping:
                    await member.news.wait()
            if self.stopping:
                break
            await self._act(member)
            self.changed.set()
            await asyncio.sleep(0)
        if chance.random() < 0.5 and not self.stopping:
            await member.lose()
        else:
            await member.close()
        self.changed.set()

    async def _act(self, member: Member) -> None:
        chance = self.chance
        some = chance.sample(sorted(member.held), chance.randint(1, len(member.held)))
        returned = [number for number in some if gives_back(number)] if member.can_give_back else []
        match chance.random():
            case dice if dice < 0.15 and returned:
                await member.give_back(returned, later=chance.random() < 0.5)
            case dice if dice < 0.25:
                await member.confirm()
            case dice if dice < 0.45:
                await asyncio.sleep(chance.uniform(0, 0.005))  # it holds what it has for longer
            case _:
                await member.ack(some)

    async def is_through(self, numbers: set[int]) -> None:
        """Wait until all of these are acknowledged."""
        while not numbers <= self.ledger.done and not self.ledger.faults:
            self.changed.clear()
            await self.changed.wait()


async def play(gateway: Gateway, seed: int) -> list[Ledger]:
    """One history; its ledgers, that say what went wrong."""

    def keyed(name: str, _: random.Random) -> Member:
        return Sdk(gateway, ledgers[0], name)

    def topics(name: str, _: random.Random) -> Member:
        return Mqtt(gateway, ledgers[1], name)

    def jobs(name: str, chance: random.Random) -> Member:
        if chance.random() < 0.5:
            return Amqp(gateway, ledgers[2], name)
        return Sdk(gateway, ledgers[2], name, queue=True)

    ledgers = [
        Ledger("keys", keyed=True, flags=True),
        # DUP is of a session: another member's first delivery is none again.
        Ledger("topics", keyed=True, flags=False),
        Ledger("jobs", keyed=False, flags=True),
    ]
    groups = [Group(ledger, make, seed) for ledger, make in zip(ledgers, (keyed, topics, jobs), strict=True)]
    last = MESSAGES
    async with (
        penstock.connect(gateway.url, connect_timeout_s=LIMIT_S) as client,
        await aio_pika.connect(gateway.amqp_url, timeout=LIMIT_S) as connection,
    ):
        channel = await connection.channel()
        await client.admin.create_topic("all")
        await client.admin.bind("all", "amq.topic", "plant.#")
        queue = await channel.declare_queue("jobs", durable=True)
        await queue.bind("amq.topic", "plant.#")
        publishers = Publishers(client, await channel.get_exchange("amq.topic"), gateway.mqtt_port)
        # A group of MQTT, and what waits in it, is there while somebody is subscribed.
        with connected(gateway.mqtt_port, "stays", version=5, clean=False, expiry_s=3600) as stays:
            stays.subscribe("$share/topics/plant/#", 1)
        async with asyncio.timeout(5 * LIMIT_S), asyncio.TaskGroup() as running:
            for group in groups:
                running.create_task(group.run())
            for first in range(0, MESSAGES, CHUNK):
                await publishers.publish(range(first, first + CHUNK))
                # Some of the last chunk still waits while the next one comes.
                for group in groups:
                    await group.is_through(set(range(first - CHUNK, first)) & set(range(MESSAGES)))
            for group in groups:
                await group.is_through(set(range(MESSAGES)))
                group.stop()
        await publishers.publish([last])
        for group in groups:
            await drain(group, last)
    return ledgers


async def drain(group: Group, last: int) -> None:
    """Nothing is left of a group but what is in doubt, and the last message, which comes behind that."""
    member = group.make(f"{group.ledger.group}-last", group.chance)
    await member.open()
    async with asyncio.timeout(LIMIT_S):
        while last not in member.held and not group.ledger.faults:
            member.news.clear()
            await member.news.wait()
            await member.ack(member.held.keys() - {last})
    await member.ack(list(member.held))
    await member.close()
    assert group.ledger.settled | group.ledger.in_doubt >= set(range(MESSAGES))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_groups_of_three_protocols_keep_their_promises(tmp_path: Path, seed: int) -> None:
    settings = {"mqtt.shared_strategy_of": "topics=hash-topic"}
    with Gateway(tmp_path / "data", settings=settings) as gateway:
        ledgers = await play(gateway, seed)
    for ledger in ledgers:
        told = {
            name: getattr(ledger, name) for name in ("group", "deliveries", "returned", "aborted", "left")
        }
        print(told)
        assert not ledger.faults, (told, ledger.faults[:5])
        assert ledger.aborted and ledger.left, "nobody came and went"
