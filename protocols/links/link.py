"""A link: runs until it is stopped, connects again after a fault, and says how it is.

    STARTING --both ends are open--> RUNNING --fault--> WAITING --pause--> STARTING ...
                                        |
                                        +-- done --> TERMINATED

Pauses double from the link's first one up to a minute, each shortened at random by up to a tenth, so that
many links of one broker do not come back at once. A link that ran for longer than its next pause begins anew
with the first one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.logs import fields

__all__ = ["Link", "LinkCounts", "State"]

logger: Final = logging.getLogger("penstock.links")

_PAUSE_MAX_S: Final = 60.0


class State(Enum):
    """See the module."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    TERMINATED = "terminated"


@dataclass(slots=True)
class LinkCounts:
    """Since the link was made."""

    forwarded: int = 0
    """Messages that the other end has, as far as the link waits for its word."""
    faults: int = 0
    """Times a connection was lost or could not be made."""


class Link(ABC):
    """See the module. A kind of link says in `_serve` what it does."""

    kind = ""

    def __init__(self, vhost: str, name: str, first_pause_s: float) -> None:
        """`first_pause_s` after a fault; 0 = it does not begin again."""
        self.vhost: Final = vhost
        self.name: Final = name
        self.state = State.STARTING
        self.error = ""
        """Why it does not run; "" while it does. It has no password."""
        self.changed_at = time.time()
        """When its state changed, in seconds since the epoch."""
        self.counts = LinkCounts()
        self._first_pause_s = first_pause_s
        self._failures = 0
        self._up_at = 0.0
        self._next_at = 0.0

    @abstractmethod
    async def _serve(self) -> None:
        """Connect both ends, say `_up`, and move messages. Returns when there is nothing left to do.

        Raises:
            PenstockError: an end refused something; it is tried again.
            OSError: a connection is lost or cannot be made.

        """

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Its ends and its figures, as the API has them; without passwords."""

    @property
    def retry_in_s(self) -> float:
        """Seconds until it connects again; 0 when it does not wait."""
        return max(self._next_at - time.monotonic(), 0.0) if self.state is State.WAITING else 0.0

    async def run(self) -> None:
        """Until there is nothing left to do, or until it is cancelled."""
        try:
            while True:
                self._become(State.STARTING)
                try:
                    await self._serve()
                except ExceptionGroup as errors:
                    # Both ends may fail at once; the reason that a broker gave is worth more.
                    self._failed(min(_leaves(errors), key=lambda one: not isinstance(one, PenstockError)))
                except Exception as error:  # the edge: one link that fails harms no other
                    self._failed(error)
                else:
                    return
                if not self._first_pause_s:
                    return
                pause_s = self._pause_s()
                self._next_at = time.monotonic() + pause_s
                self._become(State.WAITING)
                await asyncio.sleep(pause_s)
        finally:
            self._become(State.TERMINATED)

    def _become(self, state: State) -> None:
        if state is not self.state:
            self.state, self.changed_at = state, time.time()

    def _up(self) -> None:
        """Both ends are open."""
        self.error = ""
        self._up_at = time.monotonic()
        self._become(State.RUNNING)
        logger.info("a link runs", extra=self._named())

    def _pause_s(self) -> float:
        pause_s = min(self._first_pause_s * 2.0 ** min(self._failures - 1, 30), _PAUSE_MAX_S)
        return max(pause_s, min(self._first_pause_s, pause_s)) * random.uniform(0.9, 1.0)

    def _failed(self, error: Exception) -> None:
        self.error = _told(error)
        if not isinstance(error, PenstockError | OSError | ValueError):
            self.error = "an internal error; see the gateway's log"
            logger.error("a link failed", exc_info=error, extra=self._named())
        self.counts.faults += 1
        if self.state is State.RUNNING and time.monotonic() - self._up_at > self._pause_s_after_next():
            self._failures = 0
        self._failures += 1
        # 1, 2, 4, 8 ...: one line per doubling is enough while a broker is away.
        if self._failures & (self._failures - 1) == 0:
            logger.warning("a link is down: %s", self.error, extra=self._named())

    def _pause_s_after_next(self) -> float:
        return min(self._first_pause_s * 2.0 ** min(self._failures, 30), _PAUSE_MAX_S)

    def _named(self) -> dict[str, Any]:
        return fields(kind=self.kind, link=self.name, vhost=self.vhost)


def _leaves(error: Exception) -> Iterator[Exception]:
    """The errors in groups of groups."""
    if isinstance(error, ExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _told(error: Exception) -> str:
    """The fault in one line. Errors of the system and of TLS name addresses, and no password."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
