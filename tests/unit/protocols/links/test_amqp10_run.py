"""A run of a shovel of AMQP 1.0 between ends that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from penstock.protocols.amqp10.codec.errors import DecodeError
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp.mover import Progress
from penstock.protocols.links.amqp10._messages import Messages
from penstock.protocols.links.amqp10.adding import Addition
from penstock.protocols.links.amqp10.run import Refused, Run
from penstock.protocols.links.errors import LinkError

Taken = list[tuple[int, list[bytes]]]

_DATA = b"\x00\x53\x75\xa0\x01"
"""In front of a body of one byte."""


class Add(Addition):
    """An addition that is a function."""

    def __init__(self, function: Callable[[bytes], bytes] | None) -> None:
        self.adds = function is not None
        self._function = function

    def __call__(self, payload: bytes) -> bytes:
        assert self._function is not None
        return self._function(payload)


class Source:
    """Gives what is put into it."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Taken] = asyncio.Queue()
        self.settled: list[tuple[int, int]] = []
        self.waiting: int | None = None
        self.messages = Messages()

    async def take(self) -> list[tuple[int, int]]:
        runs = await self.given.get()
        self.messages.clear()
        for _, payloads in runs:
            for payload in payloads:
                self.messages.append(_DATA + payload)
        return [(number, len(payloads)) for number, payloads in runs]

    def settle(self, number: int, count: int) -> None:
        self.settled.append((number, count))

    def look(self) -> None:
        self.waiting = 7

    async def drain(self) -> None:
        pass


class Target:
    """Decides what is put into it: a range that is accepted, or an error."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.decided: asyncio.Queue[tuple[int, int] | Exception] = asyncio.Queue()

    async def publish(self, messages: Messages) -> None:
        while messages:
            self.published.append(messages.pop().removeprefix(_DATA))

    async def take(self, in_flight: InFlight) -> None:
        found = await self.decided.get()
        if isinstance(found, Exception):
            raise found
        in_flight.accepted(*found)


class World:
    """Both ends, and the run between them."""

    def __init__(
        self,
        mode: Literal["on-confirm", "on-publish", "no-ack"] = "on-confirm",
        *,
        left: int | None = None,
        add: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.source, self.target = Source(), Target()
        self.moved = 0
        self.waiting: int | None = None
        self.progress = Progress(self._moved, self._waiting)
        self.run = Run(self.source, self.target, Add(add), mode=mode, left=left, progress=self.progress)

    def _moved(self, count: int) -> None:
        self.moved += count

    def _waiting(self, count: int) -> None:
        self.waiting = count


async def turns() -> None:
    """Let tasks do what they can do."""
    for _ in range(20):
        await asyncio.sleep(0)


def played(world: World, script: Callable[[World], Awaitable[None]]) -> str:
    """Play a script beside a run, and end it; why it failed, or ""."""

    async def play() -> str:
        running = asyncio.create_task(world.run.run())
        await turns()
        await script(world)
        await turns()
        world.run.end()
        (outcome,) = await asyncio.gather(running, return_exceptions=True)
        if outcome is None:
            return ""
        assert isinstance(outcome, ExceptionGroup)
        (error,) = outcome.exceptions
        assert isinstance(error, LinkError)
        return error.message

    return asyncio.run(play())


def test_messages_are_settled_behind_their_outcomes() -> None:
    world = World()

    async def script(world: World) -> None:
        world.source.given.put_nowait([(5, [b"a", b"b"]), (7, [b"c"])])
        await turns()
        assert world.target.published == [b"a", b"b", b"c"] and world.progress.pending == 3
        world.target.decided.put_nowait((2, 3))
        await turns()
        assert world.source.settled == []
        world.target.decided.put_nowait((1, 1))

    assert played(world, script) == ""
    assert world.source.settled == [(7, 3)] and world.moved == 3 and world.progress.pending == 0
    assert world.waiting == 7


@pytest.mark.parametrize(("mode", "settled"), [("on-publish", [(6, 2)]), ("no-ack", [])])
def test_other_modes_do_not_wait(
    mode: Literal["on-publish", "no-ack"], settled: list[tuple[int, int]]
) -> None:
    world = World(mode)

    async def script(world: World) -> None:
        world.source.given.put_nowait([(5, [b"a", b"b"])])

    assert played(world, script) == ""
    assert world.source.settled == settled and world.moved == 2


def test_no_more_is_sent_than_is_left() -> None:
    world = World(left=3)

    async def script(world: World) -> None:
        world.source.given.put_nowait([(0, [b"a", b"b"]), (2, [b"c", b"d"]), (4, [b"e"])])
        world.source.given.put_nowait([(5, [b"f"])])

    assert played(world, script) == ""
    assert world.target.published == [b"a", b"b", b"c"]


def test_a_refusal_waits_for_what_was_sent_before() -> None:
    world = World()

    async def script(world: World) -> None:
        world.source.given.put_nowait([(0, [b"a", b"b", b"c"])])
        await turns()
        # The third one is refused, then the second one, and the first one is accepted at last.
        for decided in (Refused("full", 2), Refused("fuller", 1)):
            world.target.decided.put_nowait(decided)
            await turns()
        world.source.given.put_nowait([(3, [b"d"])])
        await turns()
        assert world.source.settled == []
        world.target.decided.put_nowait((1, 1))

    assert played(world, script) == "destination: fuller"
    assert world.source.settled == [(0, 1)] and world.target.published == [b"a", b"b", b"c"]


def test_a_lost_end_is_named() -> None:
    async def lost(world: World) -> None:
        world.target.decided.put_nowait(ConnectionResetError("reset"))

    assert played(World(), lost) == "destination: the connection is lost: reset"

    def damaged(_: bytes) -> bytes:
        raise DecodeError("no section")

    async def bad(world: World) -> None:
        world.source.given.put_nowait([(0, [b"a"])])

    assert played(World(add=damaged), bad) == "source: a message that cannot be read: no section"
