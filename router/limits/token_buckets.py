"""Token buckets: how many CONNECTs a gateway accepts, and how much a client, user or vhost may publish, per
second.

A bucket is asked per CONNECT or per read, not per message. It may go below zero by one read's worth. Then
nothing more is accepted until it is above zero again.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Bucket"]

_BURST_S: Final = 2.0
"""A bucket that nobody used holds what this many seconds bring."""


class Bucket:
    """One limit."""

    __slots__ = ("_level", "_rate", "_since")

    def __init__(self, rate: float, now: float) -> None:
        """`rate` is tokens per second, above 0; `now` in seconds of a clock that only rises."""
        self._rate = rate
        self._level = rate * _BURST_S
        self._since = now

    def take(self, tokens: float, now: float) -> float:
        """Take so many. Seconds until the bucket is no longer overdrawn, 0 = it is not."""
        self._level = min(self._level + (now - self._since) * self._rate, self._rate * _BURST_S) - tokens
        self._since = now
        return max(-self._level / self._rate, 0.0)
