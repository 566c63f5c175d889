"""Whether a peer takes its answers. Pure.

A peer that takes nothing, or next to nothing, holds the memory of its answers for as long as it likes. So
it must take `LEAST` bytes in each `WITHIN_S` seconds while some of them wait.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST", "STALLED", "WITHIN_S", "Progress"]

WITHIN_S: Final = 30.0
LEAST: Final = 4096
STALLED: Final = f"took less than {LEAST} bytes of its answers in {WITHIN_S:.0f} s"
"""Why a connection ends."""


class Progress:
    """Of one connection or stream."""

    __slots__ = ("_received", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        """None: nothing waits."""
        self._received = 0

    def stalled(self, waiting: int, received: int, now: float) -> bool:
        """Whether the peer takes too little; to be asked about once a second.

        Args:
            waiting: Bytes that wait for the peer.
            received: Bytes that the peer has received since it came.
            now: Seconds of a clock that only rises.

        """
        if not waiting:
            self._since = None
        elif self._since is None or received - self._received >= LEAST:
            self._since, self._received = now, received
        return self._since is not None and now - self._since > WITHIN_S
