"""Retained messages, as each publish keeps one. The module text is in _retained.pyx."""

from penstock.router.rows import Tables

class Level:
    """One level of topics."""

    row: bytes
    """The key of the message of exactly this topic; empty: there is none."""
    set: int
    """How many walks had begun when it was set."""

    @property
    def children(self) -> dict[bytes, Level]: ...
    def remove(self, word: bytes) -> None:
        """The level below is not needed any more."""

class RetainedLevels:
    """The tree of one vhost's topics; `Retained` derives from it."""

    _root: Level
    _count: int
    _begun: int
    """How many walks have begun."""

    def __init__(self, vhost: bytes, tables: Tables) -> None: ...
    @property
    def _wire(self) -> bytes:
        """The vhost's name."""

    @property
    def _tables(self) -> Tables: ...
    def keep(
        self,
        topic: bytes,
        enc: int,
        props: bytes,
        body: bytes,
        flags: int,
        priority: int,
        stored_ms: int,
        expires_ms: int,
    ) -> int:
        """Keep a message as the one of its topic; an empty body removes what is kept. The LSN to wait for.

        The arguments are the fields of `RetainedMessage`.

        Raises:
            ValueError: the topic is empty.

        """

    def _insert(self, topic: bytes, row: bytes = b"") -> bytes:
        """Have a level for this topic with this key of its row, or with one that is made (empty). The key."""

    # Derived classes have it

    def delete(self, topic: bytes) -> int:
        """Keep nothing for this topic; the LSN to wait for, 0 when nothing was kept."""
