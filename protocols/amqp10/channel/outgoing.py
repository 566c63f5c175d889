"""A link by which the client receives: a consumer of a queue, within the credit of the link.

Unsettled deliveries stay out in the queue's cursor until a disposition, or the end of the link, which gives
them back. The kernel in `_core` encodes the messages, as far as they are ordinary.

Source: AMQP 1.0 part 2 section 2.6, part 3 section 3.4; `subscriptions.dispatch.consumer`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import SECTIONS
from penstock.protocols.amqp10.channel._core import OutgoingCore
from penstock.protocols.amqp10.channel.refusals import LinkError, told
from penstock.protocols.amqp10.channel.resuming import Resuming
from penstock.protocols.amqp10.channel.settling import how_of
from penstock.protocols.amqp10.channel.sources import NamedSource, ReplaySource, StreamSource
from penstock.protocols.amqp10.channel.subscriptions import Subscription, find_subscription, is_subscription
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from penstock.protocols.amqp10.filters.filters import Filters
from penstock.protocols.amqp10.messages.addresses import parse_address, queue_address
from penstock.protocols.amqp10.messages.annotating import annotations_of
from penstock.protocols.amqp10.messages.translate import amqp10_from_stored
from penstock.protocols.properties._taken_keys import taken_slots
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.router.names import ENC_AMQP091, ENC_MQTT5
from penstock.router.queues.backfill import ARGUMENT as BACKFILL
from penstock.subscriptions.streams.stream import Stream
from penstock.subscriptions.tick._consumer_path import ConsumerFastPath

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.log_core.batch._batch import Record
    from penstock.protocols.amqp10.channel.channel import Channel
    from penstock.protocols.amqp10.messages.addresses import Place
    from penstock.router.arguments import Arguments
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.dispatch.assignment import Range
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["OutgoingLink"]

_SETTLED: Final = 1
_SECOND: Final = 1
_DRAIN_S: Final = 0.01


class OutgoingLink(OutgoingCore):
    """See the module."""

    channel: Channel

    def __init__(self, channel: Channel, attach: Attach) -> None:
        """Raises LinkError, RoutingError: nothing can be received from there."""
        super().__init__(channel, attach.handle)
        self.name = attach.name
        self.settled = attach.snd_settle_mode == _SETTLED
        self._second = attach.rcv_settle_mode == _SECOND
        self._subscription: Subscription | None = None
        source = find_subscription(channel.session, attach) if attach.source is None else attach.source
        if not isinstance(source, Source):
            raise LinkError("amqp:invalid-field", "a receiver has a source")
        filters = self._filters = Filters(source.filter or {}, channel.session.broker.log.wall_ms)
        if is_subscription(source):
            self._subscription = Subscription(channel.session, attach, source, filters.text)
        self._source: StreamSource | ReplaySource | NamedSource | None = None
        """Where its place is to be looked for; None: in `queue`, where it is."""
        self.queue = self._queue_of(source, attach)
        self._reads_from = self.queue.name
        if self._source is None:
            self.way = ConsumerFastPath
        self.filtered = filters.look
        self.program = filters.program() if filters.look else None
        self.priority = _priority(attach)
        """Higher ones are served first."""
        subscription = self._subscription
        lasts = subscription is not None and subscription.durable and not subscription.ends_with_link
        self._set_default(source)
        self._resuming: Resuming | None = None
        if lasts and self._is_alone(self.queue):
            self._resuming = Resuming(channel, attach, self.queue)
            self.series = self._resuming.series
            self.resuming = bool(self._resuming.outcomes)
        stays = lasts or isinstance(self._source, NamedSource)
        source.expiry_policy, source.timeout = "never" if stays else "link-detach", 0
        source.outcomes = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list") + (
            "amqp:modified:list",
        )
        self.answer = Attach(
            attach.name,
            attach.handle,
            False,
            _SETTLED if self.settled else 0,
            _SECOND if self._second else 0,
            source,
            attach.target if isinstance(attach.target, Target) else Target(),
            unsettled=self._resuming.unsettled if self._resuming is not None else None,
            initial_delivery_count=0,
        )

    def _set_default(self, source: Source) -> None:
        """How deliveries end that are settled without an outcome. Raises LinkError: not so."""
        outcome = source.default_outcome
        if outcome is None:
            source.default_outcome = Released()
            return
        if not isinstance(outcome, Accepted | Rejected | Released | Modified):
            raise LinkError("amqp:invalid-field", "the default-outcome of a source is an outcome")
        self.default_how, self.has_default = how_of(outcome), True
        if isinstance(outcome, Modified):
            source.default_outcome = replace(outcome, message_annotations=None)

    def _queue_of(self, source: Source, attach: Attach) -> Queue:
        """The queue of a source; a queue of the connection's own where it is dynamic, or an exchange."""
        session = self.channel.session
        vhost, actor = session.vhost, session.actor
        if source.dynamic:
            self._allow_moments()
            self._allow_filters(None)
            name = vhost.declare_queue("", actor, exclusive=True, auto_delete=True).queue.name
            source.address = queue_address(name)
            return vhost.queue(name, actor)
        if not isinstance(source.address, str):
            raise LinkError("amqp:invalid-field", "a source has an address, or is dynamic")
        place = parse_address(source.address, source.capabilities, v1=session.options.address_v1)
        if place.is_queue:
            if source.distribution_mode == "copy":
                raise LinkError("amqp:not-implemented", "a queue is not browsed here; receive and release")
            if place.declares and place.routing_key not in vhost.queues:
                vhost.declare_queue(place.routing_key, actor, durable=True)
            queue = vhost.queue(place.routing_key, actor)
            self._find_source(queue, place.subscription, attach)
            return queue
        self._allow_moments(backfill=True)
        self._allow_filters(None)
        if self._subscription is not None:
            if not self._subscription.shared:
                self._steal(self._subscription.name)
            return self._subscription.subscribe(place, self._backfill)
        declared = vhost.declare_queue("", actor, exclusive=True, auto_delete=True)
        self._backfill(declared.queue.name, place, {})
        return vhost.queue(declared.queue.name, actor)

    def _backfill(self, queue: str, place: Place, arguments: Arguments) -> None:
        """Bind its own queue, which gets what came before, too, if that is asked for. Raises RoutingError."""
        session = self.channel.session
        if self._filters.backfill is not None:
            arguments = {**arguments, BACKFILL: self._filters.backfill}
        bound = session.vhost.bind_queue_since(
            queue, place.exchange, place.routing_key, session.actor, arguments
        )
        if bound.history is not None:
            bound.history(self._filled)

    def _filled(self, ok: bool) -> None:
        """The history is there, or could not be had."""
        if not ok and self.channel.links.get(self.handle) is self:
            self.channel.cancelled(self, Error("amqp:internal-error", "see the broker logfile"))

    def _find_source(self, queue: Queue, subscription: str, attach: Attach) -> None:
        """Where a queue that is not the link's own is read from. Raises LinkError."""
        session, filters = self.channel.session, self._filters
        self._allow_moments(replay=not (subscription or isinstance(queue, Stream)))
        if subscription:
            if not isinstance(queue, Stream):
                raise LinkError("amqp:invalid-field", f"the queue '{queue.name}' is no stream")
            self._allow_filters(queue, shared=True)
            self._source = NamedSource(session, queue, subscription, attach.properties)
        elif isinstance(queue, Stream):
            self._source = StreamSource(queue, filters.offset, filters.cursor, queue.log.now_ms())
        elif filters.replay is not None:
            self._allow_filters(None)
            self._source = ReplaySource(session.broker, queue, filters.replay)
        else:
            self._allow_filters(queue, shared=True)
        if isinstance(queue, Stream):
            self.of_stream(queue.feed, queue.base)

    def _steal(self, subscription: str) -> None:
        """Another connection of this container may hold the link: its name is in the subscription's."""
        entry = self.channel.session.vhost.queues.get(subscription)
        for consumer in [] if entry is None else entry.queue.consumers:
            if isinstance(consumer, OutgoingLink):
                consumer.channel.session.steal(self.name, True)

    def _allow_moments(self, *, replay: bool = False, backfill: bool = False) -> None:
        """Whether the filters may say since when. Raises LinkError."""
        filters = self._filters
        if (filters.replay is not None and not replay) or (filters.backfill is not None and not backfill):
            raise LinkError(
                "amqp:not-implemented",
                "penstock:replay is for queues, penstock:backfill for topics and exchanges; "
                "a stream has rabbitmq:stream-offset-spec",
            )

    def _allow_filters(self, queue: Queue | None, *, shared: bool = False) -> None:
        """Whether messages can be filtered, which receivers may share. Raises LinkError."""
        filters = self._filters
        if filters.of_stream:
            raise LinkError(
                "amqp:not-implemented",
                "filters rabbitmq:... and penstock:cursor are of streams; receive without them",
            )
        if queue is not None and shared and filters.look:
            raise LinkError(
                "amqp:not-implemented",
                f"the queue '{queue.name}' gives each message to whoever is next, and has no filters; "
                "use a topic, an exchange or a stream, or receive without them",
            )

    def start(self) -> None:
        """The attach was answered. Raises SubscriptionError: the queue takes no other consumer."""
        self.channel.seconds += self._second
        if self._source is None:
            if self._resuming is None or not self._resuming.alone:
                self._join(self.queue)
        else:
            self._source.find(self._found)

    def _join(self, queue: Queue) -> None:
        self.queue = queue
        queue.attach(self, exclusive=self._is_alone(queue))
        self.attached = True

    def _is_alone(self, queue: Queue) -> bool:
        """Whether the queue is a subscription's that one link reads at a time."""
        subscription = self._subscription
        return subscription is not None and not subscription.shared and queue.name == subscription.name

    def _found(self, opens: Callable[[], Queue] | None) -> None:
        """The place is known; None: it could not be looked for."""
        if self.channel.links.get(self.handle) is not self:
            return
        try:
            if opens is None:
                raise LinkError("amqp:internal-error", "see the broker logfile")
            self._join(opens())
        except PenstockError as error:
            self.channel.cancelled(self, told(error))
        self.channel.session.schedule()

    def flow(self, flow: Flow) -> None:
        """The receiver gives credit."""
        if flow.link_credit is not None:
            base = self.delivery_count if flow.delivery_count is None else flow.delivery_count
            self.link_credit = (base + flow.link_credit - self.delivery_count) & 0xFFFFFFFF
            if self.link_credit >= 2**31:
                self.link_credit = 0
        self.draining = flow.drain
        if self.resuming:
            self._resume()
        if self.attached:
            self.queue.credit_gained(self)
        if flow.drain:
            self.channel.session.broker.tick.after(_DRAIN_S, self._drained)
        elif flow.echo:
            self._tell()

    def _resume(self) -> None:
        """Tell of deliveries of an earlier link, within the credit."""
        assert self._resuming is not None
        outcomes = self._resuming.outcomes
        while outcomes and self.link_credit > 0:
            self.channel.send_resumed(self.handle, *outcomes.popleft())
            self.delivery_count = (self.delivery_count + 1) & 0xFFFFFFFF
            self.link_credit -= 1
        self.resuming = bool(outcomes)

    def wake(self) -> None:
        """There may be room again."""
        if self.attached:
            self.queue.credit_gained(self)

    def _drained(self) -> None:
        """Give the rest of the credit back, once the queue has nothing for it."""
        if not self.draining or self.channel.links.get(self.handle) is not self:
            return
        if self.attached and self.link_credit and (self.queue.is_reading or self.queue.ready_count):
            self.queue.credit_gained(self)
            self.channel.session.broker.tick.after(_DRAIN_S, self._drained)
            return
        self.delivery_count = (self.delivery_count + self.link_credit) & 0xFFFFFFFF
        self.link_credit = 0
        self.draining = False
        self._tell(drain=True)
        self.channel.session.flush()

    def _tell(self, *, drain: bool = False) -> None:
        self.channel.send_flow(
            handle=self.handle,
            delivery_count=self.delivery_count,
            link_credit=self.link_credit,
            drain=drain,
        )

    # A named subscription's demands on its consumers: see `subscriptions.queue.group`

    @property
    def ranges(self) -> list[Range]:
        """The slots it wants of a sticky subscription: it cannot say any."""
        return []

    def void(self) -> None:
        """The subscription goes on elsewhere."""
        self.channel.take_out(self)

    def told(self, active: bool) -> None:
        """AMQP 1.0 has no word for who is active."""

    @staticmethod
    def slots(_: Cursor) -> Buffer:
        """The slots of the keys of the items of the last take."""
        return taken_slots()

    # The queue's

    def peer(self) -> str:
        """The connection's name."""
        return self.channel.session.name()

    def payload(
        self,
        record: Record,
        offset: int | None,
        delivery_count: int,
        acquired: int,
        counts: bool,
        note: bytes,
    ) -> bytes | None:
        """The message, where the kernel does not encode it; None: the filters do not let it pass."""
        key, props = record.key, record.props
        if record.enc == ENC_MQTT5:
            key, props = amqp091_from_mqtt5(key, props, record.flags)
        elif record.enc != ENC_AMQP091:
            key, props = b"\0" + bytes((min(len(key), 255),)) + key[:255], b"\0\0"
        left = max(record.ttl - (self.queue.log.now_ms() - record.ts), 0) if record.ttl else None
        payload = amqp10_from_stored(
            key,
            props,
            record.body,
            sections=bool(record.flags & SECTIONS),
            delivery_count=delivery_count,
            acquired=acquired,
            counts=counts,
            ttl_ms=left,
            offset=offset,
            added=annotations_of(note),
        )
        return payload if not self.filtered or self.passes(payload) else None

    def passes(self, payload: bytes) -> bool:
        """Whether the filters let a message pass."""
        found = None if self.program is None else self.program.look(payload)
        return self._filters.passes(payload) if found is None else found

    def cancelled(self, reason: str) -> None:
        """The queue let go of it."""
        self.attached = False
        self.channel.cancelled(self, Error("amqp:resource-deleted", reason))

    # The end

    def detached(self) -> None:
        """The link is over: what is not settled goes back."""
        if self.attached:
            self.attached = False
            self.queue.detach(self)
        self.channel.seconds -= self._second
        if self._resuming is not None:
            self._resuming.suspend(self)
        else:
            self.channel.give_back(self, self.channel.session.vanished)
        if self._subscription is not None and self._subscription.ends_with_link:
            with suppress(PenstockError):  # a user who may not delete its queue any more leaves it
                self._subscription.closed()
        self.channel.session.schedule()

    def closed(self) -> None:
        """The client closed it, more than detached it. Raises RoutingError: its subscription stays."""
        if self._resuming is not None:
            self._resuming.give_back()
        if self._subscription is not None:
            self._subscription.closed()

    def check_rights(self) -> Error | None:
        """Why the user may not read from the queue any more; None: the user may."""
        session = self.channel.session
        try:
            session.vhost.queue(self._reads_from, session.actor)
        except PenstockError as error:
            return told(error)
        return None


def _priority(attach: Attach) -> int:
    """The link's property `rabbitmq:priority`. Raises LinkError: it is no integer."""
    value = (attach.properties or {}).get("rabbitmq:priority", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise LinkError("amqp:invalid-field", "rabbitmq:priority is an integer")
    return max(min(int(value), 2**31 - 1), -(2**31))
