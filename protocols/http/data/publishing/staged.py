"""Transactions that are open: what was published and settled in them, until they end.

Nothing of it is in the log and nobody sees it, before a commit puts all of it there at once. One that ends
without a commit (rolled back, its time up, the process ended) leaves no trace. Deliveries that are to be
settled stay leased as long as the transaction at least.
Bounds: `ITEMS_MAX` items and `BYTES_MAX` of bodies each, and of all together so many transactions and bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError

if TYPE_CHECKING:
    from penstock.protocols.http.data.publishing.destinations import Ready
    from penstock.protocols.http.data.pulling.leases import Lease, Leases
    from penstock.protocols.http.shared.taking import Delivery
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["BYTES_MAX", "ITEMS_MAX", "Settling", "Staged", "Transaction"]

ITEMS_MAX: Final = 10_000
"""Messages and settled deliveries of one transaction."""
BYTES_MAX: Final = 16 << 20
"""Of bodies in one transaction."""
_OPEN_MAX: Final = 1000
_ALL_BYTES_MAX: Final = 256 << 20
_MESSAGE_SIZE: Final = 512
"""Bytes that a message takes beside its body, about."""
_CHECK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Settling:
    """A delivery that is settled when the transaction is committed."""

    queue: Queue
    handle: str
    how: Callable[[Delivery], None]


@dataclass(slots=True, eq=False)
class Transaction:
    """One that is open."""

    id: str
    place: tuple[str, str]
    """Its vhost, and the user whose it is."""
    began_at: float
    """On the clock of `Staged`, as `ends_at`."""
    ends_at: float
    messages: list[Ready] = field(default_factory=list)
    settling: dict[str, Settling] = field(default_factory=dict)
    """By handle: what is settled twice has the later word."""
    size: int = 0
    """Bytes of bodies."""


class Staged:
    """All of a gateway."""

    def __init__(self, tick: Tick, leases: Leases, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._leases = leases
        self._open: dict[str, Transaction] = {}
        self._size = 0
        tick.every(_CHECK_S, self.expire)

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, vhost: str, user: str, timeout_s: float) -> Transaction:
        """Open one. Raises HttpError 503: too many are open."""
        if len(self._open) >= _OPEN_MAX:
            raise HttpError(
                503,
                "too_many_transactions",
                f"{_OPEN_MAX} transactions are open; commit or roll back, or try again later",
                retry_after_s=5,
            )
        now = self._clock()
        one = Transaction(secrets.token_urlsafe(16), (vhost, user), now, now + timeout_s)
        self._open[one.id] = one
        return one

    def get(self, id: str, vhost: str, user: str) -> Transaction:
        """The open one of that id. Raises HttpError 410: this user has none in this vhost."""
        one = self._open.get(id)
        if one is None or one.place != (vhost, user) or one.ends_at <= self._clock():
            raise HttpError(
                410,
                "transaction_gone",
                f"no transaction '{id[:100]}' is open: it was ended, its time was up, or the gateway was "
                "started again; nothing of it was kept, unless it was committed: begin another one",
            )
        return one

    def open(self, vhost: str) -> list[Transaction]:
        """Those of a vhost."""
        return [one for one in self._open.values() if one.place[0] == vhost]

    def age_s(self, one: Transaction) -> float:
        """How long it is open."""
        return self._clock() - one.began_at

    def left_s(self, one: Transaction) -> float:
        """How long it stays open."""
        return max(one.ends_at - self._clock(), 0.0)

    def publish(self, one: Transaction, messages: list[Ready]) -> int:
        """Stage messages; the place of the first in the results of the commit. Raises HttpError 413, 503."""
        size = sum(message.size for message in messages)
        self._check(one, len(messages), size)
        first = len(one.messages)
        one.messages += messages
        one.size += size
        self._size += size + len(messages) * _MESSAGE_SIZE
        return first

    def settle(self, one: Transaction, leases: Iterable[Lease], how: Callable[[Delivery], None]) -> None:
        """Stage what becomes of deliveries, which stay leased. Raises HttpError 413."""
        staged = {lease.handle: Settling(lease.delivery.queue, lease.handle, how) for lease in leases}
        self._check(one, len(staged.keys() - one.settling.keys()), 0)
        one.settling |= staged
        for lease in staged.values():
            self._leases.keep_until(lease.handle, one.ends_at)

    def _check(self, one: Transaction, items: int, size: int) -> None:
        if len(one.messages) + len(one.settling) + items > ITEMS_MAX:
            raise HttpError(
                413, "transaction_too_large", f"more than {ITEMS_MAX} messages and handles in one transaction"
            )
        if one.size + size > BYTES_MAX:
            raise HttpError(413, "transaction_too_large", f"more than {BYTES_MAX} bytes in one transaction")
        if self._size + size > _ALL_BYTES_MAX:
            raise HttpError(
                503,
                "too_many_transactions",
                f"open transactions hold {_ALL_BYTES_MAX >> 20} MiB; commit or roll back, or try again later",
                retry_after_s=5,
            )

    def end(self, one: Transaction) -> None:
        """It is not open any more."""
        if self._open.pop(one.id, None) is not None:
            self._size -= one.size + len(one.messages) * _MESSAGE_SIZE

    def expire(self) -> None:
        """Drop those whose time is up. Called by the tick; a test may call it."""
        now = self._clock()
        for one in [one for one in self._open.values() if one.ends_at <= now]:
            self.end(one)
