"""The future of a sent message does what asyncio does with futures."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from typing import Any

import pytest

from penstock.protocols.native.codec._gathering import Gathering, Pending, Sent
from penstock.sdk.message import MessageId
from tests.support.native_session import PLAIN

WAIT_S = 60.0


class Refused(Exception):
    """The refusal of a message."""


class Batch:
    """A batch of three messages, and what the loop was told."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        gathering = Gathering(PLAIN, 1000, 10, 1000)
        gathering.loop = loop
        self.sent = [gathering.add(b"%d" % i, PLAIN) for i in range(3)]
        pending = gathering.take()
        assert pending is not None
        self.pending: Pending | None = pending
        self.told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.told.append(context))

    def done(self) -> None:
        assert self.pending is not None
        assert self.pending.done(100, 3, True)

    def failed(self, *, quietly: bool = False) -> None:
        assert self.pending is not None
        self.pending.failed(Refused("no"), quietly=quietly)


async def reached(task: asyncio.Future[Any]) -> None:
    """Let a task come to where it waits."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()


IDS = [MessageId(100), MessageId(101), MessageId(102)]


async def test_it_is_awaited_before_and_after_it_is_done() -> None:
    batch = Batch()
    first = batch.sent[0]
    assert asyncio.isfuture(first) and first.get_loop() is asyncio.get_running_loop()

    async def wait() -> MessageId:
        return await first

    tasks = [asyncio.create_task(wait()) for _ in range(2)]
    await reached(tasks[0])
    assert not first.done() and not first.cancelled() and repr(first) == "<Sent pending>"
    with pytest.raises(asyncio.InvalidStateError):
        first.result()
    with pytest.raises(asyncio.InvalidStateError):
        first.exception()
    batch.done()
    assert await asyncio.gather(*tasks) == [IDS[0]] * 2
    assert [one.result() for one in batch.sent] == IDS and await batch.sent[2] == IDS[2]
    assert first.exception() is None and first.done() and not first.cancel()
    assert repr(first) == f"<Sent {IDS[0]!r}>"


async def test_asyncio_s_tools_take_it() -> None:
    batch = Batch()
    waits = [
        asyncio.ensure_future(asyncio.gather(*batch.sent)),
        asyncio.create_task(asyncio.wait(batch.sent)),
        asyncio.ensure_future(asyncio.shield(batch.sent[1])),
        asyncio.create_task(asyncio.wait_for(batch.sent[1], WAIT_S)),
    ]

    async def completed() -> list[MessageId]:
        return [await one for one in asyncio.as_completed(batch.sent)]

    waits.append(asyncio.create_task(completed()))
    for one in waits:
        await reached(one)
    batch.done()
    found: list[Any] = await asyncio.gather(*waits)
    assert (found[0], found[2], found[3]) == (IDS, IDS[1], IDS[1])
    assert found[1] == (set(batch.sent), set())
    assert sorted(found[4]) == IDS


async def test_callbacks_come_once_in_their_order_and_context() -> None:
    batch = Batch()
    first, word = batch.sent[0], contextvars.ContextVar("word", default="none")
    context = contextvars.copy_context()
    context.run(word.set, "said")
    heard: list[Any] = []

    def one(sent: asyncio.Future[MessageId]) -> None:
        heard.append(("one", sent is first, word.get()))

    def other(sent: asyncio.Future[MessageId]) -> None:
        heard.append(("other", sent is first, word.get()))

    first.add_done_callback(other)
    first.add_done_callback(one)
    first.add_done_callback(other, context=context)
    first.add_done_callback(heard.append)
    assert (first.remove_done_callback(heard.append), first.remove_done_callback(heard.append)) == (1, 0)
    batch.done()
    batch.done()
    first.add_done_callback(one)
    await asyncio.sleep(0)
    assert heard == [
        ("other", True, "none"),
        ("one", True, "none"),
        ("other", True, "said"),
        ("one", True, "none"),
    ]
    assert batch.sent[1].remove_done_callback(one) == 0


async def test_it_is_cancelled_by_itself_and_by_who_waits() -> None:
    batch = Batch()
    first, second, third = batch.sent
    assert first.cancel("why") and first.cancelled() and first.done() and not first.cancel()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await first
    task = asyncio.ensure_future(asyncio.gather(second, third, return_exceptions=True))
    await reached(task)
    second.cancel()
    batch.done()
    assert isinstance((await task)[0], asyncio.CancelledError)

    async def wait(sent: Sent) -> None:
        await sent

    another = Batch()
    waiting = asyncio.create_task(wait(another.sent[0]))
    await reached(waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert another.sent[0].cancelled() and not another.sent[1].done()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(*another.sent)


async def test_a_refusal_is_raised_as_a_new_error_each_time() -> None:
    batch = Batch()
    task = asyncio.ensure_future(asyncio.gather(*batch.sent, return_exceptions=True))
    await reached(task)
    batch.failed()
    assert [type(one) for one in await task] == [Refused] * 3
    depths = []
    for sent in batch.sent:
        with pytest.raises(Refused) as raised:
            await sent
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1
    assert repr(batch.sent[0]) == "<Sent Refused('no')>"


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("quietly", [False, True])
async def test_a_refusal_that_nobody_looks_at_is_told_once(looked: bool, quietly: bool) -> None:
    batch = Batch()
    batch.failed(quietly=quietly)
    if looked:
        assert isinstance(batch.sent[1].exception(), Refused)
    batch.pending = None
    batch.sent.clear()
    gc.collect()
    assert [str(one["exception"]) for one in batch.told] == ([] if looked or quietly else ["no"])


async def test_a_waiter_for_the_whole_batch_gets_all_ids() -> None:
    batch = Batch()
    assert batch.pending is not None
    whole = batch.pending.whole = asyncio.get_running_loop().create_future()
    batch.pending.due_ms = 5
    assert batch.pending.done(0, 3, None)
    assert await whole == [MessageId(0, 5)] * 3
    refused = Batch()
    assert refused.pending is not None
    whole = refused.pending.whole = asyncio.get_running_loop().create_future()
    refused.failed()
    with pytest.raises(Refused):
        await whole


async def test_a_batch_that_is_confirmed_in_parts_is_done_with_the_last() -> None:
    batch = Batch()
    assert batch.pending is not None
    assert not batch.pending.done(100, 1, True) and not batch.sent[0].done()
    batch.pending.sent_again()
    assert not batch.pending.done(200, 1, False)
    assert batch.pending.done(201, 2, True) and batch.pending.done(300, 3, False)
    ids = [await one for one in batch.sent]
    assert ids == [MessageId(200), MessageId(201), MessageId(202)]
    assert [one.routed for one in ids] == [False, True, True]


async def test_of_mandatory_messages_those_that_go_nowhere_raise() -> None:
    batch = Batch()
    assert batch.pending is not None
    batch.pending.mandatory = lambda: Refused("nowhere")
    batch.pending.done(100, 2, True)
    batch.pending.done(102, 1, False)
    assert [(await one).routed for one in batch.sent[:2]] == [True, True]
    with pytest.raises(Refused, match="nowhere"):
        await batch.sent[2]
    assert repr(batch.sent[2]) == "<Sent Refused('nowhere')>"


@pytest.mark.parametrize("looked", [0, 2])
async def test_a_mandatory_message_that_nobody_looks_at_is_told_once(looked: int) -> None:
    batch = Batch()
    assert batch.pending is not None
    batch.pending.mandatory = lambda: Refused("nowhere")
    batch.pending.done(100, 2, True)
    batch.pending.done(102, 1, False)
    assert isinstance(batch.sent[looked].exception(), Refused) == (looked == 2)
    batch.pending = None
    batch.sent.clear()
    gc.collect()
    assert [str(one["exception"]) for one in batch.told] == ([] if looked else ["nowhere"])


def test_nobody_makes_one() -> None:
    with pytest.raises(TypeError, match="send_nowait"):
        Sent()
