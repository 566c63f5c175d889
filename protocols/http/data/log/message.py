"""GET log/messages/ID: one message of the log, with its path as far as it is known.

    ?queue=Q         for who may read the queue, and not the exchange
    ?cursor=C        goes on with what happened later: only `events` and `attempts` then

    {"message": {...}, "publisher": {"at", "detail": PROTOCOL, "user", "connection"} | null,
     "places": [{"name": QUEUE, "kind": "queue", "state": "ready" | "out" | "done" | "kept"}],
     "events": [{"at", "kind", "queue", "detail", ...}], "attempts": [...],
     "recorded": [KIND, ...], "cursor": C}

Places and their states are known without events: cursors tell. Publisher and events are there if events were
kept when it happened (`events.kinds`, or a recording); names of connections and users are for the tags
administrator and monitoring, and for who it was. Attempts are those of webhooks that the user may steer.
Events and attempts stand in the log behind the message, so a request looks for them a second at most, and
`cursor` goes on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.log_core.batch._batch import EVENTS, MQTT5, Record
from penstock.log_core.history._content import Content
from penstock.log_core.history.content_search import SearchLimits
from penstock.protocols.http.data.live.sse import position_of
from penstock.protocols.http.data.log.recorded_events import RecordedEvent, events_of, needle, publish_of
from penstock.protocols.http.data.log.search_scope import SearchScope
from penstock.protocols.http.data.log.searching import Everything, look
from penstock.protocols.http.data.pulling.pull import shown_record
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.positions import offset_at
from penstock.protocols.http.shared.readers_of_feeds import kind_of, readers_of
from penstock.protocols.http.webhooks.belongings import attempts_queue
from penstock.router.errors import AccessRefused
from penstock.subscriptions.cursor import _events as kept_events
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.webhooks.service import Webhooks
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["LogMessage"]

_TURN: Final = 1 << 18
"""Positions behind a message among which the events of its turn are."""
_ONE: Final = SearchLimits(1 << 30, 5.0)
_REST: Final = SearchLimits(1 << 30, 1.0)
_ITEMS_MAX: Final = 1000
_SEES_NAMES: Final = frozenset({"administrator", "monitoring"})


class LogMessage:
    """The handler."""

    def __init__(self, access: Access, webhooks: Webhooks) -> None:
        self._access = access
        self._webhooks = webhooks

    async def show(self, request: Request) -> Response:
        """One message."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        lsn = position_of(request.names["message"])
        body = {"queue": queue} if (queue := request.parameter("queue")) else {}
        scope = SearchScope(access.broker, identity, vhost, body)
        record = await self._record(lsn, scope)
        since = max(position_of(cursor), lsn) if (cursor := request.parameter("cursor")) else lsn
        answer: dict[str, Any] = {}
        if since == lsn:
            answer["message"] = self._shown(record)
            publisher = await self._publisher(vhost, record)
            answer["publisher"] = None if publisher is None else self._of(identity, publisher)
            answer["places"] = await self._places(vhost, record)
        answer |= await self._later(vhost, identity, lsn, since)
        answer["recorded"] = list(kept_events.kept())
        return json_response(answer)

    def _shown(self, record: Record) -> dict[str, Any]:
        item = shown_record(self._access, record)
        item["protocol"] = "mqtt" if record.enc == MQTT5 else "amqp"
        if record.enc == MQTT5:
            item["topic"] = record.key.decode("utf-8", "replace")
        if record.ttl:
            item["expires_at"] = record.ts + record.ttl
        return item

    def _of(self, identity: Identity, event: RecordedEvent) -> dict[str, Any]:
        """An event, for this user."""
        return event.shown(names=bool(identity.tags & _SEES_NAMES) or event.user == identity.username)

    async def _record(self, lsn: int, scope: SearchScope) -> Record:
        found: list[Record] = []
        span = lsn, min(lsn + 1, self._access.broker.log.appender.next_lsn)

        def take(one: Record) -> bool:
            found.append(one)
            return True

        await look(self._access, span, scope, Content(feeds=scope.feeds), _ONE, take)
        if not found:
            raise HttpError(404, "not_found", f"no message 0:{lsn} in the log that you may read")
        return found[0]

    async def _publisher(self, vhost: Vhost, record: Record) -> RecordedEvent | None:
        found: list[RecordedEvent] = []

        def take(one: Record) -> bool:
            event = publish_of(one, record.lsn)
            if event is not None and event.vhost == vhost.name:
                found.append(event)
            # Its turn ends with the first record of events behind it.
            return False

        end = min(record.lsn + _TURN, self._access.broker.log.appender.next_lsn)
        await look(self._access, (record.lsn, end), Everything(EVENTS), Content(), _ONE, take)
        return found[0] if found else None

    # Where it went

    async def _places(self, vhost: Vhost, record: Record) -> list[dict[str, Any]]:
        found = []
        async for entry in readers_of(vhost, frozenset(record.feeds), record.lsn):
            queue = entry.queue
            if isinstance(queue, Stream):
                offset = await offset_at(queue, record.lsn)
                state = "kept" if offset < await offset_at(queue, record.lsn + 1) else "done"
            else:
                state = queue.cursor.fate(record.lsn)
            found.append({"name": entry.listed_name, "kind": kind_of(entry), "state": state})
        return found

    # Its fate

    async def _later(self, vhost: Vhost, identity: Identity, lsn: int, since: int) -> dict[str, Any]:
        end = self._access.broker.log.appender.next_lsn
        events: list[tuple[int, dict[str, Any]]] = []
        attempts: list[tuple[int, dict[str, Any]]] = []

        def note(one: Record) -> bool:
            if len(events) >= _ITEMS_MAX:
                return False
            here = [event for event in events_of(one, lsn) if event.vhost == vhost.name]
            events.extend((one.lsn, self._of(identity, event)) for event in here)
            return True

        def attempted(one: Record) -> bool:
            entry = orjson.loads(one.body)
            if lsn in entry["positions"]:
                attempts.append((one.lsn, entry))
            return len(attempts) < _ITEMS_MAX

        looks = [
            look(self._access, (since, end), Everything(EVENTS), Content(body=needle(lsn)), _REST, note),
        ]
        if feeds := self._attempts(vhost, identity):
            content = Content(body=b"%d" % lsn, feeds=feeds)
            looks.append(look(self._access, (since, end), Everything(vhost.lp), content, _REST, attempted))
        reached = min(one.lsn for one in await asyncio.gather(*looks))
        told: dict[str, Any] = {
            "events": [one for at, one in events if at < reached],
            "attempts": [one for at, one in attempts if at < reached],
        }
        return told | ({"cursor": f"0:{reached}"} if reached < end else {})

    def _attempts(self, vhost: Vhost, identity: Identity) -> list[int]:
        """The feeds of the delivery logs of webhooks that the user may steer."""
        feeds = []
        for worker in self._webhooks.of(vhost):
            name = worker.webhook.name
            entry = vhost.queues.get(attempts_queue(name))
            try:
                self._webhooks.permit(identity, vhost, name)
            except AccessRefused:
                continue
            if entry is not None and isinstance(entry.queue, Stream):
                feeds.append(entry.queue.feed.id)
        return feeds
