"""Messages of HTTP handlers on their way into the broker, and how they are shown that came out of it.

Not for traffic like a kernel's: each message costs Python here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import CodecError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import AMQP091, PERSISTENT, RETAIN, Record
from penstock.protocols.http.server.headers import (
    DELAY_ID,
    DELIVER_AFTER,
    DELIVER_AT,
    PRODUCER,
    SEQUENCE,
    check_delay,
    copies_of,
    delay_name_of,
    due_of,
    numbered,
)
from penstock.protocols.http.server.messages import HttpError, log_failed
from penstock.protocols.http.server.numbers import whole
from penstock.protocols.http.server.pending_audit import pending
from penstock.router.limits.limits import BACKLOG_BYTES, BACKLOG_REJECT, BYTE_RATE, MESSAGE_RATE
from penstock.router.messages.half import HalfMessage
from penstock.router.names import join_key_block, key_blocks_at, split_key_block
from penstock.router.publishing.capacity import Capacity
from penstock.router.publishing.publishing import Published
from penstock.router.rows import ProducerName
from penstock.subscriptions.cursor import _events as events

if TYPE_CHECKING:
    from penstock.protocols.http.server.app import ErrorTexts
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.routes._routes import Route
    from penstock.router.vhost.vhost import Vhost

__all__ = [
    "SHORT_PROPERTIES",
    "Messages",
    "Prepared",
    "Shown",
    "check_accepting",
    "check_properties",
    "kept",
    "note_published",
    "ttl_of",
]

_RETRY_S: Final = 5
_TTL_MAX: Final = 2**32 - 1
_HALF: Final = frozenset({"x-penstock-half", "x-penstock-commit", "x-penstock-rollback"})
_CANCEL: Final = "x-penstock-cancel"
_SPECIAL: Final = _HALF | {"CC", "BCC", DELIVER_AFTER, DELIVER_AT, DELAY_ID, _CANCEL, PRODUCER, SEQUENCE}
_PLAIN: Final = {"content_type", "delivery_mode"}
SHORT_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


@dataclass(slots=True)
class Prepared:
    """A message that could be published, in its encoding."""

    keys: tuple[bytes, ...]
    block: bytes
    body: bytes
    headers: Mapping[str, Any]
    flags: int
    priority: int
    ttl_ms: int
    due_ms: int
    numbered: tuple[ProducerName, int] | None
    delay_name: bytes | None
    """The key of its name while it waits (`router.messages.delay_names`)."""

    @property
    def is_plain(self) -> bool:
        """Whether it is appended once and now: no copies, delay or number."""
        return (
            len(self.keys) == 1
            and not self.due_ms
            and self.numbered is None
            and "x-delay" not in self.headers
        )


async def kept(broker: Broker, lsn: int, *, synced: bool = True) -> None:
    """Wait until everything up to `lsn` is on the disk, or written.

    Raises:
        HttpError: 503, the log failed: it may be kept or not.

    """
    if (noted := pending()) is not None:
        lsn = max(lsn, noted.done())
    log = broker.log
    if lsn <= (log.synced_lsn if synced else log.written_lsn):
        return
    reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def told(ok: bool) -> None:
        if not reached.done():
            reached.set_result(ok)

    (log.when_synced if synced else log.when_written)(lsn, told)
    broker.tick.schedule()
    if not await reached:
        raise log_failed()


def note_published(vhost: Vhost, identity: Identity, lsn: int) -> None:
    """Note that a user has published a message by HTTP, while such events are kept."""
    if events.is_on():
        events.published(lsn, 1, vhost=vhost.name, user=identity.username, detail="http")


def check_accepting(broker: Broker, vhost: Vhost, identity: Identity) -> None:
    """Before a publish: raises HttpError 503 while the log takes no messages, 429 while it takes none for
    this vhost, or of this user."""
    wait_s = broker.rates.refuses(identity.username, vhost.name)
    if wait_s:
        raise HttpError(
            429,
            "rate",
            f"user '{identity.username}' or vhost '{vhost.name}' publishes more than its "
            f"{MESSAGE_RATE} or {BYTE_RATE}; try again later",
            retry_after_s=ceil(wait_s),
        )
    if vhost.full or vhost.refuses:
        limit = BACKLOG_BYTES if vhost.full else BACKLOG_REJECT
        raise HttpError(
            429,
            "quota",
            f"vhost '{vhost.name}' holds more than its {limit}; try again when some is consumed",
            retry_after_s=_RETRY_S,
        )
    if broker.log.paused:
        raise HttpError(
            503,
            "paused",
            "the log takes no messages for now: memory, disk or the disk's speed; try again",
            retry_after_s=_RETRY_S,
        )


@dataclass(slots=True)
class Shown:
    """A message in AMQP's words, whichever protocol it came by."""

    exchange: str
    routing_key: str
    properties: dict[str, Any]
    body: bytes


_key_block = lru_cache(maxsize=1024)(join_key_block)


class Messages:
    """Publishing and showing, in AMQP's words."""

    def __init__(self, words: ErrorTexts) -> None:
        self._words = words

        @lru_cache(maxsize=256)
        def plain(content_type: str, delivery_mode: int) -> bytes:
            return words.encode_properties({"content_type": content_type, "delivery_mode": delivery_mode})

        self._plain_block = plain
        """The properties block of a message that has no other properties: most have the same."""
        self.published = 0
        """Messages published by HTTP, since the start."""
        self.delivered = 0
        self.json_props = words.encode_properties({"content_type": "application/json", "delivery_mode": 2})
        """The properties block of what the gateway itself has to say."""

    def publish(
        self,
        vhost: Vhost,
        identity: Identity,
        exchange: str,
        routing_key: str,
        properties: Mapping[str, Any],
        body: bytes,
        *,
        due_ms: int = 0,
    ) -> Published:
        """Append one message, or keep it until `due_ms` (since the epoch; 0: now).

        The headers that delay, copy and number messages mean what they mean to AMQP publishers. A message
        that a named producer sent before is not appended again: the LSN is the earlier one.

        Raises:
            HttpError: 400, a property that is none.
            RoutingError: the exchange refuses it.

        """
        return self.append(
            vhost, identity, self.prepare(vhost, identity, exchange, routing_key, properties, body, due_ms)
        )

    def append(self, vhost: Vhost, identity: Identity, one: Prepared) -> Published:
        """Append what was prepared, or keep it until it is due. Raises RoutingError."""
        if one.numbered is None:
            published = self._append(vhost, identity, one)
        else:
            producers = vhost.broker.log.producers
            name, sequence = one.numbered
            if known := producers.admit_sequence(name.key, sequence):
                route = vhost.route(identity, AMQP091, one.keys[0], one.headers)
                return Published(known, route, repeated=True)
            if not one.due_ms:
                route = self.route(vhost, identity, one)
                if Capacity().refusing(route, len(one.body)) is not None:
                    # A message that may come again is nowhere, not even where there is room.
                    return Published(vhost.broker.log.appender.next_lsn - 1, route, refused=True)
            producers.open()
            try:
                published = self._append(vhost, identity, one)
                producers.note(name.key, sequence, sequence, published.lsn, label=name.label)
            finally:
                producers.close()
        self.published += 1
        vhost.broker.rates.charge(identity.username, vhost.name, 1, len(one.body))
        if not (published.refused or published.replied):
            note_published(vhost, identity, published.lsn)
        return published

    def append_to(self, route: Route, vhost: Vhost, identity: Identity, one: Prepared) -> int:
        """Append one that `is_plain` to its route, which is not special and remembers nothing; the LSN.

        Queues see the appended records when the caller has the tick scheduled.
        """
        broker = vhost.broker
        self.published += 1
        broker.rates.charge(identity.username, vhost.name, 1, len(one.body))
        lsn = broker.log.appender.append_record(
            route.lp,
            route.target,
            one.keys[0],
            one.block,
            one.body,
            one.flags,
            one.priority,
            AMQP091,
            one.ttl_ms,
        )
        note_published(vhost, identity, lsn)
        return lsn

    def route(self, vhost: Vhost, identity: Identity, one: Prepared) -> Route:
        """Where what was prepared would go by now, with its copies. Raises RoutingError."""
        key, *copies = one.keys
        route = vhost.publishing.table(identity, AMQP091).route(key)
        if copies or route.per_message:
            route = vhost.route(identity, AMQP091, key, one.headers, copies=copies)
        if route.error is not None:
            raise route.error
        return route

    def appender(
        self, vhost: Vhost, identity: Identity, exchange: str, routing_key: str, *, must_route: bool = False
    ) -> tuple[Callable[[str, bytes], int], bool] | None:
        """How to append plain messages, which have a content type and are persistent, one after the other.

        Returns a function and whether a queue gets the messages. The function takes the content type, of at
        most 255 bytes, and the body, and returns the LSN. It holds until the loop does something else. None:
        each of these messages needs a look of its own (`publish`), which may refuse it.
        """
        try:
            key = _key_block(exchange, routing_key)
        except ValueError:
            return None
        route = vhost.publishing.table(identity, AMQP091).route(key)
        if route.error is not None or route.special or (must_route and not route.routed):
            return None
        append, block = vhost.broker.log.appender.append_record, self._plain_block
        lp, target = route.lp, route.target
        vhost.broker.tick.schedule()

        charge, user, name = vhost.broker.rates.charge, identity.username, vhost.name

        def one(content_type: str, body: bytes) -> int:
            self.published += 1
            charge(user, name, 1, len(body))
            lsn = append(lp, target, key, block(content_type, 2), body, PERSISTENT, 0, AMQP091)
            note_published(vhost, identity, lsn)
            return lsn

        return one, route.routed

    def half(
        self,
        vhost: Vhost,
        identity: Identity,
        exchange: str,
        routing_key: str,
        properties: Mapping[str, Any],
        body: bytes,
    ) -> tuple[bytes, HalfMessage]:
        """A message that is to be kept for a decision, and its key block, when the user may publish it now.

        Raises:
            HttpError: 400, a property that is none, or one that a half message cannot have.
            RoutingError: the exchange refuses it.

        """
        one = self.prepare(vhost, identity, exchange, routing_key, properties, body)
        if len(one.keys) != 1 or one.due_ms or one.numbered is not None or one.delay_name is not None:
            raise HttpError(400, "bad_field", "a half message has no delay, no copies and no number")
        route = vhost.route(identity, AMQP091, one.keys[0], one.headers)
        if route.error is not None:
            raise route.error
        return one.keys[0], HalfMessage(one.block, one.body, one.flags, one.priority, one.ttl_ms)

    def prepare(
        self,
        vhost: Vhost,
        identity: Identity,
        exchange: str,
        routing_key: str,
        properties: Mapping[str, Any],
        body: bytes,
        due_ms: int = 0,
    ) -> Prepared:
        """A message in its encoding, all of it checked but whether it may go there. Raises HttpError 400."""
        checked = check_properties(properties, identity)
        headers = checked.get("headers") or {}
        keys, number, name = [routing_key], None, None
        if not _SPECIAL.isdisjoint(headers):
            headers = checked["headers"] = dict(headers)
            if half := _HALF & set(headers):
                raise HttpError(
                    400,
                    "bad_field",
                    f"the header {min(half)} is AMQP publishers'; half messages are kept by POST half",
                )
            if _CANCEL in headers:
                raise HttpError(
                    400,
                    "bad_field",
                    f"the header {_CANCEL} is AMQP publishers'; DELETE exchanges/X/delayed/NAME cancels",
                )
            keys += copies_of(headers)
            name = delay_name_of(headers, vhost.name, exchange)
            due_ms = due_of(headers, vhost.broker.log.wall_ms()) or due_ms
            number = numbered(vhost.name, identity.username, headers)
        if "x-delay" in headers and (entry := vhost.exchanges.get(exchange)) is not None and entry.delays:
            check_delay(headers["x-delay"])
        try:
            if len(keys) == 1:
                blocks: tuple[bytes, ...] = (_key_block(exchange, routing_key),)
            else:
                blocks = tuple(dict.fromkeys(_key_block(exchange, key) for key in keys))
            if checked.keys() == _PLAIN:
                block = self._plain_block(checked["content_type"], checked["delivery_mode"])
            else:
                block = self._words.encode_properties(checked)
        except (ValueError, OverflowError, CodecError) as error:
            raise HttpError(400, "bad_request", f"the message cannot be encoded: {error}") from error
        return Prepared(
            blocks,
            block,
            body,
            headers,
            PERSISTENT if checked.get("delivery_mode") == 2 else 0,
            checked.get("priority", 0),
            ttl_of(checked.get("expiration")),
            due_ms,
            number,
            name,
        )

    def _append(self, vhost: Vhost, identity: Identity, one: Prepared) -> Published:
        if one.delay_name is None:
            return self._append_in_time(vhost, identity, one)
        self.route(vhost, identity, one)  # what is refused takes no other one's name
        with vhost.broker.log.unit():
            vhost.broker.delayed.cancel_named(vhost, identity, one.delay_name)
            return self._append_in_time(vhost, identity, one)

    def _append_in_time(self, vhost: Vhost, identity: Identity, one: Prepared) -> Published:
        words = vhost.broker.delayed.words
        delay_ms = words.delay_ms(one.headers) if words is not None and one.headers else 0
        if len(one.keys) == 1 and not one.due_ms and not delay_ms:
            if vhost.replies.waits_at(one.keys[0]):
                route = self.route(vhost, identity, one)
                vhost.replies.deliver(one.keys, one.block, one.body)
                return Published(vhost.broker.log.appender.next_lsn - 1, route, replied=True)
            published = vhost.publish(
                identity,
                AMQP091,
                one.keys[0],
                one.block,
                one.body,
                flags=one.flags,
                priority=one.priority,
                ttl_ms=one.ttl_ms,
                # Without headers the user's table of routes has the answer.
                headers=one.headers or None,
            )
            if published.route.error is not None:
                raise published.route.error
            return published
        names: list[str] = []
        key, *copies = one.keys
        way = vhost.route(identity, AMQP091, key, one.headers, names if delay_ms else None, copies)
        if way.error is not None:
            raise way.error
        if one.due_ms:
            lsn = self._keep(vhost, one, one.due_ms, one.block, one.keys)
            return Published(lsn, way, waits=True)
        held = key_blocks_at(names, one.keys)
        published = Published(0, way)
        if way.routed or not held:
            published = vhost.publishing.append(
                way, one.keys[0], one.block, one.body, one.flags, one.priority, AMQP091, one.ttl_ms
            )
        if held and words is not None:
            until_ms = vhost.broker.log.wall_ms() + delay_ms + 1
            block = words.served(one.block, delay_ms)
            lsn = self._keep(vhost, one, until_ms, block, held)
            published = Published(lsn, way, published.refused, waits=not way.routed)
        return published

    def _keep(self, vhost: Vhost, one: Prepared, due_ms: int, block: bytes, starts: tuple[bytes, ...]) -> int:
        return vhost.broker.delayed.schedule(
            vhost.name,
            due_ms,
            AMQP091,
            one.keys[0],
            block,
            one.body,
            starts=starts,
            flags=one.flags,
            priority=one.priority,
            ttl_ms=one.ttl_ms,
            name=one.delay_name,
            keys=one.keys,
        )

    def encode_properties(self, properties: dict[str, Any]) -> bytes:
        """The properties block of checked properties. Raises HttpError 400."""
        try:
            return self._words.encode_properties(properties)
        except (ValueError, OverflowError, CodecError) as error:
            raise HttpError(400, "bad_request", f"the message cannot be encoded: {error}") from error

    def with_header(self, props: bytes, name: str, value: str) -> bytes:
        """A properties block with one more header, or another value of it."""
        properties = dict(self._words.decode_properties(props))
        properties["headers"] = {**(properties.get("headers") or {}), name: value}
        return self._words.encode_properties(properties)

    def headers_of(self, record: Record) -> Mapping[str, Any]:
        """The headers of an AMQP record. Raises CodecError."""
        headers: Mapping[str, Any] = self._words.decode_properties(record.props).get("headers") or {}
        return headers

    def show(self, record: Record) -> Shown:
        """A record as AMQP consumers would see it."""
        key, block = record.key, record.props
        if record.enc != AMQP091:
            key, block = self._words.key_of_mqtt(key, block, record.flags & ~RETAIN)
        exchange, routing_key = split_key_block(key) or ("", b"")
        try:
            properties = dict(self._words.decode_properties(block))
        except CodecError:
            properties = {}
        return Shown(exchange, routing_key.decode("utf-8", "replace"), properties, record.body)


def check_properties(properties: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """The properties of a message, each of its type. Raises HttpError."""
    checked: dict[str, Any] = {}
    for name, value in properties.items():
        match name:
            case "headers":
                right = isinstance(value, dict)
            case "delivery_mode" | "priority" | "timestamp":
                number = whole(value)
                right = number is not None and 0 <= number < (2**64 if name == "timestamp" else 256)
                value = number if right else value
            case _:
                right = name in SHORT_PROPERTIES and isinstance(value, str) and len(value.encode()) <= 255
        if not right:
            raise HttpError(400, "bad_request", f"the property {name!r} cannot be {str(value)[:100]!r}")
        checked[name] = value
    user = checked.get("user_id")
    if user is not None and user != identity.username:
        raise HttpError(
            400,
            "bad_request",
            f"user_id property set to '{user}' but authenticated user was '{identity.username}'",
        )
    return checked


def ttl_of(expiration: str | None) -> int:
    """Milliseconds, 0 = none. Raises HttpError."""
    if expiration is None:
        return 0
    if not (expiration.isascii() and expiration.isdigit() and len(expiration) <= 10):
        raise HttpError(400, "bad_request", f"expiration is milliseconds as text, not '{expiration[:100]}'")
    return min(max(int(expiration), 1), _TTL_MAX)
