"""A link to a queue, an exchange or no address: publishes messages, and settles them.

The outcome of a message is accepted when it is kept as its durability asks, released when it goes nowhere,
and rejected when a queue is full or its address is refused.

Source: AMQP 1.0 part 3 section 3.4.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import PERSISTENT, SECTIONS
from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Error,
    Rejected,
    Released,
    Target,
)
from penstock.protocols.amqp10.messages.addresses import (
    TOPICS,
    AddressError,
    Place,
    exchange_address,
    parse_address,
    queue_address,
)
from penstock.protocols.amqp10.messages.translate import Stored, stored_from_amqp10
from penstock.protocols.properties.properties import decode_properties
from penstock.router.arguments import MessageHeaders
from penstock.router.errors import NotFound
from penstock.router.names import ENC_AMQP091, join_key_block, server_name

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["PublishingLink"]

_TTL_MAX: Final = 2**32 - 2


class PublishingLink(IncomingLink):
    """See the module."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        """Raises LinkError, RoutingError: nothing can be sent there."""
        super().__init__(channel, attach, channel.session.options.max_message_bytes)
        target = attach.target
        if not isinstance(target, Target):
            raise LinkError("amqp:not-implemented", "there are no transactions here; attach to a queue")
        self._made = ""
        """The queue that was made for the link, and goes with it."""
        self.place: Place | None = None
        """None: each message says itself where it goes."""
        if target.dynamic:
            self.place = self._make(target)
        elif target.address is not None:
            self.place = _place(target.address, target.capabilities)
            self._require(self.place)

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
        key = join_key_block(place.exchange, place.routing_key)
        session.vhost.publishing.require(session.identity, ENC_AMQP091, key)
        if place.is_queue and place.routing_key not in session.vhost.queues:
            raise NotFound("queue", place.routing_key, session.vhost.name)

    def receive(self, delivery_id: int, settled: bool, payload: bytes) -> None:
        stored = stored_from_amqp10(payload)
        outcome, lsn, synced = self._append(self.place or _place(stored.to), stored)
        if not settled:
            self.channel.settle_later(delivery_id, outcome, lsn, synced)

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
            flags=(PERSISTENT if stored.durable else 0) | (SECTIONS if stored.has_sections else 0),
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


def _place(address: Any, capabilities: Collection[str] = ()) -> Place:
    if not isinstance(address, str):
        raise AddressError("a message to no address, on a link to no address", remedy="set its field to")
    return parse_address(address, capabilities)
