"""Requests about queues: declare, get, purge, delete."""

from __future__ import annotations

from typing import Any, Final

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.management.bodies import arguments_shown, read_body
from penstock.protocols.amqp10.management.requests import Refused, Request, Response, decoded
from penstock.router.authorization.identity import Actor
from penstock.router.vhost.vhost import Declared, Vhost

__all__ = ["declare", "delete", "get", "purge"]

_FIELDS: Final = {"durable": True, "exclusive": False, "auto_delete": False, "arguments": {}}


def get(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """The properties of a queue, with the numbers of its messages and consumers."""
    declared = vhost.declare_queue(_name(request), actor, passive=True)
    return Response(200, _shown(vhost, declared))


def declare(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Make a queue, or find that it is as declared."""
    name = _name(request)
    if not name:
        raise Refused(400, "declare queue with empty name not allowed")
    known = name in vhost.queues
    declared = vhost.declare_queue(name, actor, **read_body(request.body, "queue", _FIELDS))
    return Response(200 if known else 201, _shown(vhost, declared), lsn=declared.lsn, after=declared.history)


def purge(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Drop the ready messages of a queue."""
    return Response(200, _count(vhost.queue(_name(request), actor).purge()))


def delete(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Delete a queue; one that is not there had no messages."""
    deleted = vhost.delete_queue(_name(request), actor)
    return Response(200, _count(deleted.message_count), lsn=deleted.lsn)


def _name(request: Request) -> str:
    return decoded(request.segments[1])


def _count(messages: int) -> dict[str, Any]:
    return {"message_count": v.ULong(messages)}


def _shown(vhost: Vhost, declared: Declared) -> dict[str, Any]:
    queue = declared.queue
    return {
        "message_count": v.ULong(declared.message_count),
        "consumer_count": v.UInt(declared.consumer_count),
        "name": declared.name,
        "vhost": vhost.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "type": str(queue.arguments.get("x-queue-type", "classic")),
        "arguments": arguments_shown(queue.arguments),
        "leader": vhost.broker.node,
        "replicas": v.Array(0xB1, [vhost.broker.node]),
    }
