"""A client that is called from another event loop, thread or process than its own says so, and goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

import penstock
import penstock.sync
from penstock.testing import Gateway

WAIT_S = 60.0


async def test_calls_from_another_loop_are_refused_and_harm_nothing(client: penstock.Client) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        await producer.send_many([b"1", b"2"])
        message = await consumer.receive(WAIT_S)
        assert message is not None
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send(b"x"),
            lambda: producer.send_many([b"x"]),
            lambda: producer.send_nowait(b"x"),
            producer.flush,
            producer.close,
            lambda: client.subscribe("t", "other").open(),
            lambda: consumer.ack(message),
            lambda: consumer.nack(message),
            lambda: consumer.reject(message),
            lambda: consumer.pull(),
            consumer.close,
            client.admin.topics,
            client.connect,
            client.close,
        ]
        told: list[BaseException | None] = []

        async def call(one: Callable[[], Awaitable[object]]) -> None:
            await one()

        def elsewhere() -> None:
            for one in calls:
                try:
                    asyncio.run(call(one))
                except BaseException as error:
                    told.append(error)
                else:
                    told.append(None)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        for one, error in zip(calls, told, strict=True):
            assert isinstance(error, penstock.WrongContext), (one, error)
            assert "lives in another event loop than this call; connect in this one, or use" in str(error)
        await consumer.ack(message, durable=True)
        await producer.send(b"3")
        rest = [await consumer.receive(WAIT_S) for _ in range(2)]
        assert [one and one.body for one in rest] == [b"2", b"3"]
    assert client.reconnects == 0


async def test_a_client_made_without_a_loop_may_be_used_in_the_first_one(gateway: Gateway) -> None:
    client = await asyncio.to_thread(penstock.connect, gateway.url, connect_timeout_s=WAIT_S)
    async with client, client.producer("t") as producer:
        await producer.send(b"x")


def test_without_a_loop_of_asyncio_there_is_no_client(gateway: Gateway) -> None:
    """As under trio, whose tasks are coroutines, too."""
    connecting = penstock.connect(gateway.url).connect()
    with pytest.raises(
        penstock.WrongContext, match=r"an event loop of asyncio, and none runs here; connect in"
    ):
        connecting.send(None)


CHILD = """
import asyncio, gc, multiprocessing, os, sys, penstock, penstock.sync
url = sys.argv[1]

def tried(call):
    try:
        return call()
    except penstock.WrongContext as error:
        assert "of which this one is a fork; connect in the child" in str(error), error
        return "elsewhere"

def forked(work):
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print("child", child.exitcode, flush=True)
"""
SYNC = """
client = penstock.sync.connect(url, connect_timeout_s=60)
producer, consumer = client.producer("t").open(), client.subscribe("t", "s").open()
producer.send("from the parent")

def child():
    send = producer.send
    calls = lambda: send("x"), lambda: producer.send_nowait("x"), consumer.receive, client.admin.topics
    print([tried(call) for call in calls])
    for one in (producer, consumer, client):
        one.close()
    gc.collect()
    with penstock.sync.connect(url, connect_timeout_s=60) as own, own.producer("t") as mine:
        mine.send("from the child")

forked(child)
producer.send("again")
print([consumer.receive(60).body.decode() for _ in range(3)])
print(client._inner.reconnects)
client.close()
"""
ASYNC = """
async def main():
    client = await penstock.connect(url, connect_timeout_s=60)
    producer = await client.producer("t").open()
    pid = os.fork()
    if pid == 0:
        try:
            # As multiprocessing does it: the loop of the parent is not running here.
            asyncio.events._set_running_loop(None)
            print([tried(lambda: asyncio.run(call())) for call in (
                lambda: producer.send("x"), client.admin.topics, client.close)], flush=True)
        finally:
            os._exit(0)
    await asyncio.to_thread(os.waitpid, pid, 0)
    await producer.send("again")
    print(client.reconnects)
    await client.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "prints"),
    [
        (
            SYNC,
            "['elsewhere', 'elsewhere', 'elsewhere', 'elsewhere']\nchild 0\n"
            "['from the parent', 'from the child', 'again']\n0\n",
        ),
        (ASYNC, "['elsewhere', 'elsewhere', None]\n0\n"),
    ],
)
async def test_a_forked_child_is_told_and_the_parent_goes_on(
    gateway: Gateway, program: str, prints: str
) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-u", "-c", CHILD + program, gateway.url],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, prints), done.stderr
