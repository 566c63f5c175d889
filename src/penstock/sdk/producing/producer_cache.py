"""Producers of one client by the place they send to: opened when they are used first, closed when unused.

For what is sent to many places, a message at a time: requests and replies.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.sdk.errors import ClientError

if TYPE_CHECKING:
    from penstock.sdk.message import MessageId
    from penstock.sdk.producing.producer import Producer

__all__ = ["ProducerCache"]

_MOST: Final = 100
"""Producers that stay open while nobody sends by them."""

Place = tuple[tuple[str, str], ...]


class _Entry:
    """A producer, and how many send by it."""

    def __init__(self, producer: Producer[bytes | str]) -> None:
        self.producer = producer
        self.opening = asyncio.ensure_future(producer.open())
        self.users = 0


class ProducerCache:
    """See the module."""

    def __init__(self, make: Callable[..., Producer[bytes | str]]) -> None:
        """`make` makes the producer to a place, whose fields are its keyword arguments."""
        self._make = make
        self._entries: OrderedDict[Place, _Entry] = OrderedDict()
        """The one that was used last is behind the others."""

    async def send(self, place: Mapping[str, str], body: bytes | str, **options: Any) -> MessageId:
        """Send a message to a place; see `Producer.send`. Raises ClientError, TypeError, ValueError."""
        name = tuple(place.items())
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry(self._make(**place))
        self._entries.move_to_end(name)
        entry.users += 1
        try:
            await asyncio.shield(entry.opening)
            return await entry.producer.send(body, **options)
        except ClientError:
            if not entry.producer.is_open:
                self._entries.pop(name, None)
            raise
        finally:
            entry.users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        """Close those that were used longest ago, if there are too many."""
        unused = [name for name, entry in self._entries.items() if not entry.users]
        for name in unused[: max(len(self._entries) - _MOST, 0)]:
            await self._entries.pop(name).producer.close()
