"""A link by which the client sends: gathers transfers to messages, within the credit of the link.

Source: AMQP 1.0 part 2 sections 2.6 and 2.7.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel._core import IncomingCore
from penstock.protocols.amqp10.channel.refusals import LinkError, told
from penstock.protocols.amqp10.codec.performatives import (
    Attach,
    Flow,
    Rejected,
    Transfer,
    encode_composite,
)
from penstock.protocols.amqp10.options import CREDIT

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["IncomingLink"]

_SECOND: Final = 1
_SPECIAL: Final = object()
"""The state of a message that has none, and is not for the kernel."""


class IncomingLink(IncomingCore):
    """See the module. Its kinds say what becomes of a message: see `receive`."""

    channel: Channel

    def __init__(self, channel: Channel, attach: Attach, message_max: int, most: int = CREDIT) -> None:
        """`message_max`: bytes of the largest message; `most`: messages that may be under way."""
        super().__init__(channel, attach.handle, most)
        self.name = attach.name
        self._message_max = message_max
        self.second = attach.rcv_settle_mode == _SECOND
        self._part_second = self.second
        self._resumed = False
        self.delivery_count = attach.initial_delivery_count or 0
        self.answer = Attach(
            attach.name,
            attach.handle,
            True,
            attach.snd_settle_mode,
            _SECOND if self.second else 0,
            attach.source,
            attach.target,
            max_message_size=message_max,
        )

    def receive(self, delivery_id: int, settled: bool, payload: bytes, state: Any) -> None:
        """Handle a whole message, and see to its outcome unless it is settled; `state` is the sender's.

        Raises PenstockError: the message is refused, or, when it is settled, the link ends.
        """
        raise NotImplementedError

    def start(self) -> None:
        """The attach was answered: give credit."""
        self.give_credit()

    def flow(self, flow: Flow) -> None:
        """The sender says how much it has."""
        if flow.delivery_count is not None and not self.gathering:
            self.delivery_count = flow.delivery_count
        if flow.echo:
            self.give_credit()

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a part of a message. Raises LinkError."""
        try:
            self._part(transfer, payload)
        except LinkError as error:
            self.refused(error, self.first_state if self.gathering else transfer.state)
            raise

    def refused(self, error: PenstockError, state: Any) -> None:
        """A message that was sent with this state is refused."""

    def _part(self, transfer: Transfer, payload: bytes) -> None:
        if not self.gathering:
            if transfer.delivery_id is None:
                raise LinkError("amqp:invalid-field", "the first transfer of a message has a delivery-id")
            if self.credit <= 0:
                raise LinkError(
                    "amqp:link:transfer-limit-exceeded", f"more than {self.most} messages at once"
                )
            self.first_id, self.first_state = transfer.delivery_id, transfer.state
            self._begin(transfer)
            self.part_settled = False
            self.gathering = True
        elif transfer.delivery_id not in (None, self.first_id):
            raise LinkError(
                "amqp:invalid-field",
                f"a transfer of delivery {transfer.delivery_id} before delivery {self.first_id} is whole",
            )
        self.part_settled = self.part_settled or transfer.settled is True
        self._gather(payload)
        if transfer.more and not transfer.aborted:
            return
        whole, state = bytes(self.gathered), self.first_state
        self.drop_parts()
        settled, resumed, self._resumed = self.part_settled, self._resumed, False
        self.delivery_count = (self.delivery_count + 1) & 0xFFFFFFFF
        self.credit -= 1
        if not transfer.aborted and not resumed:
            self._take(self.first_id, settled, whole, None if state is _SPECIAL else state)
        self._part_second = self.second
        self.credit_used()

    def _begin(self, transfer: Transfer) -> None:
        """Look at what only the first transfer of a message says. Raises LinkError."""
        mode = transfer.rcv_settle_mode
        if mode == _SECOND and not self.second:
            raise LinkError("amqp:invalid-field", "rcv-settle-mode second on a link of mode first")
        self._part_second = self.second if mode is None else mode == _SECOND
        # No message of the client is unsettled when a link begins: resumed ones are ignored (2.7.5).
        self._resumed = transfer.resume
        if self.first_state is None and (self._resumed or self._part_second is not self.second):
            self.first_state = _SPECIAL

    def _take(self, delivery_id: int, settled: bool, payload: bytes, state: Any) -> None:
        try:
            self.receive(delivery_id, settled, payload, state)
        except PenstockError as error:
            self.refused(error, state)
            if settled:
                # The sender hears of no outcome: the end of the link is all it can be told.
                raise LinkError(told(error).condition, str(error)) from error
            self.say(delivery_id, Rejected(told(error)))

    def say(self, delivery_id: int, outcome: Any, lsn: int = 0, synced: bool = False) -> None:
        """The message has this outcome once the log has `lsn`."""
        self.channel.settle_later(delivery_id, encode_composite(outcome), lsn, synced, self._part_second)

    def _gather(self, payload: bytes) -> None:
        """Keep a part of a message, within what a connection may have of messages that are not whole."""
        session = self.channel.session
        if len(self.gathered) + len(payload) > self._message_max:
            raise LinkError(
                "amqp:link:message-size-exceeded", f"a message of more than {self._message_max} bytes"
            )
        limit = session.options.max_message_bytes
        if session.gathered + len(payload) > limit:
            raise LinkError(
                "amqp:resource-limit-exceeded",
                f"incomplete messages of more than {limit} bytes on all links of the connection; "
                "send one after the other",
            )
        session.gathered += len(payload)
        self.gathered += payload

    def detached(self) -> None:
        """The link is over."""
        self.drop_parts()
