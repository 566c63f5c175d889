"""Requests about bindings: bind, unbind, list.

    POST   /bindings                                             a map: source, destination_queue or
                                                                 destination_exchange, binding_key, arguments
    GET    /bindings?src=SOURCE&dstq=QUEUE&key=KEY               or dste=EXCHANGE; each answered with its
                                                                 `location`
    DELETE /bindings/src=SOURCE;dstq=QUEUE;key=KEY;args=HASH     a location

HASH stands for the arguments and is empty without any; a client takes it from the list.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final
from urllib.parse import quote

from penstock.protocols.amqp10.management.bodies import arguments_shown, read_body
from penstock.protocols.amqp10.management.requests import Refused, Request, Response, checked, decoded
from penstock.router.arguments import Arguments, encode_table
from penstock.router.authorization.identity import Actor
from penstock.router.errors import NotFound
from penstock.router.exchanges.entries import Binding, QueueEntry
from penstock.router.vhost.vhost import Vhost

__all__ = ["add", "find", "remove"]

_FIELDS: Final = {
    "source": "",
    "destination_queue": "",
    "destination_exchange": "",
    "binding_key": "",
    "arguments": {},
}
_LOCATION: Final = re.compile(r"src=([^;]+);dst([eq])=([^;]+);key=([^;]*);args=([0-9A-Za-z_-]*)")


def add(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Bind a queue or an exchange to an exchange; the same binding again is fine."""
    fields = read_body(request.body, "binding", _FIELDS)
    source, key, arguments = fields["source"], fields["binding_key"], fields["arguments"]
    queue, exchange = fields["destination_queue"], fields["destination_exchange"]
    if bool(queue) == bool(exchange):
        raise Refused(400, "a binding has a destination_queue or a destination_exchange")
    if exchange:
        return Response(204, lsn=vhost.bind_exchange(exchange, source, key, actor, arguments))
    bound = vhost.bind_queue_since(queue, source, key, actor, arguments)
    return Response(204, lsn=bound.lsn, after=bound.history)


def find(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """The bindings of a source, a destination and a key; none when one of these is not there."""
    query = request.query
    kind = "e" if "dste" in query else "q"
    try:
        source, destination = checked(query["src"]), checked(query["dst" + kind])
    except KeyError as missing:
        raise Refused(400, f"missing {missing} in the query") from None
    key = checked(query.get("key", ""))
    try:
        vhost.declare_exchange(source, "direct", actor, passive=True)
        if kind == "e":
            vhost.declare_exchange(destination, "direct", actor, passive=True)
        else:
            vhost.queue(destination, actor)
    except NotFound:
        return Response(200, [])
    found = _between(vhost, source, kind, destination, key)
    return Response(200, [_shown(binding, source, kind, destination, key) for binding in found])


def remove(vhost: Vhost, actor: Actor, request: Request) -> Response:
    """Unbind by a location; fine when there is no such binding."""
    match = _LOCATION.fullmatch(request.segments[1])
    if match is None:
        raise Refused(400, f"bad binding path segment '{request.segments[1]}'")
    source, kind, destination, key = (decoded(part) for part in match.groups()[:4])
    unbind = vhost.unbind_exchange if kind == "e" else vhost.unbind_queue
    hashed = match[5]
    lsn = 0
    for binding in _between(vhost, source, kind, destination, key) if hashed else (None,):
        arguments: Arguments = {} if binding is None else binding.arguments
        if _hash(arguments) == hashed:
            lsn = unbind(destination, source, key, actor, arguments)
    return Response(204, lsn=lsn)


def _between(vhost: Vhost, source: str, kind: str, destination: str, key: str) -> list[Binding]:
    exchange = vhost.exchanges.get(source)
    return [
        binding
        for binding in (() if exchange is None else exchange.bindings.values())
        if binding.key == key and binding.destination.name == destination and _kind(binding) == kind
    ]


def _kind(binding: Binding) -> str:
    destination = binding.destination
    if isinstance(destination, QueueEntry):
        return "q" if destination.kind == "queue" else ""
    return "e"


def _shown(binding: Binding, source: str, kind: str, destination: str, key: str) -> dict[str, Any]:
    names = ";".join(
        f"{name}={quote(value, safe='')}"
        for name, value in (("src", source), ("dst" + kind, destination), ("key", key))
    )
    return {
        "source": source,
        "destination_exchange" if kind == "e" else "destination_queue": destination,
        "binding_key": key,
        "arguments": arguments_shown(binding.arguments),
        "location": f"/bindings/{names};args={_hash(binding.arguments)}",
    }


def _hash(arguments: Arguments) -> str:
    """Empty without arguments; else 96 bits of their SHA-256."""
    if not arguments:
        return ""
    return base64.urlsafe_b64encode(hashlib.sha256(encode_table(arguments)).digest()[:12]).decode()
