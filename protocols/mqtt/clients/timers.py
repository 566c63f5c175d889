"""Timers of wills and session ends: exact near the time, and cheap for the many that are far off.

Timers of the slot of time that has begun stand in a heap, (when, client). Everything else waits in the
list of its slot, where a session costs a pointer; when a slot begins, its list goes into the heap. Nothing is
taken out: a client that came back, or has another time by now, is passed over by whoever is told.

Times are seconds since the epoch.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.protocols.mqtt.clients.client import Client

__all__ = ["Timers"]

_SLOT_S: Final = 64


class Timers:
    """Of all sessions of a broker."""

    def __init__(self) -> None:
        self._near: list[tuple[float, Client]] = []
        self._far: dict[int, list[Client]] = {}
        self._slots: list[int] = []
        """The keys of `_far`, as a heap."""

    def arm(self, at: float, client: Client, now: float) -> None:
        """Tell of the client at its `will_at` or `ends_at`, which is `at`."""
        slot = int(at) // _SLOT_S
        if slot <= int(now) // _SLOT_S:
            heapq.heappush(self._near, (at, client))
            return
        if slot not in self._far:
            self._far[slot] = []
            heapq.heappush(self._slots, slot)
        self._far[slot].append(client)

    def next(self) -> float | None:
        """When `due` is to be asked next; None: not at all."""
        times = [self._near[0][0]] if self._near else []
        if self._slots:
            times.append(float(self._slots[0] * _SLOT_S))
        return min(times, default=None)

    def due(self, now: float) -> Iterator[Client]:
        """The clients whose time has come, in the order of the times; each perhaps more than once."""
        while self._slots and self._slots[0] * _SLOT_S <= now:
            slot = heapq.heappop(self._slots)
            for client in self._far.pop(slot):
                for at in (client.will_at, client.ends_at):
                    if at is not None and int(at) // _SLOT_S == slot:
                        heapq.heappush(self._near, (at, client))
        while self._near and self._near[0][0] <= now:
            yield heapq.heappop(self._near)[1]
