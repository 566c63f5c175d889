"""The test of a record's own bytes in a search."""

from collections.abc import Iterable
from typing import final

@final
class Content:
    """The demands on a record, beside its key block."""

    def __init__(
        self,
        properties: Iterable[Iterable[bytes]] = (),
        body: bytes = b"",
        since_ms: int = 0,
        until_ms: int | None = None,
        feeds: Iterable[int] | None = None,
    ) -> None:
        """Args:
        properties: Clauses, each of alternatives: of every clause one must be in the properties block.
        body: Must be in the body.
        since_ms, until_ms: Times of the record, ms since the epoch: [since_ms, until_ms); None: no end.
        feeds: Ids of feeds, of which it must be in one; None: it may be in none.

        Raises ValueError: a clause has no alternatives.
        """
