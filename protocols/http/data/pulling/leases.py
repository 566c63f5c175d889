"""Leases: messages that a client works on, until it settles them or its time is up.

A lease that ends gives its message back, marked as redelivered; its handle is stale from then on. So it is
when the subscription it came from was moved. A handle is a name that no process before has given, and no
right: who uses it must be allowed to read the queue. Leases end with the process.
"""

from __future__ import annotations

import heapq
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.taking import Delivery
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.protocols.http.data.pulling.members import Member
    from penstock.protocols.http.data.pulling.ndjson import Window
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["Lease", "Leases", "requeue", "settle"]

logger: Final = logging.getLogger("penstock.http")

_CHECK_S: Final = 0.25
"""How late a lease may end."""


@dataclass(slots=True, eq=False)
class Lease:
    """A message that somebody works on."""

    handle: str
    delivery: Delivery
    ends_at: float
    member: Member | None
    window: Window | None = None
    """It is one of its messages."""


class Leases:
    """All of a gateway."""

    def __init__(self, tick: Tick, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tick = tick
        self._leases: dict[str, Lease] = {}
        self._prefix = secrets.token_urlsafe(9)
        self._count = 0
        self._ends: list[tuple[float, str]] = []
        tick.every(_CHECK_S, self.expire)

    def __len__(self) -> int:
        return len(self._leases)

    def add(
        self, delivery: Delivery, lease_s: float, member: Member | None, window: Window | None = None
    ) -> Lease:
        """Begin one."""
        self._count += 1
        lease = Lease(f"{self._prefix}{self._count:x}", delivery, self._clock() + lease_s, member, window)
        self._leases[lease.handle] = lease
        heapq.heappush(self._ends, (lease.ends_at, lease.handle))
        return lease

    def get(self, queue: Queue, handle: object) -> Lease | None:
        """The lease of a handle; None: it is stale, or another queue's."""
        lease = self._leases.get(handle) if isinstance(handle, str) else None
        if lease is None or lease.delivery.queue is not queue:
            return None
        if lease.delivery.is_void:
            del self._leases[lease.handle]
            return None
        return lease

    def all(self, queue: Queue, handles: Sequence[Any]) -> list[Lease]:
        """Those of all these handles. Raises HttpError 409: one is stale."""
        found = [lease for handle in handles if (lease := self.get(queue, handle)) is not None]
        if len(found) < len(handles):
            raise HttpError(409, "stale_handle", f"a handle is not leased (any more) from '{queue.name}'")
        return found

    def up_to(self, lease: Lease) -> list[Lease]:
        """It, and the leases of its consumer that come before it."""
        last, member = lease.delivery.record.lsn, lease.member
        return [
            one for one in self._leases.values() if one.member is member and one.delivery.record.lsn <= last
        ]

    def extend(self, lease: Lease, lease_s: float) -> None:
        """It takes longer."""
        lease.ends_at = self._clock() + lease_s
        if lease.member is not None:
            lease.member.used()

    def keep_until(self, handle: str, ends_at: float) -> None:
        """It ends no sooner than that."""
        lease = self._leases[handle]
        lease.ends_at = max(lease.ends_at, ends_at)

    def end(self, lease: Lease, how: Callable[[Delivery], None]) -> None:
        """It is over, `how` says what becomes of the message."""
        del self._leases[lease.handle]
        how(lease.delivery)
        if lease.window is not None:
            lease.window.released(lease.delivery)

    def end_later(self, lease: Lease, delay_s: float) -> None:
        """It is over, and the message is given back after a while; after a restart at once."""
        delivery = lease.delivery
        self.end(lease, Delivery.unhold)
        self._tick.after(delay_s, lambda: requeue(delivery))

    def end_all(self, member: Member, how: Callable[[Delivery], None]) -> None:
        """All of a consumer are over."""
        for lease in [one for one in self._leases.values() if one.member is member]:
            self.end(lease, how)

    def expire(self) -> None:
        """Give back what was not settled in time. Called by the tick; a test may call it."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            _, handle = heapq.heappop(self._ends)
            lease = self._leases.get(handle)
            if lease is None:
                continue
            if lease.ends_at > now:  # extended meanwhile
                heapq.heappush(self._ends, (lease.ends_at, handle))
                continue
            what = f"a message of {lease.delivery.queue!r} could not be given back when its lease ended"
            guarded(logger, what, self.end, lease, requeue)


def settle(delivery: Delivery) -> None:
    """The message is done."""
    delivery.settle()


def requeue(delivery: Delivery) -> None:
    """The message goes back to its place."""
    delivery.requeue()
