"""One of many that fails: the others go on, and so does the timer that looks after all of them.

What is done for many at a time (half messages that are due, queues that expire, sessions that end) is called
from one timer, which is set again behind it. An error of one must end neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["guarded"]


def guarded(logger: logging.Logger, what: str, call: Callable[..., object], *arguments: object) -> bool:
    """Call it; False: it raised, which is logged as an error, `what`, with the traceback."""
    try:
        call(*arguments)
    except Exception:
        logger.exception(what)
        return False
    return True
