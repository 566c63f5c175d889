"""Which consumer holds which keys of a key-shared subscription. The rules stand in `_keys.pyx`."""

from collections.abc import Callable

from typing_extensions import Buffer

from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch.consumer import QueueConsumer
from penstock.subscriptions.queue.group import GroupConsumer

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
    def own(self, first: int, last: int, number: int) -> None:
        """The slots [first, last] are that consumer's from now on; 0: nobody's. Raises ValueError."""
    def set_point(self, point: int, number: int) -> None:
        """This slot is a point of that consumer's: up to it, from the point before on, the slots are its.

        Those behind the last point are the first one's. With points, `own` is not called.
        """
    def clear_point(self, point: int) -> None:
        """It is nobody's point any more: its slots are those of the next one."""
    def watch(self, cursor: Cursor) -> None:
        """Be told what of this cursor is settled or given back."""
    def owner_of(self, slot: int) -> int:
        """The consumer that is to get it; 0: nobody."""
    def assign(
        self, cursor: Cursor, slots: Buffer, takers: list[GroupConsumer | None]
    ) -> list[tuple[int, int]]:
        """Group the items of the cursor's last take by consumer, in its memory; (consumer, how many) of each.

        Args:
            slots: u16 of each item, in their order.
            takers: Consumer i at i; who is asked for its credit is an owner of one of the slots.

        """
    def give(self, cursor: Cursor, consumer: QueueConsumer, first: int, count: int) -> int:
        """Have a consumer encode a group; how many it took. The rest goes back to its place."""
    def unhold_all(self, cursor: Cursor, numbers: set[int]) -> None:
        """`Cursor.unhold` for all deliveries that these consumers have."""
    def gone(self, numbers: set[int]) -> None:
        """These consumers left; what they have keeps its keys, and the numbers may be others'."""
    def parked_for(self) -> set[int]:
        """The owners of what is parked; 0: some of it is nobody's."""
    def release(self, cursor: Cursor, takers: list[GroupConsumer | None]) -> int:
        """Put parked messages that can be given now, as far as credits go, back into the cursor; how many."""
    def release_all(self, cursor: Cursor) -> None:
        """Put back all that is parked."""
    def forget_parked(self) -> None:
        """The parked messages are in another cursor."""
    def forget(self, cursor: Cursor) -> None:
        """No message of this cursor is held or parked any more, and it says nothing of it."""
