"""The face of the kernel `_ids`; what the classes are and the layout of their rows stand in _ids.pyx."""

from collections.abc import Callable

from penstock.subscriptions.cursor._cursor import Cursor

class Inflight:
    """Packet ids under way from us to one client."""

    held: int
    """Ids in use."""
    sent: int
    """Of these, sent on this connection: they take the client's receive maximum."""
    unsent: int
    """Of these, waiting to be sent again since the last connection."""
    window: int
    """How many may be sent and not acknowledged, [1, 65535]."""
    cursors: list[Cursor]
    """Where acknowledgements settle; the session's own first."""
    changed: bool
    """`pack` would differ from the last one."""
    will_be_saved: bool
    """Somebody knows that it changed, and puts the row in time."""
    exact_changed: bool
    """... in an id of QoS 2."""
    exact_done: bool
    """... by a QoS 2 message that is done: the cursor's state must become durable with the row."""

    resume_last: int
    """The last position among those under way, as of the last `resume`."""

    def __init__(self) -> None: ...
    def suspend(self) -> None:
        """The connection is gone: give the unacknowledged deliveries back to their cursors."""

    def resume(self, window: int) -> tuple[list[int], list[tuple[int, int]], list[tuple[int, int, Cursor]]]:
        """A connection is there: the ids to send PUBREL for, (id, token) of retained messages to send again,
        and (id, position, the group's cursor) of messages of shared subscriptions to send again.

        Messages of the session's own queue come again through the deliverer.
        """

    def resend(self, packet_id: int) -> bool:
        """A retained or shared message is sent again; False: the window is full, or it is not under way."""

    def join(self, cursor: Cursor, joined: list[Cursor]) -> None:
        """Deliveries may come from the cursor of a shared subscription; `joined`: those still subscribed."""

    def under_way(self, cursor: Cursor) -> list[tuple[int, int]]:
        """(id, position) of the QoS 2 messages of a shared subscription that the client may not have yet."""

    def found(self, packet_id: int, lsn: int, cursor: Cursor, seq: int) -> bool:
        """The group's cursor gave the record of a shared message that an earlier run had under way.

        False: it is not under way any more; settle it.
        """

    def known(self, packet_id: int) -> bool:
        """Whether the delivery of a shared message is known, so that acknowledgements can settle it."""

    def abandon_shared(self, packet_id: int) -> bool:
        """A shared message cannot be sent again: it is settled; True: PUBREL is to be sent."""

    def end(self) -> None:
        """The session is over: what it had at QoS 2 of shared subscriptions nobody gets (mqtt5:4.8.2-5)."""

    def orphans(self) -> list[int]:
        """Free the ids whose messages will not come again; the QoS 2 ones to send PUBREL for."""

    def assign_retained(self, token: int, qos: int) -> int:
        """An id for a retained message; 0 = the window is full."""

    def give_back(self, packet_id: int) -> None:
        """The id was not used after all."""

    def send_quota(self) -> int:
        """Ids that may be assigned now; whoever got 0 is told by `take_freed` when there are some again."""

    def take_freed(self) -> bool:
        """Whether ids that somebody waits for became free since the last call, or there are done tokens."""

    def take_done_tokens(self) -> list[int]:
        """Tokens of retained messages acknowledged since the last call."""

    def pack(self) -> bytes:
        """The row of the ids in use; `changed` and its kin are False after it."""

    @classmethod
    def restore(
        cls, row: bytes, cursor: Cursor, shared: Callable[[int], Cursor | None] | None = None
    ) -> Inflight:
        """The ids of a row; their messages come again from `cursor`, or from that of the shared subscription
        whose queue has the number that `shared` is asked for.

        Raises:
            ValueError: it is no such row.

        """

class Received:
    """QoS 2 packet ids received and not released."""

    count: int
    changed: bool
    """`pack` would differ from the last one."""

    def __init__(self) -> None: ...
    def __contains__(self, packet_id: int) -> bool: ...
    def suspend(self) -> None:
        """The connection is gone: give back memory that is not needed."""

    def pack(self) -> bytes:
        """The row; `changed` is False after it."""

    @classmethod
    def restore(cls, row: bytes) -> Received:
        """The ids of a row.

        Raises:
            ValueError: it is no such row.

        """
