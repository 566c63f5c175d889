"""A link by which the client sends: gathers transfers to messages, within the credit of the link.

Source: AMQP 1.0 part 2 sections 2.6 and 2.7.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel._core import IncomingCore
from penstock.protocols.amqp10.channel.refusals import LinkError, told
from penstock.protocols.amqp10.codec.performatives import Attach, Flow, Rejected, Transfer
from penstock.protocols.amqp10.options import CREDIT

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["IncomingLink"]


class IncomingLink(IncomingCore):
    """See the module. Its kinds say what becomes of a message: see `receive`."""

    channel: Channel

    def __init__(self, channel: Channel, attach: Attach, message_max: int, most: int = CREDIT) -> None:
        """`message_max`: bytes of the largest message; `most`: messages that may be under way."""
        super().__init__(channel, attach.handle, most)
        self.name = attach.name
        self._message_max = message_max
        self.delivery_count = attach.initial_delivery_count or 0
        self.answer = Attach(
            attach.name,
            attach.handle,
            True,
            attach.snd_settle_mode,
            0,
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
        settled = self.part_settled
        self.delivery_count = (self.delivery_count + 1) & 0xFFFFFFFF
        self.credit -= 1
        if not transfer.aborted:
            self._take(self.first_id, settled, whole, state)
        self.credit_used()

    def _take(self, delivery_id: int, settled: bool, payload: bytes, state: Any) -> None:
        try:
            self.receive(delivery_id, settled, payload, state)
        except PenstockError as error:
            self.refused(error, state)
            if settled:
                # The sender hears of no outcome: the end of the link is all it can be told.
                raise LinkError(told(error).condition, str(error)) from error
            self.channel.say_later(delivery_id, Rejected(told(error)), 0, False)

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
