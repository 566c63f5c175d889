"""/api/exchanges/…/publish and /api/queues/…/get: single messages, to try things out."""

from __future__ import annotations

import base64
from typing import Any, Final

from penstock.protocols.http.management.bodies import Body, Choice, Number, Table, Text
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.resources.exchanges import exchange_name
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.taking import Delivery, take
from penstock.protocols.http.shared.traffic import check_accepting
from penstock.router.errors import NotFound

__all__ = ["GET", "PUBLISH", "add"]

_GET_MAX: Final = 10_000
_GET_BYTES_MAX: Final = 32 << 20
"""Bodies of one answer; what does not fit stays in the queue."""
_MODES: Final = ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")

PUBLISH: Final = Body(
    {
        "properties": Table("AMQP's, such as content_type."),
        "routing_key": Text(most=255, description="At most 255 bytes."),
        "payload": Text(description="In base64, if payload_encoding says so."),
        "payload_encoding": Choice(("string", "base64")),
    },
    "properties",
    "routing_key",
    "payload",
    "payload_encoding",
)
GET: Final = Body(
    {
        "count": Number(0, _GET_MAX),
        "ackmode": Choice(_MODES),
        "encoding": Choice(("auto", "base64")),
        "truncate": Number(0, description="Bytes of each payload."),
    },
    "count",
    "ackmode",
    "encoding",
)


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Messages(api)
    api.app.routes.add("POST", "/api/exchanges/{vhost}/{name}/publish", handlers.publish)
    api.app.routes.add("POST", "/api/queues/{vhost}/{name}/get", handlers.get)


class _Messages:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def publish(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        body = PUBLISH.read(await request.json())
        check_accepting(api.broker, vhost, api.identity(request))
        payload = _payload(body["payload"], body["payload_encoding"])
        try:
            published = api.messages.publish(
                vhost,
                api.actor(request).identity,
                exchange_name(request.names["name"]),
                body["routing_key"],
                body["properties"],
                payload,
            )
        except NotFound as error:
            told = f"404 NOT_FOUND - {api.app.told(error)}"
            raise HttpError(400, "bad_request", told) from error
        routed = published.route.routed and not published.refused
        if published.route.durable:
            await api.kept(published.lsn)
        return json_response({"routed": routed})

    async def get(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request, change=True)
        body = GET.read(await request.json())
        count, mode = body["count"], body["ackmode"]
        name = request.names["name"]
        if name not in vhost.queues:
            raise HttpError(404, "not_found", f"NOT_FOUND - no queue '{name}' in vhost '{vhost.name}'")
        queue = vhost.queue(name, api.actor(request))
        deliveries: list[Delivery] = []
        size = 0
        try:
            while len(deliveries) < count and size < _GET_BYTES_MAX and not request.gone:
                one = await take(queue)
                if one is None:
                    break
                size += len(one.record.body)
                deliveries.append(one)
            shown = [self._shown(one, body["encoding"], body["truncate"]) for one in deliveries]
        finally:
            for one in deliveries:
                _finish(one, mode, gone=request.gone)
            queue.credit_gained()
            api.broker.tick.schedule()
        api.messages.delivered += len(deliveries)
        return json_response(shown)

    def _shown(self, delivery: Delivery, encoding: str, truncate: int | None) -> dict[str, Any]:
        message = self._api.messages.show(delivery.record)
        body = message.body if truncate is None else message.body[:truncate]
        text = None
        if encoding == "auto":
            try:
                text = body.decode("utf-8")
            except UnicodeDecodeError:
                text = None
        return {
            "payload_bytes": len(message.body),
            "redelivered": delivery.redelivered,
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "message_count": delivery.left,
            "properties": message.properties or [],
            "payload": text if text is not None else base64.b64encode(body).decode("ascii"),
            "payload_encoding": "string" if text is not None else "base64",
        }


def _payload(text: str, encoding: str) -> bytes:
    if encoding == "string":
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise HttpError(400, "bad_request", "the payload is not base64") from error


def _finish(delivery: Delivery, mode: str, *, gone: bool) -> None:
    if gone or mode.endswith("requeue_true"):
        delivery.requeue()
    elif mode.startswith("ack"):
        delivery.settle()
    else:
        delivery.reject()
