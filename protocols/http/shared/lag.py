"""Waiting until the ages of subscriptions' heads can be told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.subscriptions.streams.lag import when_known
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["heads_known"]


async def heads_known(log: Log, queues: Iterable[Queue]) -> None:
    """Return when `heads.age_ms` can tell of each subscription to a stream among `queues`; a head that is not
    in memory is read first."""
    known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def told() -> None:
        if not known.done():
            known.set_result(None)

    when_known(log, [one for one in queues if isinstance(one, Subscription)], told)
    await known
