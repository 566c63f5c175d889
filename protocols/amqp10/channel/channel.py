"""One session of AMQP 1.0 on its channel: windows, links by handle, deliveries that are not settled.

Deliveries have numbers, one series in each direction. The client's messages are settled in ranges when the
log has kept them. Messages to the client wait for its disposition. `_core` has this state, on which kernels
handle the ordinary frames; this is what handles all others.

Source: AMQP 1.0 part 2, sections 2.5 and 2.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel._core import ChannelCore, end_delivery
from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.management import NODE, RequestLink, ResponseLink
from penstock.protocols.amqp10.channel.outgoing import OutgoingLink
from penstock.protocols.amqp10.channel.publishing import PublishingLink
from penstock.protocols.amqp10.channel.refusals import LinkError, SessionError, told
from penstock.protocols.amqp10.channel.replies import ReplyLink, is_for_replies
from penstock.protocols.amqp10.channel.settled_sender import SettledSender
from penstock.protocols.amqp10.channel.settling import annotate, how_of
from penstock.protocols.amqp10.channel.transactions import CoordinatorLink
from penstock.protocols.amqp10.codec.errors import FramingError
from penstock.protocols.amqp10.codec.frames import encode_frame, encode_transfer
from penstock.protocols.amqp10.codec.performatives import (
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Received,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from penstock.protocols.amqp10.options import WINDOW
from penstock.protocols.headers.firehose import Place, delivered
from penstock.router.publishing.refused_numbers import RefusedNumbers

if TYPE_CHECKING:
    from penstock.protocols.amqp10.session.session import Session
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["LINKS_MAX", "Channel"]

Link: TypeAlias = IncomingLink | OutgoingLink | SettledSender

LINKS_MAX: Final = 255
_MASK: Final = 0xFFFFFFFF
_HEAD: Final = 64
"""Bytes that a frame has in front of a part of a message, at most."""


class Channel(ChannelCore):
    """See the module."""

    def __init__(self, session: Session, number: int, begin: Begin) -> None:
        self.session = session
        self.links: dict[int, Link] = {}
        """By the client's handle, which is ours, too."""
        self._closing: set[int] = set()
        """Handles that we detached, until the client did, too."""
        self.next_incoming = begin.next_outgoing_id
        self.window = self.window_most = WINDOW
        self.remote_window = begin.incoming_window
        self.remote_outgoing_window = begin.outgoing_window
        self._waiting: deque[bytes] = deque()
        """Frames that the client's window had no room for; `holding` says whether there are any."""
        self._actions: deque[tuple[int, Callable[[], None]]] = deque()
        """Calls that wait for an LSN to be on disk."""
        self.unsent = RefusedNumbers()
        """Numbered messages that were refused."""
        self.turn_firehose()
        self.send(Begin(number, 0, self.window, WINDOW, LINKS_MAX))

    def send(self, performative: Any, payload: bytes = b"") -> None:
        """Write a frame."""
        self.session.out.write(encode_frame(self.number, performative, payload))
        self.session.dirty()

    def send_flow(self, **link: Any) -> None:
        """Write the state of the session, and of a link."""
        self.send(Flow(self.next_incoming, self.window, self.next_outgoing, WINDOW, **link))

    # The firehose

    def turn_firehose(self) -> None:
        """Tell of deliveries, or not, as the vhost's firehose is on or off."""
        is_on = self.session.vhost.firehose.is_on
        self.tap = (lambda *what: delivered(self.place(), *what)) if is_on else None

    def place(self) -> Place:
        """Where the firehose saw a message."""
        session = self.session
        return Place(session.vhost, session.name(), self.number, session.identity.username)

    # Frames

    def handle(self, performative: Any, payload: bytes) -> None:
        """Handle a frame on this channel. Raises PenstockError: the session, or the connection, ends."""
        if self.ending:
            return
        match performative:
            case Attach():
                self._attach(performative)
            case Flow():
                self._flow(performative)
            case Transfer():
                self._transfer(performative, payload)
            case Disposition():
                self._disposition(performative)
            case Detach():
                self._detach(performative)
            case _:
                name = type(performative).__name__.lower()
                raise SessionError("amqp:not-allowed", f"{name} has no place in a session")

    def _attach(self, attach: Attach) -> None:
        if attach.handle in self.links:
            raise SessionError("amqp:session:handle-in-use", f"handle {attach.handle} is in use")
        if attach.handle > LINKS_MAX:
            raise FramingError(f"handle {attach.handle}; handles go up to {LINKS_MAX}")
        self.session.steal(attach.name, attach.role)
        try:
            link = _link(self, attach)
        except PenstockError as error:
            # An attach without a terminus, and a detach behind it, say no (2.6.3).
            count = None if not attach.role else 0
            self.send(Attach(attach.name, attach.handle, not attach.role, initial_delivery_count=count))
            self.send(Detach(attach.handle, True, told(error)))
            self._closing.add(attach.handle)
            return
        self._closing.discard(attach.handle)
        self.links[attach.handle] = link
        if isinstance(link, IncomingLink | OutgoingLink):
            self.attach_core(link)
        self.send(link.answer)
        try:
            link.start()
        except PenstockError as error:
            self._refuse(link, told(error))

    def _flow(self, flow: Flow) -> None:
        seen = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        room = (seen + flow.incoming_window - self.next_outgoing) & _MASK
        self.remote_window = room if room < 2**31 else 0
        while self._waiting and self.remote_window:
            self._write_transfer(self._waiting.popleft())
        self.holding = bool(self._waiting)
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
        elif (link := self.links.get(flow.handle)) is not None:
            link.flow(flow)
        elif flow.handle not in self._closing:
            raise SessionError("amqp:session:unattached-handle", f"handle {flow.handle} has no link")
        self.wake()

    def _transfer(self, transfer: Transfer, payload: bytes) -> None:
        if self.window <= 0:
            raise SessionError("amqp:session:window-violation", f"more than {WINDOW} transfers at once")
        self.next_incoming = (self.next_incoming + 1) & _MASK
        self.window -= 1
        link = self.links.get(transfer.handle)
        if isinstance(link, IncomingLink):
            try:
                link.transfer(transfer, payload)
            except LinkError as error:
                self._refuse(link, told(error))
        elif transfer.handle not in self._closing:
            raise SessionError("amqp:session:unattached-handle", f"handle {transfer.handle} has no link")
        self.took()

    def _disposition(self, disposition: Disposition) -> None:
        if not disposition.role:
            return  # of a sender: outcomes of what it sent are ours to say
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        state = disposition.state
        if (state is None or isinstance(state, Received)) and not disposition.settled:
            return  # it has no outcome yet
        queues: set[Queue] = set()
        if self.seconds and not disposition.settled:
            # The client relies on it that what is settled then does not come again.
            queues = {cursor.queue for _, cursor, _ in self.chosen(first, last) if cursor.queue is not None}
        suspended = self._chosen_suspended(first, last)
        if isinstance(state, TransactionalState):
            count = self._settle_within(state, first, last, suspended)
        else:
            if isinstance(state, Modified | Rejected):
                for _, cursor, seq in self.chosen(first, last):
                    annotate(cursor, seq, state)
            count = self.settle(first, last, how_of(state)) + len(suspended)
            for cursor, seq, held_how in suspended:
                annotate(cursor, seq, state)
                end_delivery(cursor, seq, held_how if state is None else how_of(state))
        if count and not disposition.settled:
            settled = Disposition(False, first, last, True, disposition.state)
            lsn = max((queue.promise() for queue in queues), default=0)
            self.when_synced(lsn, partial(self.send, settled))
        self.session.schedule()

    def _chosen_suspended(self, first: int, last: int) -> list[tuple[Cursor, int, int]]:
        """Deliveries of links that are detached, which stay in their session, and how they end by default."""
        if self.suspended is None:
            return []
        found = [
            (cursor, seq, held.how) for held in self.suspended for cursor, seq in held.chosen(first, last)
        ]
        self.suspended = [held for held in self.suspended if held.numbers] or None
        return found

    def _settle_within(
        self,
        state: TransactionalState,
        first: int,
        last: int,
        suspended: list[tuple[Cursor, int, int]],
    ) -> int:
        """Settle deliveries when the transaction is discharged; how many these are. Raises SessionError."""
        taken: list[int] = []
        try:
            transaction = self.session.transaction(state.txn_id)
            for number, cursor, seq in self.chosen(first, last):
                annotate(cursor, seq, state.outcome)
                transaction.settle(cursor, seq, state.outcome)
                taken.append(number)
            for cursor, seq, _ in suspended:
                annotate(cursor, seq, state.outcome)
                transaction.settle(cursor, seq, state.outcome)
        except LinkError as error:
            raise SessionError(error.condition, str(error)) from error
        finally:
            self.forget(taken)
        return len(taken) + len(suspended)

    def _detach(self, detach: Detach) -> None:
        if detach.handle in self._closing:
            self._closing.discard(detach.handle)
            return
        link = self.links.pop(detach.handle, None)
        if link is None:
            raise SessionError("amqp:session:unattached-handle", f"handle {detach.handle} has no link")
        self.detach_core(detach.handle)
        link.detached()
        error = None
        if detach.closed and isinstance(link, OutgoingLink):
            try:
                link.closed()
            except PenstockError as refused:
                error = told(refused)
        self.send(Detach(detach.handle, detach.closed, error))

    # Links

    def _refuse(self, link: Link, error: Error) -> None:
        """Detach a link from our side."""
        if self.links.pop(link.handle, None) is None:
            return
        self.detach_core(link.handle)
        link.detached()
        self._closing.add(link.handle)
        self.send(Detach(link.handle, True, error))

    def steal(self, name: str, role: bool) -> None:
        """Detach the link of this name in this direction, if there is one: it is attached elsewhere."""
        for link in list(self.links.values()):
            if link.name == name and link.answer.role is not role:
                self._refuse(link, Error("amqp:link:stolen", f"the link '{name}' is attached elsewhere"))

    def cancelled(self, link: OutgoingLink, error: Error) -> None:
        """The queue let go of the link."""
        self._refuse(link, error)

    def permissions_changed(self) -> None:
        """Detach receivers whose queue the user may not read from any more."""
        for link in list(self.links.values()):
            if isinstance(link, OutgoingLink) and (error := link.check_rights()) is not None:
                self._refuse(link, error)

    # Deliveries to the client

    @property
    def may_send(self) -> bool:
        """Whether the client's window has room."""
        return self.remote_window > 0 and not self._waiting and not self.ending

    def send_message(self, handle: int, payload: bytes) -> None:
        """Write a settled message that is no queue's."""
        self.write_later(handle, self.number_settled(), True, payload)

    def write_later(self, handle: int, number: int, settled: bool, payload: bytes, series: int = 0) -> None:
        """Write a message in as many frames as it needs; what has no room in the window waits for it."""
        size = self.session.frame_max - _HEAD
        for at in range(0, max(len(payload), 1), size):
            more = at + size < len(payload)
            part = payload[at : at + size] if at or more else payload
            frame = encode_transfer(self.number, handle, None if at else number, settled, more, part, series)
            self._write_in_order(frame)

    def send_resumed(self, handle: int, tag: bytes, outcome: Any) -> None:
        """Tell the client that a delivery of an earlier link has this outcome, and is settled."""
        number = self.number_settled()
        transfer = Transfer(handle, number, tag, 0, True, state=outcome, resume=True)
        self._write_in_order(encode_frame(self.number, transfer))

    def _write_in_order(self, frame: bytes) -> None:
        if self.remote_window > 0 and not self._waiting:
            self._write_transfer(frame)
        else:
            self._waiting.append(frame)
            self.holding = True

    def _write_transfer(self, frame: bytes) -> None:
        self.remote_window -= 1
        self.next_outgoing = (self.next_outgoing + 1) & _MASK
        self.session.out.write(frame)
        self.session.dirty()

    def wake(self) -> None:
        """There may be room again."""
        for link in self.links.values():
            if isinstance(link, OutgoingLink | SettledSender):
                link.wake()

    # Deliveries from the client

    def when_synced(self, lsn: int, action: Callable[[], None]) -> None:
        """Do `action` when `lsn` is on disk, in the order of these calls."""
        self._actions.append((lsn, action))
        self.session.wait(lsn, True)
        self._act(self.session.broker.log.synced_lsn)

    def _act(self, synced: int) -> None:
        while self._actions and self._actions[0][0] <= synced:
            self._actions.popleft()[1]()

    def durable(self, synced: int) -> None:
        """Do what waits for nothing more."""
        self._act(synced)

    # The end

    def fail(self, error: Error) -> None:
        """End the session from our side."""
        self.shut()
        self.ending = True
        self.send(End(error))

    def shut(self) -> None:
        """Give back everything."""
        links, self.links = self.links, {}
        for link in links.values():
            link.detached()
            self.detach_core(link.handle)
        self._waiting.clear()
        self.holding = False
        self.drop_due()
        self.forget_starved()
        self._actions.clear()


def _link(channel: Channel, attach: Attach) -> Link:
    """Raises LinkError, RoutingError: there is no such link."""
    terminus = attach.source if attach.role else attach.target
    if not attach.role and isinstance(terminus, Coordinator):
        return CoordinatorLink(channel, attach)
    managing = isinstance(terminus, Source | Target) and terminus.address == NODE
    if attach.role:
        if is_for_replies(terminus):
            return ReplyLink(channel, attach)
        return ResponseLink(channel, attach) if managing else OutgoingLink(channel, attach)
    return RequestLink(channel, attach) if managing else PublishingLink(channel, attach)
