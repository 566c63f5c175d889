"""A link to a queue, an exchange or no address: publishes messages, and settles them.

The outcome of a message is accepted when it is kept as its durability asks, released when it goes nowhere,
and rejected when a queue is full or its address is refused.

Source: AMQP 1.0 part 3 section 3.4.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel.appending import append, prepare, take_half
from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.refusals import LinkError, told
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Released,
    Target,
    TransactionalState,
)
from penstock.protocols.amqp10.messages.addresses import (
    TOPICS,
    AddressError,
    Place,
    exchange_address,
    parse_address,
    queue_address,
)
from penstock.protocols.amqp10.messages.translate import Stored, quickly_stored, stored_from_amqp10
from penstock.router.errors import NotFound
from penstock.router.names import ENC_AMQP091, join_key_block, server_name

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["PublishingLink"]


_PLACES_MAX: Final = 1024
"""Addresses that a link remembers for the kernel."""


class PublishingLink(IncomingLink):
    """See the module."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        """Raises LinkError, RoutingError: nothing can be sent there."""
        super().__init__(channel, attach, channel.session.options.max_message_bytes)
        target = attach.target
        if not isinstance(target, Target):
            raise LinkError("amqp:invalid-field", "a sender has a target")
        self._made = ""
        """The queue that was made for the link, and goes with it."""
        self.place: Place | None = None
        """None: each message says itself where it goes."""
        address = target.address if isinstance(target.address, str) else ""
        # A topic in the sense of JMS takes messages that go nowhere, too.
        self.to_topic = address.startswith("topic://") or not {"topic", "temporary-topic"}.isdisjoint(
            target.capabilities
        )
        if target.dynamic:
            self.place = self._make(target)
        elif target.address is not None:
            self.place = self._place(target.address, target.capabilities)
            self._require(self.place)
        if self.place is None:
            self.places = {}
        elif not self.place.by_subject:
            self.key = _key(self.place)

    def _make(self, target: Target) -> Place:
        """A topic, or a queue that this connection alone reads. Raises RoutingError."""
        session = self.channel.session
        if "temporary-topic" in target.capabilities:
            place = Place(TOPICS, server_name("amq.gen-"))
            target.address = exchange_address(place.exchange, place.routing_key)
            return place
        self._made = session.vhost.declare_queue("", session.actor, exclusive=True).name
        target.address = queue_address(self._made)
        return Place("", self._made)

    def detached(self) -> None:
        super().detached()
        session = self.channel.session
        if self._made in session.vhost.queues:
            session.vhost.delete_queue(self._made, session.actor)

    def _require(self, place: Place) -> None:
        """Raises RoutingError: the place is not there, or the user may not publish to it."""
        session = self.channel.session
        if place.declares and place.routing_key not in session.vhost.queues:
            session.vhost.declare_queue(place.routing_key, session.actor, durable=True)
        session.vhost.publishing.require(session.identity, ENC_AMQP091, _key(place))
        known = place.routing_key in session.vhost.queues or session.vhost.replies.knows(place.routing_key)
        if place.is_queue and not known and not place.by_subject:
            raise NotFound("queue", place.routing_key, session.vhost.name)

    def receive(self, delivery_id: int, settled: bool, payload: bytes, state: Any) -> None:
        channel, session = self.channel, self.channel.session
        quick = quickly_stored(payload) if self.key is not None else None
        stored = quick or stored_from_amqp10(payload)
        topic = self.to_topic or (self.place is None and stored.to_topic)
        key = self.key or self._key_of(stored, topic)
        message = prepare(session, key, stored, payload)
        if isinstance(state, TransactionalState):
            session.transaction(state.txn_id).publish(message)
            outcome: Any = TransactionalState(state.txn_id, Accepted())
            lsn, synced = 0, False
        elif message.half is not None:
            outcome, lsn, synced = take_half(session, message, payload)
        else:
            outcome, lsn, synced = append(channel, message, None if settled else channel.unsent)
            if topic and isinstance(outcome, Released):
                outcome = Accepted()  # nobody has to listen to a topic
        if not settled:
            self.say(delivery_id, outcome, lsn, synced)

    def _key_of(self, stored: Stored, topic: bool) -> bytes:
        """The key block that a message names, by its address or its subject. Raises AddressError."""
        to = stored.to
        if self.place is not None:
            return _key(Place(self.place.exchange, stored.subject))
        place = self._place(to, ("topic",) if topic else ())
        key = _key(place)
        if self.places is not None and not topic and len(self.places) < _PLACES_MAX:
            self.places[to.encode()] = key
        return key

    def _place(self, address: Any, capabilities: Collection[str] = ()) -> Place:
        if not isinstance(address, str):
            raise AddressError("a message to no address, on a link to no address", remedy="set its field to")
        place = parse_address(address, capabilities, v1=self.channel.session.options.address_v1)
        if place.subscription:
            raise AddressError(
                f"nothing is sent to a subscription: '{address}'", remedy="send to /queues/STREAM, its stream"
            )
        return place

    def refused(self, error: PenstockError, state: Any) -> None:
        if isinstance(state, TransactionalState):
            transaction = self.channel.session.transactions.get(state.txn_id)
            if transaction is not None:
                transaction.fail(told(error))


def _key(place: Place) -> bytes:
    return join_key_block(place.exchange, place.routing_key)
