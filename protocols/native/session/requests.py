"""The requests of a native client: a JSON object with `do`, and what it needs.

Each handler reads its fields, does it or raises, and answers, once what it promises is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.native.codec.errors import RequestError, unknown_handle, unread_disk
from penstock.protocols.native.codec.frames import Fields
from penstock.protocols.native.options import CHOOSERS_MAX, HANDLES_MAX
from penstock.protocols.native.session import describing, queue_requests, raw
from penstock.protocols.native.session.preparing import rules_of
from penstock.router.arguments import Arguments
from penstock.router.errors import NotFound
from penstock.router.messages.delay_names import delay_name
from penstock.router.names import join_key_block
from penstock.router.rows import producer_name
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import ConsumerRefused
from penstock.subscriptions.streams.replay import Replay
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.protocols.native.session.session import Session
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["REQUESTS"]

Handler = Callable[["Session", int, Fields], None]

_KINDS: Final = {
    "exclusive": Kind.EXCLUSIVE,
    "failover": Kind.FAILOVER,
    "shared": Kind.SHARED,
    "key_shared": Kind.KEY_SHARED,
}
_PRIORITY_MAX: Final = 1000


def _handle(session: Session, id: int, fields: Fields) -> int:
    handle = fields.number("handle", most=2**32 - 1)
    _check_free(session, handle)
    return handle


def _check_free(session: Session, handle: int) -> None:
    """Asked again when what was looked for on the disk is there: two requests may want one handle."""
    if session.codec.has(handle):
        raise RequestError(
            "handle_in_use", f"the handle {handle} is in use", remedy="close it, or take another"
        )
    if session.codec.handles() >= HANDLES_MAX:
        raise RequestError(
            "limit_reached", f"a connection has at most {HANDLES_MAX} handles", remedy="close some"
        )


def _topic(session: Session, fields: Fields, create: bool = False) -> tuple[Stream, int]:
    """The stream that `topic` names, made if `create`; and the LSN to wait for."""
    name = fields.text("topic")
    try:
        queue = session.vhost.queue(name, session.actor, "read")
    except NotFound:
        if create:
            return _create(session, name, {})
        raise _no_topic(session, name) from None
    return _stream(queue), session.vhost.queues[queue.name].lsn


def _no_topic(session: Session, name: str) -> RequestError:
    return RequestError(
        "not_found",
        f"no topic '{name}' in vhost '{session.vhost.name}'",
        remedy="create it first, or correct the name",
    )


def _stream(queue: Queue) -> Stream:
    if not isinstance(queue, Stream):
        raise RequestError(
            "not_a_topic",
            f"queue '{queue.name}' is no stream",
            remedy="name it as queue, not as topic",
        )
    return queue


def _create(session: Session, name: str, retention: Arguments) -> tuple[Stream, int]:
    arguments = {"x-queue-type": "stream", **retention}
    declared = session.vhost.declare_queue(name, session.actor, durable=True, arguments=arguments)
    return _stream(declared.queue), declared.lsn


def _may_write(session: Session, key: bytes) -> None:
    """Before it is told whether it is there. Raises RoutingError."""
    error = session.codec.route(key).error
    if error is not None:
        assert isinstance(error, PenstockError)
        raise error


# Producers and consumers


def _exchange_key(fields: Fields) -> bytes:
    """The key block of what is published where no topic is named."""
    return join_key_block(*_exchange_of(fields))


def _exchange_of(fields: Fields) -> tuple[str, str]:
    """The exchange and the routing key of that."""
    if not fields.has("exchange"):
        raise RequestError(
            "bad_field",
            "neither the field 'topic' nor 'exchange' is there",
            remedy="name one of them, an exchange with the routing_key that it needs",
        )
    return fields.text("exchange"), fields.text("routing_key", "")


def open_producer(session: Session, id: int, fields: Fields) -> None:
    """{handle, topic, create?} or {handle, exchange, routing_key}, {name?, epoch?, numbered?, exclusive?,
    group? ...}."""
    handle = _handle(session, id, fields)
    lsn = 0
    if fields.has("topic"):
        name, create = fields.text("topic"), fields.switch("create", False)
        key = join_key_block("", name)
        _may_write(session, key)
        if name not in session.vhost.queues:
            if not create:
                raise _no_topic(session, name)
            _, lsn = _create(session, name, {})
    else:
        key = _exchange_key(fields)
    producer = fields.text("name", "")
    epoch = fields.number("epoch", most=2**31) if fields.has("epoch") else None
    numbered = fields.switch("numbered", False)
    if numbered and not producer:
        raise RequestError("bad_field", "who numbers messages has a name", remedy="give it one: name")
    exclusive = fields.switch("exclusive", False)
    if exclusive and not numbered:
        raise RequestError(
            "bad_field",
            "only a producer that is numbered may be exclusive",
            remedy="leave out exclusive: an epoch fences off others",
        )
    if epoch is not None and (numbered or not producer):
        raise RequestError(
            "bad_field",
            "only a named producer that is not numbered has an epoch",
            remedy="leave out epoch, or name the producer whose epoch it is",
        )
    group = fields.text("group", "")
    rules = rules_of(fields) if group else None
    fields.done()
    user = session.identity.username
    rule = "native-numbered" if numbered else "native"
    full_name = producer_name(rule, session.vhost.name, user, producer) if producer else None
    opened = session.producing.open(handle, key, producer, full_name, epoch, numbered, exclusive)
    if rules is not None:
        session.preparing.open(handle, key, group, rules)
    told = {"handle": handle, "epoch": opened.epoch, **({"number": opened.number} if numbered else {})}
    session.answer(id, told, max(lsn, opened.lsn))


def subscribe(session: Session, id: int, fields: Fields) -> None:
    """{handle, topic, subscription, kind?, start?, durable?, create?, priority?, max_unacked?, options} or
    {handle, queue, exclusive?, priority?, max_unacked?, auto?}."""
    handle = _handle(session, id, fields)
    priority = fields.number("priority", 0, least=-_PRIORITY_MAX, most=_PRIORITY_MAX)
    unacked_max = fields.number("max_unacked", 0, most=2**31 - 1)
    if fields.has("queue"):
        queue = session.vhost.queue(fields.text("queue"), session.actor, "read")
        exclusive, auto = fields.switch("exclusive", False), fields.switch("auto", False)
        fields.done()
        if isinstance(queue, Stream):
            raise RequestError(
                "not_a_queue",
                f"queue '{queue.name}' is a stream",
                remedy="name it as topic",
            )
        session.consuming.attach(
            handle, queue, priority=priority, exclusive=exclusive, auto=auto, unacked_max=unacked_max
        )
        session.answer(id, {"handle": handle}, session.vhost.queues[queue.name].lsn)
        return
    create = fields.switch("create", False)
    stream, made = _topic(session, fields, create)
    name = fields.text("subscription", most=200)
    if not name:
        raise RequestError("bad_field", "the field 'subscription' is empty", remedy="give it a name")
    kind = _KINDS[fields.choice("kind", tuple(_KINDS), "shared")]
    durable = fields.switch("durable", True)
    start = fields.any("start", "latest")
    is_new = (stream.name, name) not in session.vhost.subscriptions.entries
    options = _options(session, create and is_new, fields)
    consumer = fields.text("consumer", "") or f"{session.number}-{handle}"
    ranges = _pairs(fields.any("ranges", []), "slots", 2**16 - 1)
    if fields.switch("sticky", False):
        options["x-sticky"] = True
    if ranges and (kind is not Kind.KEY_SHARED or "x-sticky" not in options):
        raise RequestError(
            "bad_field",
            "only consumers of sticky key_shared subscriptions have ranges",
            remedy="leave out ranges, or subscribe with kind key_shared and sticky true",
        )
    if not ranges and "x-sticky" in options:
        raise RequestError(
            "bad_field", "a sticky consumer has ranges", remedy="name its slots: ranges, [[first, last], ...]"
        )
    fields.done()

    attaching = _Attaching(
        session,
        id,
        handle,
        lambda position: session.vhost.subscriptions.open(
            stream, name, kind, options, identity=session.identity, durable=durable, position=position
        ),
        f"subscription '{name}' of topic '{stream.name}'",
        kind in (Kind.FAILOVER, Kind.KEY_SHARED),
        made,
        partial(
            session.consuming.attach,
            handle,
            priority=priority,
            unacked_max=unacked_max,
            name=consumer,
            ranges=ranges,
        ),
    )
    session.opening.open(id, handle, start, lambda position: [(stream.feed, position)], attaching.open_at)


@dataclass(slots=True)
class _Attaching:
    """A consumer that is being attached; a dead one may be in its way first."""

    session: Session
    id: int
    handle: int
    subscription: Callable[[int], tuple[Queue, int]]
    """Opens the subscription at a position, and says which LSN to wait for."""
    named: str
    choosy: bool
    """Its consumers are chosen by name or key, and so are bounded."""
    lsn: int
    attach: Callable[[Queue], object]

    def open_at(self, position: int, opened: Callable[[], None]) -> None:
        """Raises PenstockError."""
        session = self.session
        _check_free(session, self.handle)
        subscription, lsn = self.subscription(position)
        if self.choosy and subscription.consumer_count >= CHOOSERS_MAX:
            raise RequestError(
                "limit_reached",
                f"{self.named} has {CHOOSERS_MAX} consumers",
                remedy="take messages with fewer consumers, or with a subscription of kind shared",
            )
        try:
            self.attach(subscription)
            session.answer(self.id, {"handle": self.handle}, max(self.lsn, lsn))
            opened()
        except ConsumerRefused as refused:
            holder = session.consuming.holder(subscription)
            if holder is None or holder is session:
                raise
            # One that is not durable goes with its dead consumer, and is made again.
            busy = refused
            session.opening.begin_search()

            def told(there: bool) -> None:
                session.opening.end_search()
                if not session.running:
                    return
                try:
                    if there:
                        raise busy
                    self.open_at(position, opened)
                except PenstockError as error:
                    session.answer_error(self.id, error)
                    opened()

            holder.probe(told)


def _options(session: Session, create: bool, fields: Fields) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, most in (
        ("ack_timeout_ms", 86_400_000),
        ("nack_min_ms", 86_400_000),
        ("nack_max_ms", 86_400_000),
    ):
        if fields.has(name):
            options["x-" + name.replace("_", "-")] = fields.number(name, most=most)
    if fields.has("max_deliveries"):
        options["x-delivery-limit"] = fields.number("max_deliveries", least=1, most=65_535) - 1
    if fields.has("dead_letter"):
        topic = fields.text("dead_letter")
        if create and topic not in session.vhost.queues:
            _may_write(session, join_key_block("", topic))
            _create(session, topic, {})
        options["x-dead-letter-exchange"] = ""
        options["x-dead-letter-routing-key"] = topic
    return options


def _pairs(value: Any, of: str, most: int) -> list[tuple[int, int]]:
    if not isinstance(value, list) or len(value) > 1000:
        raise RequestError(
            "bad_field", "ranges is no list of at most 1,000 pairs", remedy="ranges is [[first, last], ...]"
        )
    found = []
    for one in value:
        pair = isinstance(one, list) and len(one) == 2 and all(type(end) is int for end in one)
        if not pair or not 0 <= one[0] <= one[1] <= most:
            raise RequestError(
                "bad_field", f"no range of {of}: {str(one)[:100]}", remedy=f"[first, last], from 0 to {most}"
            )
        found.append((one[0], one[1]))
    return found


def read(session: Session, id: int, fields: Fields) -> None:
    """{handle, topic or queue, start?}: a reader, which takes nothing; answered with where it begins."""
    handle = _handle(session, id, fields)
    queue: Queue
    if fields.has("topic"):
        queue, _ = _topic(session, fields)
    else:
        queue = session.vhost.queue(fields.text("queue"), session.actor, "read")
    start = fields.any("start", "latest")
    fields.done()

    def wants(position: int) -> Sequence[tuple[Feed, int]]:
        return [(queue.feed, position)] if isinstance(queue, Stream) else Replay.wants(queue, position)

    def read_at(position: int, opened: Callable[[], None]) -> None:
        _check_free(session, handle)
        if queue.deleted:
            raise NotFound("queue", queue.name, session.vhost.name)
        if isinstance(queue, Stream):
            offset = queue.base + queue.feed.index_of(position)
            source: Queue = queue.reader(offset)
        else:
            source = session.broker.queues.replay(queue, position)
        session.consuming.attach(handle, source, auto=True)
        session.answer(id, {"handle": handle, "position": position})
        opened()

    session.opening.open(id, handle, start, wants, read_at)


def close(session: Session, id: int, fields: Fields) -> None:
    """{handle}: close a producer or a consumer. The messages that a consumer holds go back."""
    handle = fields.number("handle", most=2**32 - 1)
    fields.done()
    _, consumer = session.codec.remove(handle)
    if consumer is not None:
        session.consuming.detach(consumer)
    session.preparing.close(handle)
    session.answer(id, {})


def extend(session: Session, id: int, fields: Fields) -> None:
    """{handle, ranges}: the acknowledgement timeout of what is out with these tags begins anew."""
    handle, ranges = fields.number("handle", most=2**32 - 1), fields.any("ranges")
    fields.done()
    consumer = session.codec.consumer(handle)
    if consumer is None:
        raise unknown_handle("consumer", handle)
    pairs = _pairs(ranges, "tags", 2**63 - 1)
    extended = behind = 0
    for first, last in sorted(pairs):
        # Each delivery once, however often it is named.
        extended += consumer.extend(max(first, behind), last)
        behind = max(behind, last + 1)
    session.answer(id, {"extended": extended})


def decide(session: Session, id: int, fields: Fields) -> None:
    """{transaction, commit}: a prepared message is published, or forgotten."""
    transaction, commit = fields.number("transaction"), fields.switch("commit", True)
    fields.done()
    answer, lsn = session.preparing.decide(transaction, commit)
    session.answer(id, answer, lsn)


def seek(session: Session, id: int, fields: Fields) -> None:
    """{topic, subscription, to}: the subscription goes on from there; what is out is void."""
    stream, _ = _topic(session, fields)
    subscription = session.vhost.subscriptions.get(stream.name, fields.text("subscription"))
    to = fields.any("to")
    fields.done()

    def seek_to(position: int) -> None:
        if subscription.deleted:
            raise NotFound("subscription", subscription.name, session.vhost.name)
        session.answer(id, {"position": position}, subscription.seek(position))

    session.opening.find(id, to, lambda position: [(subscription.stream.feed, position)], seek_to)


# Topics and subscriptions


def create_topic(session: Session, id: int, fields: Fields) -> None:
    """{topic, max_age?, max_bytes?}: fine when it is there like that. max_age is e.g. "7D"."""
    name = fields.text("topic")
    retention: dict[str, Any] = {}
    if fields.has("max_age"):
        retention["x-max-age"] = fields.text("max_age")
    if fields.has("max_bytes"):
        retention["x-max-length-bytes"] = fields.number("max_bytes")
    fields.done()
    _, lsn = _create(session, name, retention)
    session.answer(id, {}, lsn)


def delete_topic(session: Session, id: int, fields: Fields) -> None:
    """{topic}: with its messages and subscriptions; fine when there is none."""
    name = fields.text("topic")
    fields.done()
    entry = session.vhost.queues.get(name)
    if entry is not None and not isinstance(entry.queue, Stream):
        _stream(
            session.vhost.queue(name, session.actor, "configure")
        )  # which of the two is told who may know
    session.answer(id, {}, session.vhost.delete_queue(name, session.actor).lsn)


def describe(session: Session, id: int, fields: Fields) -> None:
    """{topic}: what it holds, and its subscriptions; or {queue}."""
    if fields.has("queue"):
        queue_requests.describe(session, id, fields)
        return
    stream, _ = _topic(session, fields)
    fields.done()
    describing.describe(session, id, stream)


def pause(session: Session, id: int, fields: Fields) -> None:
    """{handle} or {topic, subscription}: nothing is delivered there until `resume`."""
    _set_paused(session, id, fields, True)


def resume(session: Session, id: int, fields: Fields) -> None:
    """{handle} or {topic, subscription}: the end of a pause."""
    _set_paused(session, id, fields, False)


def _set_paused(session: Session, id: int, fields: Fields, paused: bool) -> None:
    if not fields.has("handle"):
        stream, _ = _topic(session, fields)
        subscription = session.vhost.subscriptions.get(stream.name, fields.text("subscription"))
        fields.done()
        session.answer(id, {}, subscription.pause() if paused else subscription.go_on())
        return
    handle = fields.number("handle", most=2**32 - 1)
    fields.done()
    consumer = session.codec.consumer(handle)
    if consumer is None:
        raise unknown_handle("consumer", handle)
    consumer.paused = paused
    if not paused and consumer.attached:
        consumer.queue.credit_gained(consumer)
    session.answer(id, {})


def delete_subscription(session: Session, id: int, fields: Fields) -> None:
    """{topic, subscription}."""
    stream, _ = _topic(session, fields)
    name = fields.text("subscription")
    fields.done()
    session.answer(id, {}, session.vhost.subscriptions.delete(stream.name, name))


def cancel(session: Session, id: int, fields: Fields) -> None:
    """{due_ms, position, topic} or {due_ms, position, exchange, routing_key}: a delayed message, as its
    confirm named it, never comes. One that was published elsewhere is as good as none.

    {name, topic} or {name, exchange, routing_key}: the same by the name that its publisher gave it.
    """
    if fields.has("topic"):
        exchange, routing_key = "", fields.text("topic")
    else:
        exchange, routing_key = _exchange_of(fields)
    key = join_key_block(exchange, routing_key)
    if fields.has("name"):
        name = fields.text("name")
        fields.done()
        _may_write(session, key)
        named = delay_name(session.vhost.name, exchange, name)
        cancelled = session.broker.delayed.cancel_named(session.vhost, session.identity, named)
        session.answer(id, {"cancelled": cancelled}, session.log.appender.next_lsn - 1 if cancelled else 0)
        return
    due_ms, position = fields.number("due_ms"), fields.number("position")
    fields.done()
    _may_write(session, key)
    session.opening.begin_search()

    def told(cancelled: bool | None) -> None:
        session.opening.end_search()
        if session.running and cancelled is None:
            session.answer_error(id, unread_disk())
        elif session.running:
            lsn = session.log.appender.next_lsn - 1 if cancelled else 0
            session.answer(id, {"cancelled": cancelled}, lsn)

    session.broker.delayed.cancel_published(session.vhost.name, key, due_ms, position, told)


REQUESTS: Final[dict[str, Handler]] = {
    "open_producer": open_producer,
    "subscribe": subscribe,
    "read": read,
    "close": close,
    "decide": decide,
    "seek": seek,
    "create_topic": create_topic,
    "delete_topic": delete_topic,
    "bind": queue_requests.bind,
    "unbind": queue_requests.unbind,
    "declare_queue": queue_requests.declare,
    "delete_queue": queue_requests.delete,
    "purge_queue": queue_requests.purge,
    "queues": queue_requests.queues,
    "extend": extend,
    "pause": pause,
    "resume": resume,
    "topics": describing.topics,
    "describe": describe,
    "delete_subscription": delete_subscription,
    "cancel": cancel,
    "log": raw.log,
    "log_read": raw.log_read,
    "hold": raw.acquire_lease,
    "release": raw.release_lease,
    "holds": raw.leases,
}
