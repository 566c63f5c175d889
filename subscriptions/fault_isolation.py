"""Isolates a failure of one among many, so that the others and their common timer go on.

Work on many at a time (half messages that are due, queues that expire, sessions that end) runs from one
timer, which is set again afterwards. An error of one must end neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.log_core.errors import LogFailed

__all__ = ["guarded"]


def guarded(logger: logging.Logger, what: str, call: Callable[..., object], *arguments: object) -> bool:
    """Call it; False: it raised, which is logged as an error, `what`, with the traceback.

    That the log takes nothing more is not logged again: the log has said so, and the gateway ends.
    """
    try:
        call(*arguments)
    except LogFailed:
        return False
    except Exception:
        logger.exception(what)
        return False
    return True
