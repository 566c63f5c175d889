"""A look through the log, awaited; see `Log.search_content`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.log_core.history.content_search import Reached
from penstock.protocols.http.server.messages import HttpError

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.log_core.history._content import Content
    from penstock.log_core.history.content_search import Found, SearchLimits
    from penstock.log_core.history.key_walk import Matcher
    from penstock.protocols.http.data.access import Access

__all__ = ["Everything", "look"]


class Everything:
    """A `Matcher` for all records of a partition."""

    def __init__(self, lp: int) -> None:
        self.lp = lp

    def verdict(self, enc: int, key: bytes) -> int:
        """Wanted."""
        return 1

    def is_wanted(self, record: Record) -> bool:
        """Never asked, as no key block leaves it open."""
        return True


async def look(
    access: Access,
    span: tuple[int, int],
    matcher: Matcher,
    content: Content,
    limits: SearchLimits,
    found: Found | None,
) -> Reached:
    """Hand the records of a span to `found`, or count them; how far it came. Raises HttpError 503."""
    if span[0] >= span[1]:
        return Reached(span[1])
    done: asyncio.Future[Reached | None] = asyncio.get_running_loop().create_future()

    def told(reached: Reached | None) -> None:
        if not done.done():
            done.set_result(reached)

    access.broker.log.search_content(span, matcher, content, limits, found, told)
    access.broker.tick.schedule()  # records appended last have to be written first
    reached = await done
    if reached is None:
        raise HttpError(503, "unavailable", "the log could not be read; see its lines")
    return reached
