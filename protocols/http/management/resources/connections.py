"""/api/connections, /api/channels, /api/consumers: list, show, close.

GET /api/closed-connections: those of clients that ended last, with the reason, the newest first:

    {"name": N, "user": U, "vhost": V, "protocol": "mqtt50", "connected_at": MS, "closed_at": MS,
     "reason": TEXT}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management import views
from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.management.plots import add_samples
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.protocols.listening.registry import Live
from penstock.protocols.net.connection_context import Closed
from penstock.protocols.net.connection_info import ChannelInfo

if TYPE_CHECKING:
    from penstock.protocols.http.management.resources.slow_consumers import SlowConsumers

__all__ = ["add"]

_NEVER_S: Final = 1e12
"""Seconds since the epoch that no clock shows."""


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Connections(api)
    routes = api.app.routes
    for path in ("/api/connections", "/api/vhosts/{vhost}/connections"):
        routes.add("GET", path, api.answers.shared(handlers.index))
    routes.add("GET", "/api/connections/{name}", api.answers.shared(handlers.show))
    routes.add("DELETE", "/api/connections/{name}", handlers.close)
    routes.add("GET", "/api/connections/{name}/channels", handlers.channels_of)
    routes.add("GET", "/api/connections/{name}/sessions", handlers.sessions_of)
    routes.add("GET", "/api/connections/username/{user}", handlers.of_user)
    routes.add("DELETE", "/api/connections/username/{user}", handlers.close_of_user)
    routes.add("GET", "/api/closed-connections", handlers.closed)
    for path in ("/api/channels", "/api/vhosts/{vhost}/channels"):
        routes.add("GET", path, api.answers.shared(handlers.channels))
    routes.add("GET", "/api/channels/{name}", api.answers.shared(handlers.channel))
    for path in ("/api/consumers", "/api/consumers/{vhost}"):
        routes.add("GET", path, handlers.consumers)
    routes.add("GET", "/api/slow-consumers", handlers.slow_consumers)


class _Connections:
    def __init__(self, api: Management) -> None:
        self._api = api
        self._slow: SlowConsumers | None = None

    def _seen(self, request: Request) -> list[Live]:
        """Connections the user may see: its own, or all with the tag for it."""
        api = self._api
        lives = api.registry.connections()
        if "vhost" in request.names:
            vhost = api.vhost(request).name
            lives = [live for live in lives if live.info.vhost == vhost]
        return api.seen(request, lives)

    def _live(self, request: Request) -> Live:
        for live in self._seen(request):
            if live.name == request.names["name"]:
                return live
        raise absent()

    async def index(self, request: Request) -> Response:
        return await self._reply(request, self._seen(request))

    async def _reply(self, request: Request, lives: Sequence[Live]) -> Response:
        return await reply_list(
            request, lives, lambda live: views.connection(self._api, live), lambda live: (live.name,)
        )

    async def show(self, request: Request) -> Response:
        live = self._live(request)
        shown = views.connection(self._api, live)
        add_samples(request, "data_rates", shown, views.connection_curve(self._api, live))
        return one_of(request, shown)

    async def close(self, request: Request) -> Response:
        self._close(request, self._live(request))
        return Response(204)

    def _close(self, request: Request, live: Live) -> None:
        if live.info.user != self._api.identity(request).username:
            self._api.require(request)
        # A header of a browser has no other letters than those of Latin-1.
        told = request.parameter("reason") or request.headers.get("x-reason")
        reason = told or "Closed via management plugin"
        live.connection.force_close(reason[:200])
        self._api.broker.tick.schedule()

    async def of_user(self, request: Request) -> Response:
        user = request.names["user"]
        return await self._reply(request, [one for one in self._seen(request) if one.info.user == user])

    async def close_of_user(self, request: Request) -> Response:
        for live in self._seen(request):
            if live.info.user == request.names["user"]:
                self._close(request, live)
        return Response(204)

    async def closed(self, request: Request) -> Response:
        api = self._api
        username, sees_all = api.identity(request).username, api.sees_all(request)
        rows = [one for one in api.registry.closed() if sees_all or one.user == username]
        return await reply_list(request, rows, _shown_closed, _newest_first, is_sorted=True)

    # Channels and consumers

    async def channels_of(self, request: Request) -> Response:
        return await self._reply_channels(request, [self._live(request)])

    async def sessions_of(self, request: Request) -> Response:
        sessions = self._live(request).info.sessions
        return await reply_list(request, sessions, asdict, lambda one: (str(one.channel_number),))

    async def channels(self, request: Request) -> Response:
        return await self._reply_channels(request, self._seen(request))

    async def _reply_channels(self, request: Request, lives: Sequence[Live]) -> Response:
        rows: list[tuple[Live, ChannelInfo]] = [
            (live, channel) for live in lives for channel in live.info.channels
        ]
        return await reply_list(
            request,
            rows,
            lambda row: views.channel(self._api, *row),
            lambda row: (f"{row[0].name} ({row[1].number})",),
        )

    async def channel(self, request: Request) -> Response:
        for live in self._seen(request):
            for channel in live.info.channels:
                if f"{live.name} ({channel.number})" == request.names["name"]:
                    shown = views.channel(self._api, live, channel)
                    curve = views.channel_curve(self._api, live, channel)
                    add_samples(request, "msg_rates", shown["message_stats"], curve)
                    return one_of(request, shown)
        raise absent()

    async def consumers(self, request: Request) -> Response:
        api = self._api
        shown = []
        visible = {vhost.name for vhost in api.vhosts(request)}
        for live in api.registry.connections():
            if live.info.vhost not in visible:
                continue
            shown += [views.consumer(api, live, number, one) for number, one in views.consumers_of(live)]
        return await reply_list(
            request, shown, lambda item: item, lambda item: (item["queue"]["name"], item["consumer_tag"])
        )

    async def slow_consumers(self, request: Request) -> Response:
        if self._slow is None:
            # Here: a start has no use for it.
            from penstock.protocols.http.management.resources.slow_consumers import SlowConsumers

            self._slow = SlowConsumers(self._api)
        return await self._slow.index(request)


def _newest_first(one: Closed) -> tuple[str, str]:
    """A key by which the connection that ended last is the first one."""
    return f"{_NEVER_S - one.closed_at:020.6f}", one.name


def _shown_closed(one: Closed) -> dict[str, object]:
    return {
        "name": one.name,
        "user": one.user,
        "vhost": one.vhost,
        "protocol": one.spoken,
        "connected_at": int(one.opened_at * 1000),
        "closed_at": int(one.closed_at * 1000),
        "reason": one.reason,
    }
