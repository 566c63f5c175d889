"""Requests about exchanges: declare, delete."""

from __future__ import annotations

from typing import Final

from penstock.protocols.amqp10.management.bodies import read_body
from penstock.protocols.amqp10.management.requests import Request, Response, decoded
from penstock.router.authorization.identity import Actor
from penstock.router.vhost.vhost import Vhost

__all__ = ["declare", "delete"]

_FIELDS: Final = {
    "type": "direct",
    "durable": True,
    "auto_delete": False,
    "internal": False,
    "arguments": {},
}


def declare(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Make an exchange, or find that it is as declared."""
    fields = read_body(request.body, "exchange", _FIELDS)
    return Response(204, lsn=vhost.declare_exchange(_name(request), fields.pop("type"), actor, **fields))


def delete(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Delete an exchange; fine when there is none."""
    return Response(204, lsn=vhost.delete_exchange(_name(request), actor))


def _name(request: Request) -> str:
    return decoded(request.segments[1])
