"""The consumers of one queue. The module text is in _consumers.pyx."""

from collections.abc import Iterator

from penstock.subscriptions.dispatch.consumer import QueueConsumer

class Turn:
    """Consumers with credit, all of one priority, that have their turn together."""

    consumers: list[QueueConsumer]
    least: int
    """Each has credit for so many messages."""
    whole: bool
    """Nobody else of their priority has credit."""

    def ended(self, n: int) -> None:
        """They are about to get `n` messages, one after the other: who comes then is first the next time."""

class Consumers:
    """See the module. `ranked`: priorities count."""

    active: QueueConsumer | None
    """The consumer that gets everything, where one does: the first one; after it left, the next."""
    count: int

    def __init__(self, *, ranked: bool) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[QueueConsumer]:
        """The active one, then the others, the highest priority first."""

    def __contains__(self, consumer: QueueConsumer) -> bool: ...
    def add(self, consumer: QueueConsumer) -> None:
        """It comes, behind those of its priority."""

    def remove(self, consumer: QueueConsumer) -> bool:
        """It goes; False: it was not here."""

    def first(self) -> QueueConsumer:
        """Of the highest priority, the one whose turn it is; there is somebody."""

    def rouse(self, consumer: QueueConsumer | None = None) -> None:
        """It may have credit again; None: anybody may."""

    def hungry(self) -> Iterator[QueueConsumer]:
        """Those that may have credit."""

    def anybody(self) -> bool:
        """Whether somebody has credit."""

    def turn(self, most: int, *, drawn: bool = False) -> Turn | None:
        """Up to `most` consumers with credit, of the highest priority that has any; None: nobody has.

        `drawn`: they are drawn by lot. There are two consumers at least.
        """
