"""Which consumer holds which keys of a key-shared subscription. The rules stand in `_keys.pyx`."""

from collections.abc import Callable

from typing_extensions import Buffer

from penstock.subscriptions._cursor import Cursor
from penstock.subscriptions.outlet import Outlet

def slot(key: bytes) -> int:
    """The slot of a key, in [0, 65536)."""

class KeyShares:
    """Of one subscription. Consumers are numbers from 1; slots are in [0, 65536)."""

    parked_count: int
    """Messages that were taken and are given to nobody yet."""
    held_count: int
    """Messages that consumers have."""
    def __init__(self, wake: Callable[[], object]) -> None:
        """`wake` is called when parked messages can be given because others were settled."""
    def set_owners(self, ranges: list[tuple[int, int, int]]) -> None:
        """(first slot, last slot, consumer) of all ranges that have an owner. Raises ValueError."""
    def set_ring(self, consumers: list[tuple[Buffer, int]]) -> None:
        """(points, consumer) of all that share the slots, the first one before others at the same point.

        A point is a slot (u16); the slots up to it, from the one before on, are its consumer's, and those
        behind the last one the first one's.
        """
    def watch(self, cursor: Cursor) -> None:
        """Be told what of this cursor is settled or given back."""
    def owner_of(self, slot: int) -> int:
        """Who is to get it; 0: nobody."""
    def assign(self, cursor: Cursor, slots: Buffer, credits: list[int]) -> list[tuple[int, int]]:
        """Group the items of the cursor's last take by consumer, in its memory; (consumer, how many) of each.

        Args:
            slots: u16 of each item, in their order.
            credits: Of consumer i + 1 at i.

        """
    def give(self, cursor: Cursor, outlet: Outlet, first: int, count: int) -> int:
        """Have an outlet encode a group; how many it took. The rest goes back to its place."""
    def unhold_all(self, cursor: Cursor, number: int) -> None:
        """`Cursor.unhold` for all deliveries that this consumer has."""
    def gone(self, number: int) -> None:
        """This consumer left; what it has keeps its keys, and the number may be another's."""
    def release(self, cursor: Cursor, credits: list[int]) -> int:
        """Put parked messages that can be given now, with these credits, back into the cursor; how many."""
    def release_all(self, cursor: Cursor) -> None:
        """Put back all that is parked."""
    def forget_parked(self) -> None:
        """What was parked is in another cursor."""
    def forget(self, cursor: Cursor) -> None:
        """What was held or parked of this cursor is not any more, and it says nothing of it."""
