"""Half messages through the SDK: a local transaction and a message, both or none."""

from __future__ import annotations

import asyncio

import pytest

import penstock
import penstock.sync
from penstock.sdk.errors import ClientError, ConnectionLost
from penstock.sdk.producing.half import Question
from penstock.testing import Gateway

WAIT_S = 60.0


def unasked(question: Question) -> bool:
    raise AssertionError("nobody should ask")


async def bodies(client: penstock.Client, n: int) -> list[bytes]:
    """The first n messages of the topic."""
    found: list[bytes] = []
    async with client.reader("t", start="earliest") as reader:
        while len(found) < n:
            some = await reader.receive_many(n - len(found), WAIT_S)
            assert some, f"{len(found)} of {n} came"
            found += [message.body for message in some]
    return found


async def test_the_end_of_the_block_decides(client: penstock.Client) -> None:
    async with client.producer("t", group=penstock.Group("g", unasked)) as producer:
        with pytest.raises(KeyError):
            async with await producer.prepare("never"):
                raise KeyError
        async with await producer.prepare("done", key="k", headers={"a": 1}):
            assert (await client.admin.describe("t"))["messages"] == 0
        half = await producer.prepare("later")
        position = await half.commit()
        assert position is not None
        with pytest.raises(ClientError) as refused:
            await half.rollback()
        assert refused.value.code == "half_unknown"
        assert await bodies(client, 2) == [b"done", b"later"]
    async with client.producer("t") as plain:
        with pytest.raises(ClientError, match="group"):
            await plain.prepare("x")


async def test_another_producer_answers_for_a_lost_one(gateway: Gateway) -> None:
    """The first one did its local work and never came to say so."""
    done = set()

    async def was_done(question: Question) -> bool:
        assert (question.key, question.headers["n"]) == ("k", int(question.body))
        return question.transaction in done

    times = {"check_after_s": 0.1, "check_each_s": 0.1, "max_checks": 1000}
    group = penstock.Group("g", was_done, **times)
    async with penstock.connect(gateway.url) as lost:
        producer = await lost.producer("t", group=penstock.Group("g", lambda _: None, **times)).open()
        for n in range(6):
            half = await producer.prepare(str(n), key="k", headers={"n": n})
            if n % 2:
                done.add(half.transaction)
        (await lost.link()).abort()
    async with penstock.connect(gateway.url) as client, client.producer("t", group=group):
        assert sorted(await bodies(client, 3)) == [b"1", b"3", b"5"]
        async with asyncio.timeout(WAIT_S):
            while (await client.admin.describe("t"))["messages"] < 3:
                await asyncio.sleep(0.01)
        assert (await client.admin.describe("t"))["messages"] == 3


async def test_it_asks_again_when_nobody_knows_or_the_check_fails(client: penstock.Client) -> None:
    answers: list[object] = [None, KeyError("the database is away"), None, True]
    asked = []

    def check(question: Question) -> bool | None:
        asked.append(question.checks)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer) if answer is not None else None

    group = penstock.Group("g", check, check_after_s=0.1, check_each_s=0.1, max_checks=1000)
    async with client.producer("t", group=group) as producer:
        await producer.prepare("x")
        assert await bodies(client, 1) == [b"x"]
    assert answers == []
    assert asked == sorted(set(asked)) and len(asked) == 4


async def test_a_commit_is_tried_until_it_is_answered(gateway: Gateway) -> None:
    async with penstock.connect(gateway.url) as client:
        async with client.producer("t", group=penstock.Group("g", unasked)) as producer:
            halves = [await producer.prepare(str(n)) for n in range(3)]
            await asyncio.to_thread(gateway.stop)
            waiting = [asyncio.create_task(half.commit()) for half in halves]
            await asyncio.to_thread(gateway.start, port=gateway.port)
            await asyncio.gather(*waiting)
            assert sorted(await bodies(client, 3)) == [b"0", b"1", b"2"]
            half = await producer.prepare("x")
    once = await penstock.connect(gateway.url, reconnect=False)
    (await once.link()).abort()
    half._client = once
    with pytest.raises(ConnectionLost):
        await half.commit()
    await once.close()


def test_without_asyncio(gateway: Gateway) -> None:
    group = penstock.Group("g", unasked)
    with penstock.sync.connect(gateway.url) as client, client.producer("t", group=group) as producer:
        with pytest.raises(KeyError), producer.prepare("never"):
            raise KeyError
        with producer.prepare("done", key="k") as half:
            assert half.transaction
        half = producer.prepare("later")
        half.commit()
        assert client.admin.describe("t")["messages"] == 2
