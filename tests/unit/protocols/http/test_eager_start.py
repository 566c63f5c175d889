"""A coroutine that is begun at once, and the task that goes on with it."""

from __future__ import annotations

import asyncio

import pytest

from penstock.protocols.http.server.eager_start import begin


def test_a_coroutine_that_does_not_wait_runs_without_a_task() -> None:
    done: list[asyncio.Task[None] | None] = []

    async def work() -> None:
        done.append(asyncio.current_task())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = len(asyncio.all_tasks())
        assert begin(loop, work()) is None
        assert len(asyncio.all_tasks()) == before

    asyncio.run(main())
    assert len(done) == 1


def test_a_coroutine_that_waits_continues_in_a_task_of_its_own() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        first: asyncio.Future[str] = loop.create_future()
        heard: list[str] = []

        async def work() -> None:
            heard.append(await first)
            await asyncio.sleep(0)
            async with asyncio.timeout(60):  # which needs a task
                heard.append("more")

        task = begin(loop, work())
        assert task is not None and heard == []
        first.set_result("it")
        await task
        assert heard == ["it", "more"]

    asyncio.run(main())


def test_a_task_that_is_cancelled_before_its_first_step_cancels_what_was_begun() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ends: list[str] = []

        async def work() -> None:
            try:
                await loop.create_future()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        task = begin(loop, work())
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends == ["cancelled"]

    asyncio.run(main())


def test_an_immediate_failure_is_raised_to_the_caller() -> None:
    async def work() -> None:
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            begin(asyncio.get_running_loop(), work())

    asyncio.run(main())
