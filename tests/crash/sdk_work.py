"""Work by the SDK that never stops, what it was promised, and whether the promises were kept.

    sending    a named producer's numbers to the topic t, 20 at a time
    settling   jobs are taken: half of them acknowledged (kept on the disk), half given back
    moving     each of `in` into a and b by a transaction with its acknowledgement
    seeking    a subscription of t goes to some number, which is then the first it gives out

`python -m tests.crash.sdk_work URL SEED FIRST` is one life of it, which tells what happens on its output.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import penstock
from penstock.sdk.errors import Busy, ConnectionLost, Refused, StaleDelivery

WAIT_S = 120.0
JOBS = 20_000
MOVED = 5000
Tell = Callable[[str, Iterable[int]], None]


@dataclass
class Ledger:
    """The answers of the gateway; `faults` lists the forbidden ones."""

    attempted: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    moved: int = 0
    sought: int = 0
    faults: list[str] = field(default_factory=list)

    def tell(self, what: str, numbers: Iterable[int]) -> None:
        """`what`: attempted, sent, got, done, moved, sought."""
        numbers = list(numbers)
        match what:
            case "attempted":
                self.attempted.update(numbers)
            case "sent":
                self.sent.update(numbers)
            case "got":
                again = self.done.intersection(numbers)
                if again:
                    self.faults.append(f"acknowledged jobs came again: {sorted(again)}")
            case "done":
                self.done.update(numbers)
            case "moved":
                self.moved += len(numbers)
            case "sought":
                self.sought += len(numbers)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How much of each was promised."""
        return len(self.sent), len(self.done), self.moved, self.sought


class Work:
    """All of it over one client, until `stopping` is set."""

    def __init__(self, client: penstock.Client, tell: Tell, chance: random.Random, first: int) -> None:
        self._client = client
        self._tell = tell
        self._chance = chance
        self._next = first
        self._ids: list[tuple[int, penstock.MessageId]] = []
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Raises what none of it may raise."""
        async with asyncio.TaskGroup() as group:
            for task in (self._sending, self._settling, self._moving, self._seeking):
                group.create_task(task())

    async def _sending(self) -> None:
        async with self._client.producer("t", name="p", batch_messages=7) as producer:
            while not self.stopping.is_set():
                numbers = range(self._next, self._next + 20)
                self._next += 20
                self._tell("attempted", numbers)
                ids = await asyncio.gather(*(producer.send_nowait(b"%d" % number) for number in numbers))
                self._tell("sent", numbers)
                self._ids += [(number, id) for number, id in zip(numbers, ids, strict=True) if id.position]

    async def _settling(self) -> None:
        async with self._client.subscribe("jobs", "s", start="earliest", prefetch=20) as consumer:
            while not self.stopping.is_set():
                messages = await consumer.receive_many(10, 0.1)
                self._tell("got", [int(message.body) for message in messages])
                if not messages:
                    continue
                some = messages[: 1 + len(messages) // 2]
                with suppress(StaleDelivery, ConnectionLost):
                    await consumer.nack(messages[len(some) :], delay_s=0)
                    await consumer.ack(some, durable=True)
                    self._tell("done", [int(message.body) for message in some])

    async def _moving(self) -> None:
        async with (
            self._client.producer("a") as a,
            self._client.producer("b") as b,
            self._client.subscribe("in", "s", start="earliest", prefetch=20) as consumer,
        ):
            while not self.stopping.is_set():
                message = await consumer.receive(0.1)
                if message is None:
                    continue
                try:
                    async with self._client.transaction() as tx:
                        tx.send(message.body, to=a)
                        tx.send(message.body, to=b)
                        tx.ack(message)
                    self._tell("moved", [int(message.body)])
                except (StaleDelivery, ConnectionLost):
                    pass  # it happened, or the message comes again

    async def _seeking(self) -> None:
        consumer = self._client.subscribe("t", "back", kind="exclusive", start="earliest", prefetch=5)
        while True:
            with suppress(Busy):  # the dead one's connection may not be gone yet
                await consumer.open()
                break
        place: int | None = None
        while not self.stopping.is_set():
            if not self._ids:
                await asyncio.sleep(0.01)
                continue
            number, id = self._chance.choice(self._ids)
            wanted: set[int | None] = {number}
            try:
                await consumer.seek(str(id))
                self._tell("sought", [number])
            except ConnectionLost:
                wanted.add(place)
            except Refused as refused:
                assert refused.code == "not_found", refused
                continue
            message = await consumer.receive(WAIT_S)
            assert message is not None, f"nothing came after a seek to {number}"
            assert int(message.body) in wanted or None in wanted, (int(message.body), wanted)
            place = int(message.body)
        await consumer.close()


async def prepare(url: str) -> None:
    """Create the topics and subscriptions of the work."""
    async with penstock.connect(url) as client:
        for topic, count in (("jobs", JOBS), ("in", MOVED)):
            async with client.producer(topic) as producer, client.subscribe(topic, "s", start="earliest"):
                await producer.send_many([b"%d" % number for number in range(count)])


async def bodies_of(client: penstock.Client, topic: str) -> list[int]:
    """All that is in a topic."""
    count = (await client.admin.describe(topic))["messages"]
    found: list[int] = []
    async with client.reader(topic, start="earliest") as reader:
        while len(found) < count:
            some = await reader.receive_many(count - len(found), WAIT_S)
            assert some, f"{len(found)} of {count} messages of {topic} came"
            found += [int(message.body) for message in some]
    return found


async def judge(url: str, ledger: Ledger) -> None:
    """Whether all that was promised is so; nothing works there any more."""
    async with penstock.connect(url) as client:
        kept = await bodies_of(client, "t")
        assert kept == sorted(set(kept)), "sent numbers came twice, or not in order"
        assert ledger.sent <= set(kept) <= ledger.attempted
        a, b = await bodies_of(client, "a"), await bodies_of(client, "b")
        assert a == b, "transactions happened in part"
        left = await drained(client, "in", "s")
        assert sorted(a + left) == list(range(MOVED)), "transactions were lost or happened twice"
        assert len(a) >= ledger.moved
        rest = await drained(client, "jobs", "s")
        ledger.tell("got", rest)
        assert len(rest) == len(set(rest)) and ledger.done | set(rest) <= set(range(JOBS))
        assert not ledger.faults, ledger.faults


async def drained(client: penstock.Client, topic: str, subscription: str) -> list[int]:
    """The messages left in a subscription."""
    described = (await client.admin.describe(topic))["subscriptions"][subscription]
    left = described["backlog"] + described["unacked"]
    found: list[int] = []
    async with client.subscribe(topic, subscription) as consumer:
        while len(found) < left:
            some = await consumer.receive_many(left - len(found), WAIT_S)
            assert some, f"{len(found)} of {left} messages of {topic} came"
            found += [int(message.body) for message in some]
    return found


def _print(what: str, numbers: Iterable[int]) -> None:
    print(what, *numbers, flush=True)


async def _live(url: str, seed: int, first: int) -> None:
    async with penstock.connect(url) as client:
        await Work(client, _print, random.Random(seed), first).run()


if __name__ == "__main__":
    asyncio.run(_live(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
