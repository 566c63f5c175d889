"""Lines of events, gathered."""

import logging
from collections.abc import Callable

def use(
    handler: logging.Handler | None,
    slowly: Callable[[logging.Logger, str, dict[str, object]], None],
    write: Callable[[], None],
    other: Callable[[object], str],
    short: int,
) -> None:
    """Have lines of events written so.

    Args:
        handler: Our own, for people; None: there is none, or its lines have another form.
        slowly: Logs an event that is not for that handler alone.
        write: Writes `gathered_lines` to it.
        other: As of `_log_fields.pairs`.
        short: As of `_log_fields.pairs`.

    """

def common(values: dict[str, object]) -> None:
    """Attach these to every line."""

def gather(later: Callable[[Callable[[], None]], object] | None) -> None:
    """Gather the lines of this thread; `later` calls a function soon. None: write each at once."""

def gathered_lines() -> list[str]:
    """Those that are not written yet; they count as written now."""

def event(logger: logging.Logger, message: str, values: dict[str, object]) -> None:
    """See `penstock.logs.event`."""
