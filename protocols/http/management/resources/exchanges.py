"""/api/exchanges and /api/bindings: list, show, declare, delete, bind, unbind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from penstock.log_core.batch._batch import AMQP091
from penstock.protocols.http.management import views
from penstock.protocols.http.management.bodies import ARGUMENTS, Body, Flag, Table, Text
from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.lists import gathered, one_of, reply_list, sorted_in_parts
from penstock.protocols.http.shared.readers_of_feeds import kind_of, readers_of
from penstock.router.exchanges.exchanges import DELAYED_TYPE, TYPES, Exchange
from penstock.router.names import join_key_block
from penstock.router.vhost.vhost import Vhost

__all__ = ["BINDING", "EXCHANGE", "ROUTED", "add", "exchange_name"]

EXCHANGE: Final = Body(
    {
        "type": Text("direct", options=(*TYPES, DELAYED_TYPE)),
        "durable": Flag(),
        "auto_delete": Flag(),
        "internal": Flag(),
        "arguments": ARGUMENTS,
    },
    description="As it is, if it is there.",
)
_KEY: Final = Text("", most=255, description="At most 255 bytes.")
BINDING: Final = Body({"routing_key": _KEY, "arguments": ARGUMENTS})
ROUTED: Final = Body({"routing_key": _KEY, "headers": Table()})

_DEFAULT = "amq.default"


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Exchanges(api)
    routes = api.app.routes
    for path in ("/api/exchanges", "/api/exchanges/{vhost}"):
        routes.add("GET", path, api.answers.shared(handlers.index))
    routes.add("GET", "/api/exchanges/{vhost}/{name}", api.answers.shared(handlers.show))
    routes.add("POST", "/api/exchanges/{vhost}/{name}/route", handlers.route)
    routes.add("PUT", "/api/exchanges/{vhost}/{name}", handlers.declare)
    routes.add("DELETE", "/api/exchanges/{vhost}/{name}", handlers.delete)
    routes.add("GET", "/api/exchanges/{vhost}/{name}/bindings/source", handlers.from_it)
    routes.add("GET", "/api/exchanges/{vhost}/{name}/bindings/destination", handlers.to_it)
    for path in ("/api/bindings", "/api/bindings/{vhost}"):
        routes.add("GET", path, handlers.bindings)
    ends = "/api/bindings/{vhost}/e/{source}/%s/{destination}"
    for kind in ("q", "e"):
        path = ends % kind
        routes.add("GET", path, getattr(handlers, f"between_{kind}"))
        routes.add("POST", path, getattr(handlers, f"bind_{kind}"))
        routes.add("GET", path + "/{props}", getattr(handlers, f"binding_{kind}"))
        routes.add("DELETE", path + "/{props}", getattr(handlers, f"unbind_{kind}"))


def exchange_name(name: str) -> str:
    """The name in a path: the default exchange has none of its own."""
    return "" if name == _DEFAULT else name


def _place(bound: views.Bound) -> tuple[str, str, str, str]:
    """The place of a binding in a list."""
    row = views.row_of(bound)
    return row.vhost, row.source, row.destination, views.properties_key(row.key, row.arguments)


_KEYS: Final[Mapping[str, Callable[[views.Bound], Any]]] = {
    "source": lambda bound: views.row_of(bound).source,
    "destination": lambda bound: views.row_of(bound).destination,
    "destination_type": lambda bound: views.row_of(bound).kind,
    "routing_key": lambda bound: views.row_of(bound).key,
}


class _Exchanges:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def index(self, request: Request) -> Response:
        rows = [
            (vhost.name, found) for vhost in self._api.vhosts(request) for found in vhost.exchanges.values()
        ]
        return await reply_list(
            request, rows, lambda row: views.exchange(row[1], row[0]), lambda row: (row[0], row[1].name)
        )

    async def route(self, request: Request) -> Response:
        """The places a message with this key and these headers would go to now; nothing is published."""
        vhost, found = self._exchange(request)
        body = ROUTED.read(await request.json())
        key, headers = body["routing_key"], body["headers"]
        try:
            block = join_key_block(found.name, key)
        except ValueError as error:
            raise HttpError(400, "bad_request", "a routing key has at most 255 bytes") from error
        delaying: list[str] = []
        route = vhost.route(None, AMQP091, block, headers, delaying)
        if route.error is not None:
            raise route.error
        feeds = frozenset(feed.id for feed in route.target.feeds)
        position = vhost.broker.log.appender.next_lsn
        places = [
            {"name": entry.listed_name, "kind": kind_of(entry)}
            async for entry in readers_of(vhost, feeds, position)
        ]
        return json_response({"routed": bool(places or delaying), "places": places, "delayed_by": delaying})

    def _exchange(self, request: Request, key: str = "name") -> tuple[Vhost, Exchange]:
        vhost = self._api.vhost(request)
        found = vhost.exchanges.get(exchange_name(request.names[key]))
        if found is None:
            raise absent()
        return vhost, found

    async def show(self, request: Request) -> Response:
        vhost, found = self._exchange(request)
        return one_of(request, {**views.exchange(found, vhost.name), "incoming": [], "outgoing": []})

    async def declare(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        body = EXCHANGE.read(await request.json())
        name = exchange_name(request.names["name"])
        known = name in vhost.exchanges
        lsn = vhost.declare_exchange(
            name,
            body.pop("type"),
            api.actor(request),
            **body,
        )
        await api.kept(lsn)
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        name = exchange_name(request.names["name"])
        if name not in vhost.exchanges:
            raise absent()
        await api.kept(vhost.delete_exchange(name, api.actor(request), if_unused=request.flag("if-unused")))
        return Response(204)

    # Bindings

    async def from_it(self, request: Request) -> Response:
        vhost, found = self._exchange(request)
        return await self._reply(request, await self._from(vhost, found))

    async def to_it(self, request: Request) -> Response:
        vhost, found = self._exchange(request)
        rows = [views.BindingRow.of(binding, vhost.name) for binding in found.incoming]
        return await self._reply(request, await sorted_in_parts(rows, _place))

    async def bindings(self, request: Request) -> Response:
        rows: list[views.Bound] = []
        for vhost in self._api.vhosts(request):
            for _, source in sorted(vhost.exchanges.items()):
                rows += await self._from(vhost, source)
        return await self._reply(request, rows)

    async def _from(self, vhost: Vhost, source: Exchange) -> Sequence[views.Bound]:
        """The bindings of an exchange, by `_place`; a queue stands for that to the default one."""
        if source.name == "":
            return await self._api.queues.bound_to_default(vhost)
        return await sorted_in_parts(await gathered(views.bindings_from(source, vhost)), _place)

    async def _reply(self, request: Request, rows: Sequence[views.Bound]) -> Response:
        """The list of these rows, which are sorted by `_place`."""
        return await reply_list(request, rows, views.binding, _place, is_sorted=True, keys=_KEYS)

    def _between(self, request: Request, kind: str) -> list[views.Bound]:
        vhost, source = self._exchange(request, "source")
        name = request.names["destination"]
        ends = vhost.queues if kind == "queue" else vhost.exchanges
        if name not in ends:
            raise absent()
        if source.name == "":
            entry = vhost.queues.get(name)
            return [entry] if entry is not None and kind == "queue" else []
        rows = views.bindings_from(source, vhost)
        return sorted((row for row in rows if (row.destination, row.kind) == (name, kind)), key=_place)

    async def between_q(self, request: Request) -> Response:
        return await self._reply(request, self._between(request, "queue"))

    async def between_e(self, request: Request) -> Response:
        return await self._reply(request, self._between(request, "exchange"))

    def _one(self, request: Request, kind: str) -> dict[str, Any]:
        props = request.names["props"]
        found = {shown["properties_key"]: shown for shown in map(views.binding, self._between(request, kind))}
        if props in found:
            return found[props]
        for key, shown in found.items():
            # A client may have sent the key as it is: in a path it was decoded once, as every name is.
            if views.decoded_key(key) == props:
                return shown
        raise absent()

    async def binding_q(self, request: Request) -> Response:
        return json_response(self._one(request, "queue"))

    async def binding_e(self, request: Request) -> Response:
        return json_response(self._one(request, "exchange"))

    async def _bind(self, request: Request, kind: str) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        body = BINDING.read(await request.json())
        key, arguments = body["routing_key"], body["arguments"]
        source, destination = exchange_name(request.names["source"]), request.names["destination"]
        bind = vhost.bind_queue if kind == "queue" else vhost.bind_exchange
        await api.kept(bind(destination, source, key, api.actor(request), arguments))
        props = views.properties_key(key, arguments)
        location = f"{quote(destination, safe='')}/{quote(props, safe='~')}"
        return Response(201, headers=(("location", location),))

    async def bind_q(self, request: Request) -> Response:
        return await self._bind(request, "queue")

    async def bind_e(self, request: Request) -> Response:
        return await self._bind(request, "exchange")

    async def _unbind(self, request: Request, kind: str) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        shown = self._one(request, kind)
        unbind = vhost.unbind_queue if kind == "queue" else vhost.unbind_exchange
        await api.kept(
            unbind(
                shown["destination"],
                shown["source"],
                shown["routing_key"],
                api.actor(request),
                shown["arguments"],
            )
        )
        return Response(204)

    async def unbind_q(self, request: Request) -> Response:
        return await self._unbind(request, "queue")

    async def unbind_e(self, request: Request) -> Response:
        return await self._unbind(request, "exchange")
