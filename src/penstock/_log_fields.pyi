"""Fields of log lines as text."""

import logging
from collections.abc import Callable

def pairs(values: dict[str, object], short: int, other: Callable[[object], str]) -> str:
    """` key=value` of each.

    Args:
        values: By key.
        short: A text of at most so many characters stands as it is, if it is plain: ASCII without blanks,
            quotes, equals signs, backslashes and control characters. Blanks and equals signs alone make it be
            quoted here.
        other: The text of any other value that is no int.

    """

def only(logger: logging.Logger, handler: logging.Handler) -> bool:
    """Whether a line of this logger goes to `handler` and nowhere else, unfiltered."""

def moment(seconds: float) -> str:
    """A time since the epoch, of 1970 or later, as in 2026-01-01T00:00:00.000Z."""
