"""POST queues/Q/replay: messages of the past into a new queue, those that an exchange would bring it today.

    {"exchange": X, "routing_key": PATTERN | "topic": FILTER, "from": "-1h"}    {"queue": Q, "ready": 42}

It is a binding with `x-penstock-backfill`, which is taken back when the queue has what came before: from
then on nothing more comes. Rights are those of declaring and binding a queue. `POST log/search` with `count`
says beforehand how many messages it would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.http.data.live.tail import pattern_of
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import check_fields, object_of
from penstock.protocols.http.shared.positions import answer_of
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.queues.backfill import ARGUMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.protocols.http.data.access import Access
    from penstock.router.vhost.queue_methods import Bound

__all__ = ["LogReplay"]

_FIELDS: Final = ("exchange", "routing_key", "topic", "from")


class LogReplay:
    """The handler."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def replay(self, request: Request) -> Response:
        """Make the queue, and answer when it has all."""
        access, name = self._access, request.names["queue"]
        vhost, actor = access.vhost(request), access.actor(request)
        body = object_of(await request.json())
        check_fields(body, _FIELDS)
        for field in body:
            if field != "from" and not isinstance(body[field], str):
                raise HttpError(400, "bad_field", f"{field}: text")
        if ("topic" in body) is ("exchange" in body) or "from" not in body:
            raise HttpError(400, "bad_field", "from, and one of exchange and topic")
        exchange, key = body.get("exchange", MQTT_EXCHANGE), body.get("routing_key", "")
        if "topic" in body:
            key = pattern_of(body["topic"])
        if name in vhost.queues:
            raise HttpError(409, "inequivalent", f"queue '{name}' is there: a replay makes a new one")
        vhost.declare_queue(name, actor, durable=True)
        try:
            bound = vhost.bind_queue_since(name, exchange, key, actor, {ARGUMENT: body["from"]})
            await self._has_history(bound)
        except BaseException:
            if name in vhost.queues:
                vhost.delete_queue(name, actor)
            raise
        lsn = vhost.unbind_queue(name, exchange, key, actor)
        queue = vhost.queue(name, actor)
        await access.kept(lsn, "fsync")
        return json_response({"queue": name, "ready": queue.ready_count}, 201)

    async def _has_history(self, bound: Bound) -> None:
        if bound.history is None:
            return
        history = bound.history

        def ask(tell: Callable[[bool | None], None]) -> None:
            history(lambda ok: tell(ok or None))

        await answer_of(ask, self._access.broker.tick)
