"""Callbacks that wait for an LSN."""

from collections.abc import Callable

class Awaiting:
    """A waiter that is told without a call into Python. Derive from it in C: `reached(ok)`."""

class Waiters:
    """Callbacks ordered by the LSN they wait for."""

    count: int
    """How many wait."""

    @property
    def first_lsn(self) -> int:
        """The lowest LSN that is waited for; only when there is one."""

    def add(self, lsn: int, callback: Callable[[bool], object]) -> None:
        """Wait for `lsn`; callbacks of one LSN are called in the order they came."""

    def reached(self, lsn: int) -> None:
        """Call back all that wait for an LSN up to `lsn`."""

    def fail(self) -> None:
        """Call back everybody: it will never be reached."""
