"""GET /api/slow-consumers: consumers that hold their queue back, and clients that do not read; worst first.

    {"reason": "stuck", "text": "it holds as many ...", "vhost": V, "queue": Q, "consumer": TAG,
     "connection": N, "user": U, "protocol": P, "for_ms": MS, "unacknowledged": 10, "prefetch": 10,
     "messages_ready": 4711, "waiting_bytes": 0}

    stuck           messages wait, the consumer may get none before it settles some, and it settles none
    stalled         the client of a connection takes none of its output
    unacknowledged  it has settled none of its messages for a minute
    behind          messages wait, it had as many as it may have at each look, and no fewer wait than before
    output          the output of a connection was above its mark at each look

Nothing is kept per delivery. The consumers are looked at when somebody asks, and compared with the look
before; an answer that has none to compare with takes two looks. So `for_ms` is the least that is known: since
the first look that found it so, as long as somebody looks at least each minute. Afterwards all is forgotten.
A user sees their own connections in the vhosts that they may enter, as in the list of connections.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.shared.lists import reply_list

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Timer
    from penstock.protocols.http.management.context import Management
    from penstock.protocols.http.server.messages import Request, Response
    from penstock.protocols.net.connection import Connection
    from penstock.protocols.net.connection_info import WindowInfo

__all__ = ["MOST", "REASONS", "SlowConsumers", "Watch"]

MOST: Final = 100
REASONS: Final = ("stuck", "stalled", "unacknowledged", "behind", "output")
"""The worst first."""

_STUCK_S: Final = 2.0
_BEHIND_S: Final = 5.0
_OLD_S: Final = 60.0
_APART_S: Final = 2.5
"""Between the two looks of an answer that has none to compare with."""
_FRESH_S: Final = 1.0
"""A look is good for so long: pages ask at the same moments."""
_KEPT_S: Final = 60.0
"""A look is kept for so long, to be compared with the next one."""
_AT_ONCE: Final = 100
"""Connections before the loop does something else."""
_LONGEST_S: Final = 1e12
_TEXTS: Final = {
    "stuck": "it holds as many messages as it may have and settled none for {seconds} s, while others wait",
    "stalled": "the client has taken none of its output for {seconds} s",
    "unacknowledged": "it settled none of its messages for {seconds} s",
    "behind": "it held as many messages as it may have for {seconds} s, and no fewer wait than before",
    "output": "the output of the connection was above its mark at each look for {seconds} s",
}


@dataclass(frozen=True, slots=True)
class _Slow:
    """A row of the answer, as it was at the look: the connection may be gone before the answer."""

    order: tuple[str, ...]
    """A key by which the worst is the first."""
    vhost: str
    user: str
    item: dict[str, Any]


def _slow(reason: str, seconds: float, connection: Connection, window: WindowInfo | None = None) -> _Slow:
    """A consumer, or without a window the connection as a whole."""
    queue = None if window is None else window.queue
    item: dict[str, Any] = {
        "reason": reason,
        "text": _TEXTS[reason].format(seconds=round(seconds)),
        "vhost": connection.vhost_name,
        "queue": "" if queue is None else queue.data.listed_name,
        "consumer": "" if window is None else window.tag,
        "connection": connection.name,
        "user": connection.user or "",
        "protocol": connection.spoken,
        "for_ms": int(seconds * 1000),
        "unacknowledged": 0 if window is None else window.unacknowledged,
        "prefetch": 0 if window is None else window.most,
        "messages_ready": 0 if queue is None else queue.ready_count,
        "waiting_bytes": connection.waiting_bytes(),
    }
    order = str(REASONS.index(reason)), f"{_LONGEST_S - seconds:020.6f}", connection.name
    return _Slow(order, connection.vhost_name, item["user"], item)


class Watch:
    """One consumer from look to look."""

    def __init__(self, window: WindowInfo, ready: int, now: float) -> None:
        self._before = window
        self._settled_at = now
        """The first look since which it has settled nothing."""
        self._full_at = now if window.is_full and ready else math.inf
        """The first look since which it was full at each; infinite: it is not."""
        self._ready_then = ready

    def look(self, window: WindowInfo, ready: int, now: float) -> tuple[str, float] | None:
        """The reason and the seconds for which it has been slow; None: it is not."""
        before, self._before = self._before, window
        if _has_settled(before, window):
            self._settled_at = now
        if not window.is_full or not ready:
            self._full_at = math.inf
        elif self._full_at == math.inf:
            self._full_at, self._ready_then = now, ready
        unsettled_s, full_s = now - self._settled_at, now - self._full_at
        if min(unsettled_s, full_s) >= _STUCK_S:
            return "stuck", unsettled_s
        if unsettled_s >= _OLD_S:
            return "unacknowledged", unsettled_s
        if full_s >= _BEHIND_S and ready >= self._ready_then:
            return "behind", full_s
        return None


def _has_settled(before: WindowInfo, now: WindowInfo) -> bool:
    """Whether a consumer has settled a delivery between two looks, as far as its counts tell."""
    if now.unacknowledged != before.unacknowledged:
        return now.unacknowledged < before.unacknowledged or now.settled != before.settled
    return now.settled != before.settled or now.got != before.got


class SlowConsumers:
    """See the module."""

    def __init__(self, api: Management) -> None:
        self._api = api
        self._time = asyncio.get_running_loop().time
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._watched: dict[Hashable, Watch] = {}
        self._full: dict[int, float] = {}
        """Connections whose output was above its mark at each look, and since when."""
        self._found: list[_Slow] = []
        self._end: Timer | None = None

    async def index(self, request: Request) -> Response:
        """The answer."""
        api = self._api
        visible = {vhost.name for vhost in api.vhosts(request)}
        sees_all, username = api.sees_all(request), api.identity(request).username
        async with self._looking:
            await self._look_again()
        rows = [one for one in self._found if one.vhost in visible and (sees_all or one.user == username)]
        rows.sort(key=lambda one: one.order)
        return await reply_list(
            request, rows[:MOST], lambda one: one.item, lambda one: one.order, is_sorted=True
        )

    async def _look_again(self) -> None:
        if self._time() - self._looked_at < _FRESH_S:
            return
        if self._end is None:
            await self._look()
            await asyncio.sleep(_APART_S)
        else:
            self._end.cancel()
        await self._look()
        self._end = self._api.broker.tick.after(_KEPT_S, self._forget)

    def _forget(self) -> None:
        """Nobody asked for long: refer to no queue and no connection any more."""
        self._end, self._looked_at = None, -math.inf
        self._watched, self._full, self._found = {}, {}, []

    async def _look(self) -> None:
        now = self._looked_at = self._time()
        self._found = []
        watched: dict[Hashable, Watch] = {}
        full: dict[int, float] = {}
        connections = [one for _, listener in self._api.registry.listeners() for one in listener.connections]
        for at, connection in enumerate(connections):
            if at % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            is_open = connection.transport is not None and not connection.closing
            if is_open and connection.user and connection.vhost_name:
                self._look_at(connection, now, watched, full)
        self._watched, self._full = watched, full

    def _look_at(
        self, connection: Connection, now: float, watched: dict[Hashable, Watch], full: dict[int, float]
    ) -> None:
        for window in connection.windows():
            queue = window.queue
            if queue.data is None:
                continue  # it was deleted
            key = (connection.id, window.channel, window.tag, queue.data.listed_name)
            ready = queue.ready_count
            watch = self._watched.get(key)
            slow = None if watch is None else watch.look(window, ready, now)
            watched[key] = watch or Watch(window, ready, now)
            if slow is not None:
                self._found.append(_slow(*slow, connection, window))
        if connection.is_stuck(now):
            self._found.append(_slow("stalled", connection.stuck_s(now), connection))
        elif not connection.writable:
            since = full[connection.id] = self._full.get(connection.id, now)
            if now - since >= _BEHIND_S:
                self._found.append(_slow("output", now - since, connection))
