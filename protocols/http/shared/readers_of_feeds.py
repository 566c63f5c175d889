"""The queues that read some of a set of feeds: where a message or a route leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.vhost.vhost import Vhost

__all__ = ["kind_of", "readers_of"]

_AT_ONCE: Final = 1000
"""Queues that are looked at before others have a turn."""


async def readers_of(vhost: Vhost, feeds: frozenset[int], position: int) -> AsyncIterator[QueueEntry]:
    """The queues, sessions, subscriptions and streams that get a message at `position` of the feeds."""
    for count, entry in enumerate(vhost.entries(), 1):
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
        queue = entry.queue
        if queue.deleted:
            continue
        if isinstance(queue, Stream):
            if queue.feed.id in feeds:
                yield entry
        elif any(
            feed in feeds and first <= position and (last is None or position < last)
            for feed, _, first, last in queue.cursor.memberships()
        ):
            yield entry


def kind_of(entry: QueueEntry) -> str:
    """The kind of place that it is, in words for operators."""
    return "stream" if isinstance(entry.queue, Stream) else entry.kind
