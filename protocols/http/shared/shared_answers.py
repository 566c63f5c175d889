"""Answers that are made once for many pages that ask at about the same time.

A page that looks at a list again and again says how old its answer may be (RFC 9111 5.2.1.1):

    Cache-Control: max-age=2

Then it gets what was made for another one up to so many seconds ago (`Age` says how long), or waits for what
is just being made. A request without these words gets an answer of its own. An answer is shared among users
who see everything: for them it is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import Content, Request, Response
from penstock.protocols.http.server.routes import Handler

__all__ = ["SharedAnswers"]

_MAX_AGE_S: Final = 5
"""Older answers are given to nobody."""
_KEPT_MAX: Final = 32
"""Answers that are kept; a page of a list has some 100 kB."""


@dataclass(frozen=True, slots=True)
class _Made:
    at: float
    content: Content


class SharedAnswers:
    """Of one listener."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds, never back."""
        self._clock = clock
        self._known: dict[str, _Made | asyncio.Event] = {}
        """By target; an event is set when one that is being made is there."""

    def __len__(self) -> int:
        """The answers that are kept, or being made."""
        return len(self._known)

    def shared(self, handler: Handler) -> Handler:
        """The handler, whose answers depend on nothing but the target for users who see everything."""

        async def serve(request: Request) -> Response:
            age_s = _max_age_s(request.headers.get("cache-control", ""))
            identity = request.identity
            if not age_s or request.part or request.others is not None:
                return await handler(request)
            if identity is None or not identity.sees_all:
                return await handler(request)
            return await self._shared(request, handler, age_s)

        return serve

    async def _shared(self, request: Request, handler: Handler, age_s: int) -> Response:
        while isinstance(known := self._known.get(request.target), asyncio.Event):
            await known.wait()
        now = self._clock()
        if known is not None and now - known.at <= age_s:
            response = known.content.reply(request)
            response.headers = [*response.headers, ("age", str(int(now - known.at)))]
            return response
        self._let_go(now)
        made = self._known[request.target] = asyncio.Event()
        content: Content | None = None
        try:
            response = await handler(request)
            content = response.content
            return response
        finally:
            # A request that waits makes its own answer if this one failed, or its client went.
            if content is None:
                del self._known[request.target]
            else:
                self._known[request.target] = _Made(now, content)
            made.set()

    def _let_go(self, now: float) -> None:
        """Forget answers that are too old, and the oldest ones of too many."""
        kept = [(one.at, target) for target, one in self._known.items() if isinstance(one, _Made)]
        for number, (at, target) in enumerate(sorted(kept, reverse=True)):
            if now - at > _MAX_AGE_S or number >= _KEPT_MAX - 1:
                del self._known[target]


def _max_age_s(asked: str) -> int:
    """The seconds of `max-age` in Cache-Control; 0 without."""
    for one in asked.split(","):
        name, _, value = one.strip().lower().partition("=")
        if name == "max-age" and value.isascii() and value.isdigit() and len(value) < 10:
            return min(int(value), _MAX_AGE_S)
    return 0
