"""GET .../ws: publish, consume and tail over one WebSocket, in JSON; subprotocol `penstock.v1.json`.

    {"do": "subscribe", "id": ID, ...}      what is wanted is one of
        "exchange": X, "pattern": K          what passes an exchange; nothing is acknowledged
        "topic": FILTER                      what is published to MQTT topics
        "stream": S, "from": F               a stream; these three take "after": the id of a message
        "events": "log,webhooks"             what the gateway itself has to say (`events`)
        "queue": Q, "credit": N              a queue, to be acknowledged; N until there is more credit
        "stream": S, "subscription": N, "consumer": C, "credit": N
    {"do": "credit", "id": ID, "messages": N}
    {"do": "ack" | "nack", "id": ID, "tags": [...], "dead_letter": false}
    {"do": "unsubscribe", "id": ID}          what it holds goes back
    {"do": "publish", "ref": R, "exchange" | "queue" | "stream": NAME, "messages": [...], "ack": "fsync"}

    {"type": "subscribed" | "unsubscribed", "id": ID}
    {"type": "message", "id": ID, "tag": T, "message": {...}}     as pull and tail show it
    {"type": "event", "id": ID, "about": "log" | "webhooks", "event": {...}}
    {"type": "lagging", "id": ID, "skipped": N}
    {"type": "void", "id": ID}               tags so far are void: the subscription goes on elsewhere
    {"type": "ended", "id": ID, "reason": ...}
    {"type": "published", "ref": R, "results": [...]}
    {"type": "error", "ref" | "id": ..., "code": ..., "detail": ...}

Requests of a client are handled in order; a publish is answered before the next thing is done. Nothing is
sent while the client does not take it: a tail drops the surplus (`tail`), a consumer has no credit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.live.events import kinds_of
from penstock.protocols.http.data.live.sse import position_of
from penstock.protocols.http.data.live.tail import pattern_of
from penstock.protocols.http.data.publishing.bodies import MESSAGES_MAX, message_of
from penstock.protocols.http.data.publishing.destinations import Destination
from penstock.protocols.http.data.publishing.publish import ACKS
from penstock.protocols.http.data.pulling.pull import shown
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps, parsed
from penstock.protocols.http.shared.fields import Whole, number_of, object_of
from penstock.protocols.http.shared.keys import Keyed
from penstock.protocols.http.shared.positions import offset_at
from penstock.protocols.http.shared.taking import Delivery, each_delivery
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.subscriptions.errors import ConsumerRefused, QueueGone
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.data.live.events import Events, EventTail
    from penstock.protocols.http.data.live.tail import Tail, Tails
    from penstock.protocols.http.data.publishing.publish import Publisher
    from penstock.protocols.http.data.pulling.reader import StreamReader
    from penstock.protocols.http.server.wire.websocket import WsSession
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["SUBPROTOCOL", "Sockets"]

SUBPROTOCOL: Final = "penstock.v1.json"
_SUBSCRIPTIONS_MAX: Final = 100
_CREDIT: Final = Whole(100, 0, 10_000)
_ID_MAX: Final = 100
_POLICY: Final = 1008
"""RFC 6455 7.4.1: a message, or whoever it is from, violates a policy."""

Fields = dict[str, Any]


class Sockets:
    """The handler."""

    def __init__(
        self, access: Access, publisher: Publisher, tails: Tails, reader: StreamReader, events: Events
    ) -> None:
        self.access = access
        self.publisher = publisher
        self.tails = tails
        self.reader = reader
        self.events = events

    async def connect(self, request: Request) -> Response:
        """Begin a conversation."""
        from penstock.protocols.http.server.wire.websocket import accept  # here: few connections have one

        self.access.vhost(request)
        return Response(101, conversation=_Talk(self, request, accept(request, SUBPROTOCOL)))


class _Talk:
    """One conversation."""

    is_binary = False

    def __init__(self, sockets: Sockets, request: Request, handshake: bytes) -> None:
        self.handshake = handshake
        self.session: WsSession
        self.sockets = sockets
        self.request = request
        self._heard: dict[str | int, _Listener | _Consumer] = {}
        self._verbs: dict[str, Callable[[Fields], Any]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "credit": self._credit,
            "ack": self._settle,
            "nack": self._settle,
            "publish": self._publish,
        }

    async def run(self, session: WsSession) -> None:
        """See `Conversation`."""
        self.session = session
        self.request.on_gone = self._refused
        try:
            with self.sockets.access.watched(self.request, self._recheck):
                while (text := await session.receive_text()) is not None:
                    await self._handle(text)
        finally:
            for one in list(self._heard.values()):
                one.close()

    def writable(self) -> None:
        """See `Conversation`."""
        for one in list(self._heard.values()):
            one.flow()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        self.session.send_text(dumps({"type": kind, **fields}))

    def ended(self, id: str | int, reason: str) -> None:
        """A subscription is over, and not because the client said so."""
        if self._heard.pop(id, None) is not None:
            self.send("ended", id=id, reason=reason)

    def _refused(self) -> None:
        """The login has ended, and all that goes on by it."""
        if self.request.refusal is not None:
            self.session.close(_POLICY, self.request.refusal.detail)

    def _recheck(self, _: Request) -> None:
        for id, one in list(self._heard.items()):
            try:
                one.check()
            except (PenstockError, HttpError) as error:
                one.close()
                self.ended(id, str(error))

    async def _handle(self, text: str) -> None:
        place: Fields = {}
        try:
            fields = object_of(parsed(text.encode("utf-8", "surrogatepass")))
            place = {name: fields[name] for name in ("id", "ref") if name in fields}
            do = fields.pop("do", None)
            verb = self._verbs.get(do) if isinstance(do, str) else None
            if verb is None:
                raise HttpError(400, "bad_field", f"do is one of {', '.join(self._verbs)}")
            await verb({**fields, "do": do})
        except HttpError as error:
            self.send("error", **place, code=error.code, detail=error.detail)
        except PenstockError as error:
            told = self.sockets.access.app.translate(error)
            self.send("error", **place, code=told.code, detail=told.detail)

    # Verbs

    async def _subscribe(self, fields: Fields) -> None:
        id = _id_of(fields)
        if id in self._heard:
            raise HttpError(409, "subscription_busy", f"id {id!r} is in use: unsubscribe first")
        if len(self._heard) >= _SUBSCRIPTIONS_MAX:
            raise HttpError(
                413, "too_many_subscriptions", f"a connection has at most {_SUBSCRIPTIONS_MAX} of them"
            )
        if "queue" in fields or "subscription" in fields:
            one: _Listener | _Consumer = self._consumer(id, fields)
        else:
            one = await self._listener(id, fields)
        self._heard[id] = one
        self.send("subscribed", id=id)
        one.flow()

    async def _listener(self, id: str | int, fields: Fields) -> _Listener:
        sockets, request = self.sockets, self.request
        vhost, identity = sockets.access.vhost(request), sockets.access.identity(request)
        after = position_of(fields["after"]) if "after" in fields else 0
        listener = _Listener(self, id)
        if "events" in fields:
            kinds = kinds_of(_text(fields, "events"))
            listener.tail = sockets.events.listen(identity, vhost.name, kinds, listener.flow)
            listener.check = partial(sockets.events.check, identity, kinds)
            return listener
        if "stream" in fields:
            name = _text(fields, "stream")
            stream = sockets.access.stream_named(request, name)
            if after:
                offset = await offset_at(stream, after + 1)
            else:
                offset = await sockets.reader.offset(stream, _text(fields, "from", "next"))
            listener.tail = sockets.tails.stream(stream, offset, listener.flow)
            listener.check = partial(sockets.access.stream_named, request, name)
            return listener
        if "topic" in fields:
            exchange, pattern = MQTT_EXCHANGE, pattern_of(_text(fields, "topic"))
        else:
            exchange, pattern = _text(fields, "exchange"), _text(fields, "pattern", "#")
        listener.tail = sockets.tails.exchange(
            identity, vhost, exchange, pattern, listener.flow, since=f"pos:{after + 1}" if after else ""
        )
        listener.check = partial(sockets.tails.check, identity, vhost, exchange, pattern)
        return listener

    def _consumer(self, id: str | int, fields: Fields) -> _Consumer:
        access, request = self.sockets.access, self.request
        credit = number_of(fields, "credit", _CREDIT)
        name = _text(fields, "consumer", str(id))
        if "queue" in fields:
            queue = access.queue_named(request, _text(fields, "queue"))
            if isinstance(queue, Stream):
                raise HttpError(409, "wrong_mode", "a stream has no messages to acknowledge: see stream")
            check: Callable[[], object] = partial(access.queue_named, request, queue.name)
        else:
            stream = access.stream_named(request, _text(fields, "stream"))
            queue = access.vhost(request).subscriptions.get(stream.name, _text(fields, "subscription"))
            check = partial(access.stream_named, request, stream.name)
        consumer = _Consumer(self, id, queue, name, credit, check)
        try:
            queue.attach(consumer)
        except ConsumerRefused as error:
            raise HttpError(409, "subscription_busy", error.message) from error
        except QueueGone as error:
            raise HttpError(404, "not_found", error.message) from error
        return consumer

    async def _unsubscribe(self, fields: Fields) -> None:
        id = _id_of(fields)
        one = self._heard.pop(id, None)
        if one is None:
            raise HttpError(404, "not_found", f"there is no subscription with id {id!r}")
        one.close()
        self.send("unsubscribed", id=id)

    def _consumer_of(self, fields: Fields) -> _Consumer:
        found = self._heard.get(_id_of(fields))
        if not isinstance(found, _Consumer):
            raise HttpError(404, "not_found", "there is no subscription of a queue with this id")
        return found

    async def _credit(self, fields: Fields) -> None:
        self._consumer_of(fields).add_credit(number_of(fields, "messages", _CREDIT))

    async def _settle(self, fields: Fields) -> None:
        consumer, tags = self._consumer_of(fields), fields.get("tags")
        if not isinstance(tags, list) or not all(isinstance(tag, int) for tag in tags):
            raise HttpError(400, "bad_field", "tags is a list of numbers, as messages had them")
        how = Delivery.settle
        if fields["do"] == "nack":
            how = Delivery.reject if fields.get("dead_letter") is True else Delivery.requeue
        stale = consumer.settle(tags, how)
        if stale:
            raise HttpError(409, "stale_handle", f"tags that are not out (any more): {stale[:10]}")

    async def _publish(self, fields: Fields) -> None:
        access = self.sockets.access
        vhost, identity = access.vhost(self.request), access.identity(self.request)
        items, ack = fields.get("messages"), fields.get("ack", "fsync")
        if not isinstance(items, list) or len(items) > MESSAGES_MAX:
            raise HttpError(400, "bad_field", f"messages is a list of at most {MESSAGES_MAX} messages")
        if ack not in ACKS:
            raise HttpError(400, "bad_field", f"ack is one of {', '.join(ACKS)}")
        access.accepting(vhost, identity)
        if "exchange" in fields:
            exchange = _text(fields, "exchange")
            way = Destination(
                identity, vhost, "" if exchange == "amq.default" else exchange, "", False, False
            )
        else:
            name = _text(fields, "stream" if "stream" in fields else "queue")
            way = Destination(identity, vhost, "", name, True, True)
        messages = [message_of(item, f"messages[{at}]") for at, item in enumerate(items)]
        results = await self.sockets.publisher.publish(way, messages, ack)
        self.send("published", **({"ref": fields["ref"]} if "ref" in fields else {}), results=results)


class _Listener:
    """A subscription without acknowledgements."""

    def __init__(self, talk: _Talk, id: str | int) -> None:
        self._talk = talk
        self._id = id
        self.tail: Tail | EventTail | None = None
        self.check: Callable[[], object] = lambda: None

    def flow(self) -> None:
        """Send what there is, as far as there is room."""
        tail, talk = self.tail, self._talk
        if tail is None:
            return  # it is just being made
        while talk.session.is_writable and (delivery := tail.take()) is not None:
            if isinstance(delivery, tuple):
                talk.send("event", id=self._id, about=delivery[0], event=parsed(delivery[1]))
                continue
            talk.sockets.access.messages.delivered += 1
            talk.send("message", id=self._id, message=shown(talk.sockets.access, delivery))
        if tail.skipped and not tail.pending:
            skipped, tail.skipped = tail.skipped, 0
            talk.send("lagging", id=self._id, skipped=skipped)
        if tail.ended and not tail.pending:
            self.close()
            talk.ended(self._id, tail.ended)

    def close(self) -> None:
        """It is over."""
        if self.tail is not None:
            self.tail.close()


class _Consumer(Keyed):
    """A subscription with acknowledgements: a consumer of its queue."""

    def __init__(
        self,
        talk: _Talk,
        id: str | int,
        queue: Queue,
        name: str,
        credit: int,
        check: Callable[[], object],
    ) -> None:
        super().__init__(name, talk.sockets.access.messages)
        self._talk = talk
        self._id = id
        self._queue = queue
        self._left = credit
        self._out: dict[int, Delivery] = {}
        self._next = 1
        self.check = check

    # The queue's

    def credit(self) -> int:
        return self._left if self._talk.session.is_writable else 0

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        access = self._talk.sockets.access
        took = 0
        items = each_delivery(self._queue, cursor, first, step)
        while self._left > 0 and (delivery := next(items, None)) is not None:
            tag, self._next = self._next, self._next + 1
            self._out[tag] = delivery
            self._left -= 1
            took += 1
            self._talk.send("message", id=self._id, tag=tag, message=shown(access, delivery))
        access.messages.delivered += took
        return took

    def void(self) -> None:
        """Its deliveries are void."""
        self._out.clear()
        self._talk.send("void", id=self._id)

    def cancelled(self, reason: str) -> None:
        self._out.clear()
        self._talk.ended(self._id, reason)

    # The conversation's

    def flow(self) -> None:
        """There may be room for more."""
        if not self._queue.deleted:
            self._queue.credit_gained(self)

    def add_credit(self, messages: int) -> None:
        """The client takes more."""
        self._left = min(self._left + messages, _CREDIT.most)
        self.flow()

    def settle(self, tags: list[int], how: Callable[[Delivery], None]) -> list[int]:
        """The fate of deliveries; those that are not out."""
        stale = []
        for tag in tags:
            delivery = self._out.pop(tag, None)
            if delivery is None or delivery.is_void:
                stale.append(tag)
                continue
            how(delivery)
        self.flow()
        self._talk.sockets.access.broker.tick.schedule()
        return stale

    def close(self) -> None:
        """It is over: what it holds goes back."""
        self.settle(list(self._out), Delivery.requeue)
        self._queue.detach(self)


def _id_of(fields: Fields) -> str | int:
    id = fields.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int) or len(str(id)) > _ID_MAX:
        raise HttpError(400, "bad_field", f"id is a number or a text of at most {_ID_MAX} characters")
    return id


def _text(fields: Fields, name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise HttpError(400, "bad_field", f"{name} is missing, or no text")
    return value
