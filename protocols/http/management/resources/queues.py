"""/api/queues: list, show, declare, delete, purge, bindings."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management import views
from penstock.protocols.http.management.bodies import ARGUMENTS, Body, Choice, Flag
from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.management.plots import add_samples
from penstock.protocols.http.management.sorted_queues import name_of_queue
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lag import heads_known
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.router.errors import InUse, NotEmpty
from penstock.router.exchanges.entries import session_of

if TYPE_CHECKING:
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.vhost.vhost import Vhost

__all__ = ["ACTION", "QUEUE", "add"]

QUEUE: Final = Body(
    {"durable": Flag(), "auto_delete": Flag(), "arguments": ARGUMENTS},
    description="As it is, if it is there.",
)
ACTION: Final = Body({"action": Choice(("sync", "cancel_sync"))}, "action")


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Queues(api)
    routes = api.app.routes
    for path in ("/api/queues", "/api/queues/detailed", "/api/queues/{vhost}"):
        routes.add("GET", path, api.answers.shared(handlers.index))
    routes.add("GET", "/api/queues/{vhost}/{name}", api.answers.shared(handlers.show))
    routes.add("PUT", "/api/queues/{vhost}/{name}", handlers.declare)
    routes.add("DELETE", "/api/queues/{vhost}/{name}", handlers.delete)
    routes.add("DELETE", "/api/queues/{vhost}/{name}/contents", handlers.purge)
    routes.add("GET", "/api/queues/{vhost}/{name}/bindings", handlers.bindings)
    routes.add("POST", "/api/queues/{vhost}/{name}/actions", handlers.act)
    routes.add("POST", "/api/rebalance/queues", handlers.rebalance)


class _Queues:
    def __init__(self, api: Management) -> None:
        self._api = api
        self._keys = views.queue_keys(api)

    async def index(self, request: Request) -> Response:
        api, vhosts = self._api, self._api.vhosts(request)
        entries = await api.queues.of(vhosts)
        for vhost in vhosts:
            await heads_known(api.broker.log, [entry.queue for entry in vhost.subscriptions.entries.values()])
        head_published_ms = api.heads.of_request()
        return await reply_list(
            request,
            entries,
            lambda entry: views.queue(api, entry, head_published_ms),
            name_of_queue,
            is_sorted=True,
            keys=self._keys,
        )

    def _entry(self, request: Request) -> QueueEntry:
        entry = self._api.vhost(request).listed(request.names["name"])
        if entry is None:
            raise absent()
        return entry

    async def show(self, request: Request) -> Response:
        api, entry = self._api, self._entry(request)
        await heads_known(api.broker.log, [entry.queue])
        shown = views.queue(api, entry, api.heads.of_request())
        shown["consumer_details"] = [
            views.consumer(api, live, number, consumer)
            for live in api.registry.connections()
            if live.info.vhost == entry.queue.vhost
            for number, consumer in views.consumers_of(live)
            if consumer.queue == entry.listed_name
        ]
        shown["message_stats"] = deepcopy(shown["message_stats"])  # queues that are still share theirs
        counters, lengths = views.queue_curves(api, entry)
        add_samples(request, "msg_rates", shown["message_stats"], counters)
        add_samples(request, "lengths", shown, *lengths)
        shown["deliveries"] = []
        shown["incoming"] = []
        return one_of(request, shown)

    async def declare(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        body = QUEUE.read(await request.json())
        name = request.names["name"]
        known = name in vhost.queues
        declared = vhost.declare_queue(
            name,
            api.actor(request),
            **body,
        )
        await api.kept(declared.lsn)
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        name = request.names["name"]
        if name not in vhost.queues:
            return await self._end_session(request, vhost, name)
        deleted = vhost.delete_queue(
            name,
            api.actor(request),
            if_unused=request.flag("if-unused"),
            if_empty=request.flag("if-empty"),
        )
        await api.kept(deleted.lsn)
        return Response(204)

    async def _end_session(self, request: Request, vhost: Vhost, name: str) -> Response:
        """The queue of an MQTT session, by its listed name: the session ends, whoever it belongs to."""
        client_id = session_of(name)
        session = None if client_id is None else vhost.sessions.get(client_id)
        if session is None:
            raise absent()
        api = self._api
        api.require(request)
        if request.flag("if-unused") and session.queue.consumer_count:
            raise InUse("queue", name, vhost.name)
        if request.flag("if-empty") and session.queue.ready_count:
            raise NotEmpty(name, vhost.name)
        await api.kept(api.broker.end_session(vhost, session.name))
        return Response(204)

    async def purge(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        if request.names["name"] not in vhost.queues:
            raise absent()
        vhost.queue(request.names["name"], api.actor(request)).purge()
        api.broker.tick.schedule()
        return Response(204)

    async def bindings(self, request: Request) -> Response:
        entry, vhost = self._entry(request), self._api.vhost(request)
        rows: list[views.Bound] = [entry] if entry.kind == "queue" else []
        rows += [views.BindingRow.of(binding, vhost.name) for binding in entry.bindings]
        if entry.kind == "session":
            rows += views.session_bindings(entry, vhost)
        shown = [views.binding(row) for row in rows]
        return await reply_list(
            request, shown, lambda item: item, lambda item: (item["source"], item["properties_key"])
        )

    async def act(self, request: Request) -> Response:
        """Synchronising mirrors: one node has none, so there is nothing to do."""
        self._api.vhost(request, change=True)
        self._entry(request)
        ACTION.read(await request.json())
        return Response(204)

    async def rebalance(self, request: Request) -> Response:
        """Spreading leaders over nodes: one node has nothing to spread."""
        self._api.require(request)
        return Response(204)
