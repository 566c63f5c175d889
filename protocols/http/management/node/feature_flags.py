"""GET /api/feature-flags: RabbitMQ's, which are all enabled, because what each stands for is so here.

Tools look whether one is there before they use what it brought. None can be switched.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response

__all__ = ["add"]

_FLAGS: Final = {
    "detailed_queues_endpoint": "Queues with all their figures at a path of their own",
    "direct_exchange_routing_v2": "Messages through direct exchanges find their queues by one look",
    "drop_unroutable_metric": "Messages that no queue gets are counted",
    "empty_basic_get_metric": "Gets from empty queues are counted",
    "feature_flags_v2": "These flags",
    "implicit_default_bindings": "Bindings of the default exchange are not stored",
    "khepri_db": "What is declared is kept in the log, and not in Mnesia",
    "listener_records_in_ets": "Listeners are listed",
    "maintenance_mode_status": "Nodes say whether they are being drained",
    "message_containers": "A message is kept in the encoding of its publisher",
    "mqtt_v5": "MQTT 5.0",
    "quorum_queue": "Queues of type quorum",
    "stream_filtering": "Consumers of a stream that filter",
    "stream_queue": "Queues of type stream",
    "stream_single_active_consumer": "One active consumer of a stream",
    "user_limits": "Limits of a user's connections and channels",
    "virtual_host_metadata": "Descriptions and tags of vhosts",
}


def add(api: Management) -> None:
    """Serve these paths."""

    async def enable(request: Request) -> Response:
        """They all are."""
        api.require(request)
        if request.names["name"] not in _FLAGS:
            raise HttpError(400, "bad_request", f"unknown feature flag '{request.names['name']}'")
        return Response(204)

    async def listed(request: Request) -> Response:
        api.identity(request)
        return json_response([_shown(name, text) for name, text in _FLAGS.items()])

    api.app.routes.add("GET", "/api/feature-flags", listed)
    api.app.routes.add("PUT", "/api/feature-flags/{name}/enable", enable)


def _shown(name: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": "enabled",
        "desc": text,
        "doc_url": "",
        "stability": "stable",
        "provided_by": "penstock",
        "experiment_level": "unsupported",
        "require_level": "hard",
        "callbacks": [],
    }
