"""The part of a committer that the log needs; `_committer.Committer` says what each call does."""

from __future__ import annotations

from typing import Protocol

__all__ = ["CommitterProtocol"]


class CommitterProtocol(Protocol):
    """Tells how far the log is durable."""

    @property
    def syncs(self) -> int:
        """Times that the durable end moved."""

    @property
    def ns(self) -> int:
        """Nanoseconds that this took."""

    def want(self, descriptors: tuple[int, ...], lsn: int, mark: int) -> None:
        """Make everything up to `lsn` durable."""

    def release(self, fd: int) -> None:
        """Close a descriptor that is named no more."""

    def hang_bell(self) -> int:
        """An eventfd that tells of answers."""

    def answer_bell(self) -> tuple[int, int]:
        """LSN and mark of the newest answer."""

    def take_bell_down(self) -> tuple[int, int]:
        """The same, for the last time."""

    def stop(self) -> None:
        """End."""
