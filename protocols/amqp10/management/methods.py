"""Which request is which, and each refusal as a status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.errors import PenstockError
from penstock.protocols.amqp10.management import bindings, exchanges, queues
from penstock.protocols.amqp10.management.requests import Refused, Request, Response
from penstock.router import errors as router
from penstock.router.authorization.identity import Actor
from penstock.router.vhost.vhost import Vhost

__all__ = ["carry_out"]

_METHODS: Final[dict[tuple[str, ...], Callable[[Vhost, Actor, Request], Response]]] = {
    ("GET", "queues", "*"): queues.get,
    ("PUT", "queues", "*"): queues.declare,
    ("DELETE", "queues", "*"): queues.delete,
    ("DELETE", "queues", "*", "messages"): queues.purge,
    ("PUT", "exchanges", "*"): exchanges.declare,
    ("DELETE", "exchanges", "*"): exchanges.delete,
    ("POST", "bindings"): bindings.add,
    ("GET", "bindings"): bindings.find,
    ("DELETE", "bindings", "*"): bindings.remove,
}
"""By method and path; * stands for a name."""

_STATUS: Final[tuple[tuple[type[PenstockError], int], ...]] = (
    (router.Inequivalent, 409),
    (router.AccessRefused, 403),
    (router.ReservedName, 403),
    (router.DefaultExchange, 403),
    (router.SystemExchange, 403),
    (router.LimitReached, 403),
)
"""The first class that fits decides; any other refusal is 400, as with RabbitMQ."""


def carry_out(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Do what a request asks for. Never raises for what a client sends."""
    segments = request.segments
    named = (segments[0], "*", *segments[2:]) if len(segments) > 1 else segments
    method = _METHODS.get((request.method, *named))
    if method is None:
        return Response(404, f"there is no {request.method} /{'/'.join(segments)} here")
    try:
        return method(vhost, actor, request)
    except Refused as refused:
        return Response(refused.status, str(refused))
    except router.NotFound as error:
        # Only a look at a queue can miss it: RabbitMQ calls it a bad request elsewhere.
        return Response(404 if request.method == "GET" else 400, str(error))
    except router.RoutingError as error:
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
        return Response(status, str(error))
