"""Drains many queues, some at a time, and begins again where a connection was lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.migrate.rabbitmq.shovel import Shovel
from penstock.protocols.links.amqp.place import Place
from penstock.protocols.links.amqp.wire import Closed

__all__ = ["Drained", "Plan", "drain"]

_PAUSE_S = 0.5
_STOPPING = frozenset({320, 541})
"""Reply codes of a broker that stops: connection-forced, internal-error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The queues that are moved, and how."""

    source: Place
    target: Place
    queues: tuple[tuple[str, str], ...]
    """Vhost and name of each."""
    parallel: int = 4
    """Queues at a time. All, when it goes on with empty ones."""
    follow: bool = False
    """Whether it goes on with empty queues until it is cancelled."""
    wait_s: float
    """How long either side may be away."""


@dataclass(slots=True)
class Drained:
    """The result for one queue."""

    vhost: str
    queue: str
    moved: int = 0
    interruptions: int = 0
    """Lost connections; each may have repeated the messages that were under way."""
    failure: str = ""
    """Why messages are still there."""


async def drain(plan: Plan, on_moved: Callable[[int], None]) -> list[Drained]:
    """Move the messages of all queues. A queue that cannot be moved does not stop the others.

    Args:
        plan: The queues, and how.
        on_moved: Called with a number of messages that are moved.

    """
    turn = asyncio.Semaphore(len(plan.queues) if plan.follow else plan.parallel)

    async def one(vhost: str, queue: str) -> Drained:
        async with turn:
            return await _drain(plan, Drained(vhost, queue), on_moved)

    return list(await asyncio.gather(*(one(vhost, queue) for vhost, queue in plan.queues)))


async def _drain(plan: Plan, result: Drained, on_moved: Callable[[int], None]) -> Drained:
    lost_at = time.monotonic()
    is_open = False

    def moved(count: int) -> None:
        nonlocal is_open
        is_open = True
        result.moved += count
        on_moved(count)

    shovel = Shovel(plan.source, plan.target, result.vhost, result.queue, plan.follow, moved)
    while True:
        is_open = False
        try:
            await shovel.run()
            return result
        except Closed as error:
            if error.code not in _STOPPING:
                result.failure = str(error)
                return result
            lost: Exception = error
        except PenstockError as error:
            result.failure = str(error)
            return result
        except OSError as error:
            lost = error
        if is_open:
            lost_at = time.monotonic()
        elif time.monotonic() - lost_at > plan.wait_s:
            result.failure = f"no connection: {lost}; repeat the command: it goes on where it was"
            return result
        result.interruptions += 1
        await asyncio.sleep(_PAUSE_S)
