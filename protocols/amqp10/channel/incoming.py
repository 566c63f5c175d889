"""A link by which the client sends: gathers transfers to messages, publishes them, and settles them.

The outcome of a message is accepted when it is kept as its durability asks, released when it goes nowhere,
and rejected when a queue is full or its address is refused.

Source: AMQP 1.0 part 2 sections 2.6 and 2.7.5, part 3 section 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import PERSISTENT
from penstock.protocols.amqp10.channel.refusals import LinkError, told
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Error,
    Flow,
    Rejected,
    Released,
    Target,
    Transfer,
)
from penstock.protocols.amqp10.messages.addresses import AddressError, Place, parse_address
from penstock.protocols.amqp10.messages.translate import Stored, stored_from_amqp10
from penstock.protocols.amqp10.options import CREDIT
from penstock.protocols.properties.properties import decode_properties
from penstock.router.arguments import MessageHeaders
from penstock.router.errors import NotFound
from penstock.router.names import ENC_AMQP091, join_key_block

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["IncomingLink"]

_TTL_MAX: Final = 2**32 - 2


class IncomingLink:
    """See the module."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        """Raises LinkError, RoutingError: nothing can be sent there."""
        self.channel = channel
        self.name = attach.name
        self.handle = attach.handle
        target = attach.target
        if not isinstance(target, Target):
            raise LinkError("amqp:not-implemented", "there are no transactions here; attach to a queue")
        if target.dynamic:
            raise LinkError("amqp:not-implemented", "a target is not made on demand; declare the queue first")
        self.place: Place | None = None
        """None: each message says itself where it goes."""
        if target.address is not None:
            self.place = _place(target.address)
            self._require(self.place)
        self._gathered = bytearray()
        """The parts of a message that is not whole; they count in `Session.gathered`, too."""
        self._first: Transfer | None = None
        self.delivery_count = attach.initial_delivery_count or 0
        self.credit = 0
        self.answer = Attach(
            attach.name,
            attach.handle,
            True,
            attach.snd_settle_mode,
            0,
            attach.source,
            target,
            max_message_size=channel.session.options.max_message_bytes,
        )

    def start(self) -> None:
        """The attach was answered: give credit."""
        self._give_credit()

    def _require(self, place: Place) -> None:
        """Raises RoutingError: the place is not there, or the user may not publish to it."""
        session = self.channel.session
        key = join_key_block(place.exchange, place.routing_key)
        session.vhost.publishing.require(session.identity, ENC_AMQP091, key)
        if place.is_queue and place.routing_key not in session.vhost.queues:
            raise NotFound("queue", place.routing_key, session.vhost.name)

    def _give_credit(self) -> None:
        self.credit = CREDIT
        self.channel.send_flow(
            handle=self.handle, delivery_count=self.delivery_count, link_credit=self.credit
        )

    def flow(self, flow: Flow) -> None:
        """The sender says how much it has."""
        if flow.delivery_count is not None and self._first is None:
            self.delivery_count = flow.delivery_count
        if flow.echo:
            self._give_credit()

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a part of a message. Raises LinkError."""
        if self._first is None:
            if transfer.delivery_id is None:
                raise LinkError("amqp:invalid-field", "the first transfer of a message has a delivery-id")
            if self.credit <= 0:
                raise LinkError("amqp:link:transfer-limit-exceeded", f"more than {CREDIT} messages at once")
            self._first = transfer
        self._gather(payload)
        if transfer.more and not transfer.aborted:
            return
        first, whole = self._first, bytes(self._gathered)
        self._drop()
        settled = bool(first.settled or transfer.settled)
        self.delivery_count = (self.delivery_count + 1) & 0xFFFFFFFF
        self.credit -= 1
        assert first.delivery_id is not None
        if not transfer.aborted:
            self._publish(first.delivery_id, settled, whole)
        if self.credit <= CREDIT // 2:
            self._give_credit()

    def _gather(self, payload: bytes) -> None:
        """Keep a part of a message, within what a connection may have of messages that are not whole."""
        session = self.channel.session
        limit = session.options.max_message_bytes
        if len(self._gathered) + len(payload) > limit:
            raise LinkError("amqp:link:message-size-exceeded", f"a message of more than {limit} bytes")
        if session.gathered + len(payload) > limit:
            raise LinkError(
                "amqp:resource-limit-exceeded",
                f"incomplete messages of more than {limit} bytes on all links of the connection; "
                "send one after the other",
            )
        session.gathered += len(payload)
        self._gathered += payload

    def _drop(self) -> None:
        """Forget the parts: they are a whole message, or never become one."""
        self.channel.session.gathered -= len(self._gathered)
        self._first, self._gathered = None, bytearray()

    def _publish(self, delivery_id: int, settled: bool, payload: bytes) -> None:
        channel = self.channel
        try:
            stored = stored_from_amqp10(payload)
            place = self.place or _place(stored.to)
            outcome, lsn, synced = self._append(place, stored)
        except PenstockError as error:
            outcome, lsn, synced = Rejected(told(error)), 0, False
            if settled:
                # The sender hears of no outcome: the end of the link is all it can be told.
                raise LinkError(told(error).condition, str(error)) from error
        if not settled:
            channel.settle_later(delivery_id, outcome, lsn, synced)

    def _append(self, place: Place, stored: Stored) -> tuple[Any, int, bool]:
        """The outcome, and the LSN that it waits for: written, or synced. Raises RoutingError."""
        session = self.channel.session
        key = join_key_block(place.exchange, place.routing_key)
        headers = None
        properties = None
        if stored.has_user_id or session.table.route(key).per_message:
            properties = decode_properties(stored.block, entries=len(stored.block))
            found = properties.get("headers")
            headers = MessageHeaders(found if isinstance(found, dict) else {}, properties)
            user = properties.get("user_id")
            if user is not None and user != session.identity.username:
                if "impersonator" not in session.identity.tags:
                    raise LinkError("amqp:unauthorized-access", f"user-id '{user!s}' is not who logged in")
        ttl = stored.ttl_ms
        published = session.vhost.publish(
            session.identity,
            ENC_AMQP091,
            key,
            stored.block,
            stored.body,
            flags=PERSISTENT if stored.durable else 0,
            priority=stored.priority if stored.has_priority else 0,
            ttl_ms=max(ttl, 1) if ttl is not None and ttl <= _TTL_MAX else 0,
            headers=headers,
        )
        session.published += 1
        route = published.route
        if route.error is not None:
            assert isinstance(route.error, PenstockError)
            raise route.error
        if published.refused:
            return Rejected(Error("amqp:resource-limit-exceeded", "a queue is full")), 0, False
        if not route.routed:
            return Released(), 0, False
        return Accepted(), published.lsn, stored.durable and route.durable

    def detached(self) -> None:
        """The link is over."""
        self._drop()


def _place(address: Any) -> Place:
    if not isinstance(address, str):
        raise AddressError("a message to no address, on a link to no address", remedy="set its field to")
    return parse_address(address)
