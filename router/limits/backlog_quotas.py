"""Backlog quotas: which vhosts hold more of the log than their limits allow.

    max-backlog-bytes          above it publishers wait: the vhost is `full`
    max-backlog-bytes-reject   above it what they publish is refused: the vhost is in `refusing`
    max-backlog-bytes-evict    above it the oldest of the backlog goes, until it is within nine tenths again

A vhost that does not say it has those of the configuration. The backlog of a vhost is its messages
in the log, from the oldest one on that some queue, session or stream of it still needs. Settled messages
in between count as long as they are there: until traffic retention lets go of its segment. Bytes
are known by segment; within the oldest one they are taken to be spread evenly.

A vhost is over a quota until it is below nine tenths of it. That publishers wait is the front ends'
business: they are not read. To refuse, routes of clients have a `Gate` among the queues that may refuse a
message, which each protocol answers in its own words. To evict, every queue, session and stream of the
vhost lets go of what is ready below one place of the log, the beginning of a segment: it counts as dropped
there, and is dead-lettered where that is said. Messages that are out to consumers stay, and keep
their place. Looked at once a second, for a bounded number of queues in each turn.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock.router.limits.limits import BACKLOG_BYTES, BACKLOG_EVICT, BACKLOG_REJECT, limit_of
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.limits import Overflow, Rules
from penstock.subscriptions.queue.queue import Queue

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queues import Queues
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["Gate", "Quotas"]

logger = logging.getLogger("penstock.router")

_EACH_S: Final = 1.0
_QUEUES_AT_ONCE: Final = 5000
"""Queues asked for their low position in one go (about 1 ms)."""
_NOTHING: Final = (1 << 64) - 1
_QUOTAS: Final = (BACKLOG_BYTES, BACKLOG_REJECT, BACKLOG_EVICT)


class Gate:
    """Stands in routes as a queue that never has room; what it refuses no other queue gets."""

    def __init__(self, queues: Queues) -> None:
        self.queue = Queue(queues, 0, "", "", kind=Kind.SHARED)
        self.queue.data = self
        self.queue.apply(Rules(max_length=0, overflow=Overflow.REJECT))


class _Turn:
    """How many queues were asked in this turn."""

    def __init__(self) -> None:
        self._left = _QUEUES_AT_ONCE

    def is_over(self) -> bool:
        """One more was: whether the loop has other things to do now."""
        self._left -= 1
        if self._left:
            return False
        self._left = _QUEUES_AT_ONCE
        return True


class Quotas:
    """Costs nothing while no vhost has a quota."""

    def __init__(
        self, log: Log, tick: Tick, vhosts: Mapping[str, Vhost], defaults: Mapping[str, int]
    ) -> None:
        """`vhosts`: all there are, by name. `defaults`: limits of those that have none of that name."""
        self._log = log
        self._defaults = defaults
        self._tick = tick
        self._vhosts = vhosts
        self._checking = False
        self.full: frozenset[str] = frozenset()
        """The vhosts over their quota."""
        self.on_change: list[Callable[[frozenset[str]], object]] = []
        """Called with `full` when it has changed."""
        self.refusing: frozenset[str] = frozenset()
        """The vhosts over the quota above which messages are refused."""
        self._evicted_before: dict[str, int] = {}  # of vhosts that are over that quota: what was told
        self.evicted: Counter[str] = Counter()
        """Messages that were evicted since the start, by vhost."""

    def limits_changed(self) -> None:
        """The limits of a vhost have changed, or it is gone."""
        if not self._checking and any(map(self._has_quota, self._vhosts)):
            self._checking = True
            self._tick.after(_EACH_S, self._begin)
        self._set(frozenset(name for name in self.full if self._quota(name, BACKLOG_BYTES) is not None))
        kept = (name for name in self.refusing if self._quota(name, BACKLOG_REJECT) is not None)
        self._refuse(frozenset(kept))

    def _quota(self, name: str, limit: str) -> int | None:
        vhost = self._vhosts.get(name)
        if vhost is None:
            return None
        return limit_of(vhost.limits if limit in vhost.limits else self._defaults, limit)

    def _has_quota(self, name: str) -> bool:
        return any(self._quota(name, limit) is not None for limit in _QUOTAS)

    def _begin(self) -> None:
        self._go_on(self._look())

    def _go_on(self, look: Iterator[None]) -> None:
        try:
            for _ in look:
                self._tick.after(0, lambda: self._go_on(look))
                return
        except Exception:
            logger.exception("not every vhost's backlog could be judged; it is tried again")
        self._checking = False
        self.limits_changed()

    def _look(self) -> Iterator[None]:
        """Judge every vhost that has a quota; a pause whenever enough queues were asked."""
        turn = _Turn()
        for vhost in list(self._vhosts.values()):
            if not self._has_quota(vhost.name):
                continue
            low = _NOTHING
            for entry in vhost.entries():
                low = min(low, entry.queue.low())
                if turn.is_over():
                    yield
            backlog = self._log.held_bytes(vhost.lp, low)
            self._judge(vhost, backlog)
            yield from self._evict(vhost, backlog, turn)

    def _evict(self, vhost: Vhost, backlog: int, turn: _Turn) -> Iterator[None]:
        """Have the oldest of a vhost's backlog go, when it is too large."""
        quota = self._quota(vhost.name, BACKLOG_EVICT)
        if quota is None or backlog <= quota:
            self._evicted_before.pop(vhost.name, None)
            return
        before = self._log.held_since(vhost.lp, quota * 9 // 10)
        evicted, had = self.evicted, self.evicted[vhost.name]

        def count(n: int) -> None:
            evicted[vhost.name] += n

        for entry in vhost.entries():
            if not entry.queue.deleted:
                entry.queue.evict(before, count)
            if turn.is_over():
                yield
        self._tick.schedule()
        if self._evicted_before.get(vhost.name) == before:
            return
        self._evicted_before[vhost.name] = before
        logger.warning(
            "messages are evicted: vhost '%s' holds %d bytes, and its %s is %d; %d went at once, what is "
            "dead-lettered follows, what is out to consumers stays; consume, or raise the limit",
            vhost.name,
            backlog,
            BACKLOG_EVICT,
            quota,
            evicted[vhost.name] - had,
        )

    def _judge(self, vhost: Vhost, backlog: int) -> None:
        self._set(self._over(vhost.name, BACKLOG_BYTES, backlog, self.full, "publishers wait"))
        self._refuse(self._over(vhost.name, BACKLOG_REJECT, backlog, self.refusing, "publishes are refused"))

    def _over(self, name: str, limit: str, backlog: int, over: frozenset[str], effect: str) -> frozenset[str]:
        """Those that are over this limit, of whom `over` were."""
        quota = self._quota(name, limit)
        if quota is None:  # it was taken back meanwhile
            return over
        if name in over:
            if backlog <= quota * 9 // 10:
                logger.info("over: vhost '%s' is within its %s again", name, limit)
                return over - {name}
        elif backlog > quota:
            logger.warning(
                "%s: vhost '%s' holds %d bytes, and its %s is %d; consume, or raise the limit",
                effect,
                name,
                backlog,
                limit,
                quota,
            )
            return over | {name}
        return over

    def _refuse(self, refusing: frozenset[str]) -> None:
        changed = self.refusing ^ refusing
        self.refusing = refusing
        for name in changed & self._vhosts.keys():
            self._vhosts[name].topology.renew()

    def _set(self, full: frozenset[str]) -> None:
        if full != self.full:
            self.full = full
            for callback in list(self.on_change):
                callback(full)
