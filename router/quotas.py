"""Backlog quotas: which vhosts hold more of the log than their limit `max-backlog-bytes` allows.

The backlog of a vhost is what of its messages lies in the log from the oldest one on that some queue, session
or stream of it still needs. What lies between and is done counts as long as it is there: until traffic
retention lets go of its segment. Bytes are known by segment; within the oldest one they are taken to be
spread evenly.

A vhost over its quota is full until it is below nine tenths of it. What follows is the front ends' business:
its publishers are not read. Looked at once a second, for a bounded number of queues in each turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock.router.limits import BACKLOG_BYTES, limit_of

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.vhost import Vhost
    from penstock.subscriptions.tick import Tick

__all__ = ["Quotas"]

logger = logging.getLogger("penstock.router")

_EACH_S: Final = 1.0
_QUEUES_AT_ONCE: Final = 5000
"""Queues asked for their low position in one go (about 1 ms)."""
_NOTHING: Final = (1 << 64) - 1


class Quotas:
    """Costs nothing while no vhost has a quota."""

    def __init__(self, log: Log, tick: Tick, vhosts: Mapping[str, Vhost]) -> None:
        """`vhosts`: all there are, by name."""
        self._log = log
        self._tick = tick
        self._vhosts = vhosts
        self._looking = False
        self.full: frozenset[str] = frozenset()
        """The vhosts over their quota."""
        self.on_change: list[Callable[[frozenset[str]], object]] = []
        """Called with `full` when it has changed."""

    def limits_changed(self) -> None:
        """The limits of a vhost have changed, or it is gone."""
        self._set(frozenset(name for name in self.full if self._quota(name) is not None))
        if not self._looking and any(self._quota(name) is not None for name in self._vhosts):
            self._looking = True
            self._tick.after(_EACH_S, self._begin)

    def _quota(self, name: str) -> int | None:
        vhost = self._vhosts.get(name)
        return None if vhost is None else limit_of(vhost.limits, BACKLOG_BYTES)

    def _begin(self) -> None:
        self._go_on(self._look())

    def _go_on(self, look: Iterator[None]) -> None:
        for _ in look:
            self._tick.after(0, lambda: self._go_on(look))
            return
        self._looking = False
        self.limits_changed()

    def _look(self) -> Iterator[None]:
        """Judge every vhost that has a quota; a pause whenever enough queues were asked."""
        left = _QUEUES_AT_ONCE
        for vhost in list(self._vhosts.values()):
            if self._quota(vhost.name) is None:
                continue
            low = _NOTHING
            for entry in vhost.entries():
                low = min(low, entry.queue.low())
                left -= 1
                if not left:
                    left = _QUEUES_AT_ONCE
                    yield
            self._judge(vhost, low)

    def _judge(self, vhost: Vhost, low: int) -> None:
        quota = self._quota(vhost.name)
        if quota is None:
            return  # it was taken back meanwhile
        backlog = self._log.held_bytes(vhost.lp, low)
        if vhost.name in self.full:
            if backlog <= quota * 9 // 10:
                logger.info("over: vhost '%s' is within its %s again", vhost.name, BACKLOG_BYTES)
                self._set(self.full - {vhost.name})
        elif backlog > quota:
            logger.warning(
                "publishers wait: vhost '%s' holds %d bytes, and its %s is %d; consume, or raise the limit",
                vhost.name,
                backlog,
                BACKLOG_BYTES,
                quota,
            )
            self._set(self.full | {vhost.name})

    def _set(self, full: frozenset[str]) -> None:
        if full != self.full:
            self.full = full
            for callback in list(self.on_change):
                callback(full)
