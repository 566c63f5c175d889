"""The budget of all connections' buffers."""

from __future__ import annotations

import asyncio

from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.connection_context import Limits
from tests.support.echo import Echo, packet
from tests.support.limits import LIMIT_S
from tests.support.stack import Stack

MIB = 1 << 20


def test_the_mark_falls_while_the_budget_is_exceeded_and_grows_back() -> None:
    buffers = Buffers(budget_bytes=10 * MIB, mark_bytes=MIB)
    one, two = object(), object()
    buffers.report(one, 6 * MIB, 0.0)
    buffers.report(two, 4 * MIB, 0.5)
    assert (buffers.mark, buffers.surplus) == (MIB, 0)
    buffers.report(two, 5 * MIB, 1.0)
    assert (buffers.mark, buffers.surplus) == (MIB // 2, MIB)
    buffers.report(one, 6 * MIB, 1.2)
    assert buffers.mark == MIB // 2, "once a second"
    for now in range(2, 20):
        buffers.report(two, 5 * MIB, float(now))
    assert buffers.mark == 16 * 1024, "not less"
    buffers.cut(MIB)
    assert buffers.surplus == 0
    buffers.report(two, 0, 20.0)
    assert (buffers.mark, buffers.surplus) == (16 * 1024, 0), "it stays above half of the budget"
    for now in range(21, 40):
        buffers.report(one, 1, float(now))
    assert buffers.mark == MIB


def test_without_a_budget_nothing_changes() -> None:
    buffers = Buffers(0, MIB)
    buffers.report(self := object(), 1 << 50, 1.0)
    assert (buffers.mark, buffers.surplus) == (MIB, 0)
    buffers.report(self, 0, 2.0)


async def behind(stack: Stack, size: int) -> tuple[Echo, asyncio.StreamReader]:
    """A connection whose peer does not read, with `size` bytes waiting in the gateway."""
    reader, writer = await stack.client()
    writer.write(packet(b"login"))
    await reader.readexactly(4)
    writer.transport.pause_reading()
    echo = stack.made[-1]
    assert echo.transport is not None
    # First what the system takes, then what it does not.
    while True:
        waiting = echo.transport.get_write_buffer_size()
        if waiting >= size:
            return echo, reader
        assert not echo.closing
        echo.out.write(bytes(min(256 * 1024, size - waiting)))
        echo.flush()
        await asyncio.sleep(0)


async def test_those_who_take_nothing_are_dropped_largest_first_until_the_budget_is_kept() -> None:
    buffers = Buffers(budget_bytes=8 * MIB, mark_bytes=4 * MIB)
    async with Stack(Limits(output_high_bytes=4 * MIB), buffers=buffers) as stack:
        stack.listener._timer.cancel()  # the test looks after the connections itself
        small, large, middle = [(await behind(stack, size * MIB))[0] for size in (1, 6, 3)]
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        listener = stack.listener
        now = asyncio.get_running_loop().time()
        for second in range(1, 4):  # the listener's timer, in quick motion
            held = 0
            for connection in list(listener.connections):
                connection.check(now + second)
                held += connection.held_bytes()
            buffers.report(listener, held, now + second)
        assert buffers.surplus > MIB
        assert small.output_mark < 4 * MIB, "the mark of all has fallen"
        listener._cut(now + 3)
        assert "server.buffer_budget" in large.reason
        assert not small.closing and not middle.closing
        writer.write(packet(b"served"))
        await reader.readexactly(4)


async def test_one_that_takes_its_output_is_not_dropped() -> None:
    buffers = Buffers(budget_bytes=MIB, mark_bytes=MIB)
    async with Stack(buffers=buffers) as stack:
        stack.listener._timer.cancel()
        echo, reader = await behind(stack, 4 * MIB)
        now = asyncio.get_running_loop().time()
        echo.check(now)
        buffers.report(stack.listener, echo.held_bytes(), now)
        stack.writers[0].transport.resume_reading()
        before = echo.held_bytes()
        async with asyncio.timeout(LIMIT_S):
            while echo.transport is not None and echo.transport.get_write_buffer_size() >= before:
                await reader.read(MIB)
        echo.check(now + 5)
        stack.listener._cut(now + 5)
        assert not echo.closing
