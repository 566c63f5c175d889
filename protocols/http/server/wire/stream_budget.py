"""Budgets of one HTTP/2 connection, counted from frame headers before h2 sees a byte.

h2 parses and keeps state, but a HEADERS frame and its RST_STREAM (26 bytes) cost it some 90 us: a few hundred
kilobytes per second of nothing would fill a core. Here a frame costs a microsecond, and what is over its
budget ends the connection with ENHANCE_YOUR_CALM.

    RST_STREAM 100, PRIORITY 100, empty DATA 100, unknown types 100, SETTINGS 10, PING 20   in each 10 s
    WINDOW_UPDATE        100 in each 10 s, and 10 more for each DATA frame we sent
    a header block       at most 8 CONTINUATION frames, at most 16 KiB
    a frame              at most 16 KiB

    frame    size u24 | type u8 | flags u8 | stream u32

Source: RFC 9113 4.1, 10.5; CVE-2023-44487 (rapid reset), CVE-2019-9512 and following (floods).
"""

from __future__ import annotations

from typing import Final

__all__ = ["Abuse", "Budget"]

_PERIOD_S: Final = 10.0
_DATA, _HEADERS, _PRIORITY, _RST, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_LIMITS: Final = {_DATA: 100, _PRIORITY: 100, _RST: 100, _SETTINGS: 10, _PING: 20, _WINDOW: 100}
_UNKNOWN: Final = 10
_UNKNOWN_LIMIT: Final = 100
_NAMES: Final = {
    _DATA: "empty DATA",
    _PRIORITY: "PRIORITY",
    _RST: "RST_STREAM",
    _SETTINGS: "SETTINGS",
    _PING: "PING",
    _WINDOW: "WINDOW_UPDATE",
    _UNKNOWN: "unknown",
}
_CONTINUATIONS: Final = 8
_BLOCK_MAX: Final = 16384
_UPDATES_PER_DATA: Final = 10
_HEAD: Final = 9
_FRAME_MAX: Final = 16384
_CALM: Final = 11
_FRAME_SIZE: Final = 6


class Abuse(Exception):
    """A budget is spent; the text says which."""

    def __init__(self, message: str, code: int = _CALM) -> None:
        super().__init__(message)
        self.code = code
        """HTTP/2's error code."""


class Budget:
    """The counts of one connection. `feed` is given the stream behind the connection preface, in order."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._skip = 0
        self._counts: dict[int, int] = {}
        self._since = 0.0
        self._continuations = 0
        self._block = 0
        self._updates = 0
        """WINDOW_UPDATE frames that DATA frames of ours have earned."""

    def sent_data(self, frames: int) -> None:
        """We sent so many DATA frames."""
        self._updates = min(self._updates + frames * _UPDATES_PER_DATA, 100_000)

    def reset(self, now: float) -> None:
        """We reset a stream because of the peer: that counts like a reset of its own.

        Raises:
            Abuse: the budget is spent.

        """
        self._count(_RST, now)

    def feed(self, data: memoryview, now: float) -> None:
        """Count the frames that begin in `data`; `now` is any clock in seconds that only rises.

        Raises:
            Abuse: a budget is spent. Nothing of `data` should be parsed.

        """
        at, size = 0, len(data)
        while at < size:
            if self._skip:
                step = min(self._skip, size - at)
                self._skip -= step
                at += step
                continue
            take = min(_HEAD - len(self._head), size - at)
            self._head += data[at : at + take]
            at += take
            if len(self._head) == _HEAD:
                head = self._head
                self._skip = int.from_bytes(head[:3], "big")
                self._frame(head[3], head[4], self._skip, now)
                self._head = bytearray()

    def _frame(self, kind: int, flags: int, size: int, now: float) -> None:
        if size > _FRAME_MAX:
            # h2 would wait for all of it before it looked at the size.
            raise Abuse(f"a frame of {size} bytes, more than {_FRAME_MAX}", _FRAME_SIZE)
        if kind == _HEADERS or kind == _CONTINUATION:
            if kind == _HEADERS:
                self._continuations = self._block = 0
            else:
                self._continuations += 1
            self._block += size
            if self._continuations > _CONTINUATIONS or self._block > _BLOCK_MAX:
                raise Abuse(f"a header block over {_CONTINUATIONS} CONTINUATION frames or {_BLOCK_MAX} bytes")
            return
        if kind == _DATA:
            if size == 0 and not flags & 1:
                self._count(kind, now)
        elif kind == _WINDOW and self._updates:
            self._updates -= 1
        elif kind in _LIMITS:
            self._count(kind, now)
        else:
            self._count(_UNKNOWN, now)

    def _count(self, kind: int, now: float) -> None:
        if now - self._since >= _PERIOD_S:
            self._since = now
            self._counts.clear()
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        limit = _LIMITS.get(kind, _UNKNOWN_LIMIT)
        if count > limit:
            raise Abuse(f"more than {limit} {_NAMES[kind]} frames in {_PERIOD_S:.0f} s")
