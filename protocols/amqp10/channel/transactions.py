"""Transactions: messages that are sent and settled within one happen together, or not at all.

    sender to the coordinator ── declare ──> declared, with an id
    transfer with the state transactional-state       the message is kept for the discharge
    disposition with that state                       its outcome is kept
    discharge of the id ──> accepted: all of it is on disk; or rejected: nothing of it happened

A discharge routes every message, and only when all of them may be published, and find room, appends them
and the state of the queues whose messages were settled as one atomic unit of the log. A transaction that is
rolled back, or whose coordinator ends, gives the messages that were settled in it back to their queues. What
is kept here counts in `Session.gathered`.

Source: AMQP 1.0 part 4.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel.appending import Prepared, append, resolve
from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.refusals import LinkError, told
from penstock.protocols.amqp10.channel.settling import settle
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Declare,
    Declared,
    Discharge,
    Error,
    Rejected,
    composite,
)
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.net.connection_info import TransactionInfo
from penstock.router.publishing.capacity import Capacity, full

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["CoordinatorLink", "Transaction"]

_OPEN_MAX: Final = 64
"""Transactions of a connection at a time."""
_REQUEST_MAX: Final = 4096
_OVERHEAD: Final = 256
"""Bytes that a kept message or outcome counts besides its own."""


class Transaction:
    """One that is open."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._session = channel.session
        self._messages: list[Prepared] = []
        self._outcomes: list[tuple[Cursor, int, Any]] = []
        self._held = 0
        self._failed: Error | None = None
        self._opened_ms = self._session.broker.log.wall_ms()

    def info(self, id_: str) -> TransactionInfo:
        """Its line in the management list."""
        return TransactionInfo(
            id_,
            len(self._messages),
            len(self._outcomes),
            sum(len(one.stored.block) + len(one.stored.body) for one in self._messages),
            self._opened_ms,
        )

    def publish(self, message: Prepared) -> None:
        """Keep a message for the discharge. Raises LinkError, RoutingError: it is refused."""
        if message.half is not None:
            raise LinkError("amqp:not-allowed", "half messages have no part in transactions")
        resolve(self._session, message)
        self._hold(len(message.stored.block) + len(message.stored.body))
        self._messages.append(message)

    def fail(self, error: Error) -> None:
        """A message was refused: so is the discharge."""
        self._failed = self._failed or error

    def settle(self, cursor: Cursor, seq: int, outcome: Any) -> None:
        """Keep the outcome of a delivery for the discharge. Raises LinkError: it has too many."""
        self._hold(0)
        self._outcomes.append((cursor, seq, outcome))

    def _hold(self, size: int) -> None:
        session = self._session
        size += _OVERHEAD
        if session.gathered + size > session.options.max_message_bytes:
            raise LinkError(
                "amqp:resource-limit-exceeded",
                f"transactions of more than {session.options.max_message_bytes} bytes; discharge earlier",
            )
        session.gathered += size
        self._held += size

    def commit(self) -> int:
        """Do all of it; the LSN to wait for. Raises LinkError: nothing was done."""
        session = self._session
        try:
            if self._failed is not None:
                raise LinkError("amqp:transaction:rollback", self._failed.description or "")
            capacity = Capacity()
            for message in self._messages:
                guard = capacity.refusing(resolve(session, message).route, len(message.stored.body))
                if guard is not None:
                    raise LinkError("amqp:transaction:rollback", full(guard))
        except PenstockError as error:
            self.roll_back()
            raise LinkError("amqp:transaction:rollback", str(error)) from error
        lsn = 0
        with session.broker.log.unit():
            for message in self._messages:
                lsn = max(lsn, append(self._channel, message)[1])
            for cursor, seq, outcome in self._outcomes:
                settle(cursor, seq, outcome)
            for queue in {cursor.queue for cursor, _, _ in self._outcomes if cursor.queue is not None}:
                lsn = max(lsn, queue.promise())
        session.acknowledged += len(self._outcomes)
        self._over()
        return lsn

    def roll_back(self) -> None:
        """Do nothing of it: what was to be settled goes back to its queue."""
        for cursor, seq, _ in self._outcomes:
            cursor.requeue(seq)
        self._over()

    def _over(self) -> None:
        self._session.gathered -= self._held
        self._held = 0
        self._messages, self._outcomes = [], []
        self._session.schedule()


class CoordinatorLink(IncomingLink):
    """A sender to the coordinator."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        super().__init__(channel, attach, _REQUEST_MAX)
        self._mine: set[bytes] = set()

    def receive(self, delivery_id: int, settled: bool, payload: bytes, state: Any) -> None:
        if settled:
            raise LinkError("amqp:not-allowed", "declare and discharge are sent unsettled")
        channel, known = self.channel, self.channel.session.transactions
        sections = {code: value for code, value, _ in s.read_sections(payload)}
        request = composite(sections.get(s.VALUE))
        if isinstance(request, Declare):
            if request.global_id is not None:
                raise LinkError("amqp:not-implemented", "there are no global transactions here")
            if len(known) >= _OPEN_MAX:
                raise LinkError("amqp:resource-limit-exceeded", f"{_OPEN_MAX} transactions are open")
            id_ = os.urandom(8)
            known[id_] = Transaction(channel)
            self._mine.add(id_)
            self.say(delivery_id, Declared(id_))
        elif isinstance(request, Discharge):
            if request.txn_id not in self._mine:
                raise LinkError("amqp:transaction:unknown-id", "no transaction of this link has that id")
            self._mine.remove(request.txn_id)
            self._discharge(delivery_id, known.pop(request.txn_id), request.fail)
        else:
            raise LinkError("amqp:invalid-field", "the coordinator takes declare and discharge")

    def _discharge(self, delivery_id: int, transaction: Transaction, fail: bool) -> None:
        if fail:
            transaction.roll_back()
            self.say(delivery_id, Accepted())
            return
        try:
            lsn = transaction.commit()
        except LinkError as error:
            self.say(delivery_id, Rejected(told(error)))
        else:
            self.say(delivery_id, Accepted(), lsn, True)

    def detached(self) -> None:
        """The link is over, and with it its transactions."""
        super().detached()
        for id_ in self._mine:
            self.channel.session.transactions.pop(id_).roll_back()
        self._mine.clear()
