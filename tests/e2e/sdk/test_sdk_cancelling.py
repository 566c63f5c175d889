"""Cancelled at each of its suspensions, a call leaves nothing behind: no task, future, handle or byte.

Each call is driven again and again, and cancelled at its first suspension, its second, ... until it ends
before that. The client, and what it had, must work afterwards.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import penstock
from penstock.sdk.connection.link import Link
from penstock.testing import Gateway

WAIT_S = 60.0
Call = Callable[[], Coroutine[Any, Any, object]]


class Stepped:
    """Awaits a call and counts its suspensions; at the n-th it cancels the task that awaits it."""

    def __init__(self, call: Coroutine[Any, Any, object], at: int) -> None:
        self._call = call
        self._left = at
        self.reached = False

    def __await__(self) -> Any:
        steps = self._call.__await__()
        value: Any = None
        try:
            while True:
                try:
                    waited_for = steps.send(value)
                except StopIteration as ended:
                    return ended.value
                self._left -= 1
                if self._left == 0:
                    self.reached = True
                    task = asyncio.current_task()
                    assert task is not None
                    asyncio.get_running_loop().call_soon(task.cancel)
                try:
                    value = yield waited_for
                except BaseException as error:
                    waited_for = steps.throw(error)
                    # The coroutine may suspend again while it unwinds.
                    while True:
                        value = yield waited_for
                        waited_for = steps.send(value)
        except StopIteration as ended:
            return ended.value


async def cancelled_everywhere(call: Call, after: Callable[[], Awaitable[None]]) -> int:
    """Cancel `call` at each suspension, and have `after` look each time; how many there were."""
    at = 0
    while True:
        at += 1
        stepped = Stepped(call(), at)

        async def run(stepped: Stepped = stepped) -> object:
            return await stepped

        task = asyncio.create_task(run())
        await asyncio.wait([task], timeout=WAIT_S)
        assert task.done(), f"cancelled at suspension {at} it goes on"
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]
        await after()
        if not stepped.reached:
            return at - 1
        assert at < 100


async def settled(client: penstock.Client, handles: int, tasks: int) -> None:
    """Nothing is left of what was given up: neither here nor at the gateway."""
    link = await client.link()
    async with asyncio.timeout(WAIT_S):
        while link._answers or len(asyncio.all_tasks()) > tasks:
            await client.admin.topics()  # which is answered behind all that was asked before
    assert len(client._members) == len(link._receivers) == handles
    assert not [answer for answer in link._asked.values() if not answer.done()]


@pytest.fixture
async def there(client: penstock.Client) -> penstock.Client:
    await client.admin.create_topic("t")
    return client


async def test_opening_a_producer_or_a_consumer(there: penstock.Client) -> None:
    kept: list[penstock.Producer | penstock.Consumer] = []

    async def after() -> None:
        for one in kept:
            await one.close()
        kept.clear()
        await settled(there, 0, tasks)
        # An exclusive subscription that was left open would refuse this.
        async with there.subscribe("t", "s", kind="exclusive"):
            pass
        described = (await there.admin.describe("t"))["subscriptions"]["s"]
        assert described["consumers"] == 0

    async def consumer() -> None:
        kept.append(await there.subscribe("t", "s", kind="exclusive").open())

    async def producer() -> None:
        kept.append(await there.producer("t", name="p").open())

    async def reader() -> None:
        async with there.reader("t"):
            pass

    tasks = len(asyncio.all_tasks())
    for call in (consumer, producer, reader):
        assert await cancelled_everywhere(call, after) > 0


async def test_sending(there: penstock.Client) -> None:
    async with there.producer("t", name="p", buffer_bytes=2000, batch_messages=3) as producer:
        group = penstock.Group("g", lambda question: None, check_after_s=3600)
        async with there.producer("t", group=group) as preparing:

            async def after() -> None:
                await producer.flush()
                assert producer.under_way == 0 and not producer._send_window.waiting
                await producer.send(b"works")
                await settled(there, 2, tasks)

            async def full() -> None:
                producer.send_nowait(bytes(1900))
                await producer.send(bytes(1000))

            async def transact() -> None:
                async with producer.transaction() as tx:
                    tx.send(b"x")

            async def prepare() -> None:
                async with await preparing.prepare(b"half"):
                    pass

            tasks = len(asyncio.all_tasks())
            calls: list[Call] = [
                lambda: producer.send(b"x"),
                full,
                lambda: producer.send_many([bytes(500)] * 10),
                transact,
                prepare,
                producer.flush,
            ]
            for call in calls:
                await cancelled_everywhere(call, after)


async def test_receiving_loses_no_message(there: penstock.Client) -> None:
    """After any cancellation each message is delivered once, or comes again flagged."""
    async with (
        there.producer("t") as producer,
        there.subscribe("t", "s", prefetch=0) as pulled,
        there.subscribe("t", "s2", prefetch=10) as pushed,
    ):
        sent: list[bytes] = []
        found: dict[penstock.Consumer, list[bytes]] = {pulled: [], pushed: []}

        async def some() -> None:
            for _ in range(3):
                sent.append(b"%d" % len(sent))
                await producer.send(sent[-1])

        async def after() -> None:
            await settled(there, 3, tasks)

        async def pull() -> None:
            await some()
            messages = await pulled.pull(10, wait_s=0.01)
            found[pulled] += [message.body for message in messages]
            await pulled.ack(messages)

        async def receive() -> None:
            await some()
            messages = await pushed.receive_many(10, WAIT_S)
            found[pushed] += [message.body for message in messages]
            await pushed.ack(messages, durable=True)

        tasks = len(asyncio.all_tasks())
        for call in (pull, receive):
            assert await cancelled_everywhere(call, after) > 2
        async with asyncio.timeout(WAIT_S):
            while len(found[pulled]) < len(sent):
                messages = await pulled.pull(10, wait_s=1)
                found[pulled] += [message.body for message in messages]
            while len(found[pushed]) < len(sent):
                message = await pushed.receive()
                assert message is not None
                found[pushed].append(message.body)
        assert found[pulled] == found[pushed] == sent


async def test_settling_and_moving(there: penstock.Client) -> None:
    async with there.producer("t") as producer, there.subscribe("t", "s", prefetch=50) as consumer:

        async def after() -> None:
            await settled(there, 2, tasks)

        async def received() -> penstock.Message:
            await producer.send(b"x")
            message = await consumer.receive(WAIT_S)
            assert message is not None
            return message

        async def settle() -> None:
            await consumer.ack(await received(), durable=True)
            async with (await received()).process():
                pass
            await consumer.nack(await received())
            await consumer.reject(await received())

        async def move() -> None:
            await consumer.pause()
            await consumer.go_on()
            await consumer.seek("latest")

        tasks = len(asyncio.all_tasks())
        assert await cancelled_everywhere(settle, after) > 4
        assert await cancelled_everywhere(move, after) == 3
        await consumer.go_on()
        await consumer.seek("latest")
        assert (await received()).body == b"x"


async def test_connecting_and_closing_leave_no_socket(gateway: Gateway) -> None:
    async def nothing() -> None:
        gc.collect()
        async with asyncio.timeout(WAIT_S):
            while open_links():
                await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == tasks

    def open_links() -> list[Link]:
        return [
            one
            for one in gc.get_objects()
            if type(one) is Link and one._transport is not None and not one.closed.done()
        ]

    async def whole() -> None:
        async with penstock.connect(gateway.url) as client:
            async with client.producer("t") as producer, client.subscribe("t", "s"):
                await producer.send(b"x")
            await client.producer("t").open()

    tasks = len(asyncio.all_tasks())
    assert await cancelled_everywhere(whole, nothing) > 8
