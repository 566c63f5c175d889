"""Recording for a while: events of messages and connections, which say what became of each message.

    GET /api/recording      {"kinds": ["publish", "deliver"], "configured": [], "until": 1764300000000}
    PUT /api/recording      {"kinds": ["publish", "deliver", "ack"], "for_s": 600}

Afterwards those that `events.kinds` of the configuration names are kept again; with `for_s` 0 at once. A
restart ends it, too. Events cost work per message (docs/reference/spark.md), so administrators decide, and
the audit trail tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management.bodies import Body, Listed, Number
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response, dumps, json_response
from penstock.subscriptions.cursor import _events as events

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Timer

__all__ = ["RECORDING", "add"]

KINDS: Final = tuple(kind for kind in events.KINDS if kind != "gap")
RECORDING: Final = Body({"kinds": Listed(KINDS), "for_s": Number(0, 86_400, "0: end it.")}, "kinds", "for_s")


def add(api: Management) -> None:
    """Serve these paths."""
    recording = _Recording(api)
    api.app.routes.add("GET", "/api/recording", recording.show)
    api.app.routes.add("PUT", "/api/recording", recording.put)


class _Recording:
    def __init__(self, api: Management) -> None:
        self._api = api
        self._configured: tuple[str, ...] = ()
        """The kinds that are kept again afterwards; while one runs."""
        self._end: Timer | None = None
        self._until_ms = 0

    async def show(self, request: Request) -> Response:
        """The kinds that are kept now, and how long."""
        self._api.identity(request)
        return json_response(self._shown())

    def _shown(self) -> dict[str, object]:
        kept = list(events.kept())
        if self._end is None:
            return {"kinds": kept, "configured": kept, "until": None}
        return {"kinds": kept, "configured": list(self._configured), "until": self._until_ms}

    async def put(self, request: Request) -> Response:
        """Begin or end one. Raises HttpError 400, 403."""
        api = self._api
        api.require(request)
        body = RECORDING.read(await request.json())
        kinds, for_s = body["kinds"], body["for_s"]
        self._stop()
        if for_s:
            self._configured = events.kept()
            events.keep([*dict.fromkeys((*self._configured, *kinds))])
            self._until_ms = api.broker.log.wall_ms() + for_s * 1000
            self._end = api.broker.tick.after(for_s, self._stop)
        if api.forwarder is not None and not request.part:
            await api.forwarder.everywhere(request, api.place, dumps({"kinds": kinds, "for_s": for_s}))
        return json_response(self._shown())

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
            events.keep(self._configured)
