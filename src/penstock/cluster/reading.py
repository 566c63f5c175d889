"""A standby's reader of the journal: entries gather for a moment, or each comes at once."""

from __future__ import annotations

from penstock.log_core.replication.journal import Follower, Journal

__all__ = ["Reading"]


class Reading:
    """Of one standby, from `first` on."""

    def __init__(self, journal: Journal, first: int) -> None:
        self._journal = journal
        self._gathering = journal.follow(first)
        self._closely: Follower | None = None

    def follower(self, *, closely: bool, first: int) -> Follower:
        """The one that reads on from `first`, the next offset; `closely`: each entry comes at once."""
        if closely and self._closely is None:
            self._gathering.end()
            self._closely = self._journal.follow_closely(first)
        elif self._closely is not None and not closely:
            self._closely.end()
            self._closely = None
            self._gathering.begin(first)
        return self._closely or self._gathering

    def close(self) -> None:
        """Read no more."""
        if self._closely is not None:
            self._closely.end()
        self._gathering.close()
