"""A look through the log, awaited; see `Log.search_content`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log_core.history.content_search import Reached
from penstock.protocols.http.shared.positions import answer_of

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
    log = access.broker.log
    return await answer_of(
        lambda tell: log.search_content(span, matcher, content, limits, found, tell), access.broker.tick
    )
