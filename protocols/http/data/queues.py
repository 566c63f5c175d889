"""Queues as resources, so that a program that has HTTP only can make what it publishes to and pulls.

    PUT queues/Q       {"durable": true, "arguments": {...}}: 201, or 200 when it is there like that
    GET queues/Q       what it has
    DELETE queues/Q    it ends, with its messages
    GET queues         all that the user may read

The same queues as those of AMQP; `arguments` are AMQP's, such as "x-max-length". Streams have paths of their
own (`streams`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import check_fields, optional_object
from penstock.protocols.http.shared.pages import page
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["QueueHandlers"]


class QueueHandlers:
    """The handlers."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def index(self, request: Request) -> Response:
        """All queues that the user may read."""
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        allow = self._access.broker.authorizer.allow
        found = [
            (name, entry.queue)
            for name, entry in vhost.queues.items()
            if not isinstance(entry.queue, Stream) and allow(identity, vhost.name, "read", name)
        ]
        return page(request, "queues", found, lambda _, queue: _shown(queue))

    async def put(self, request: Request) -> Response:
        """Make one; the same again is fine."""
        vhost, name = self._access.vhost(request), request.names["queue"]
        body = await optional_object(request)
        check_fields(body, ("durable", "arguments"))
        durable, arguments = body.get("durable", True), body.get("arguments", {})
        if not isinstance(durable, bool):
            raise HttpError(400, "bad_field", "durable is true or false")
        if not isinstance(arguments, dict):
            raise HttpError(400, "bad_field", 'arguments is an object, such as {"x-max-length": 1000}')
        if arguments.get("x-queue-type") == "stream":
            raise HttpError(400, "bad_field", "arguments: a stream is made by PUT streams/NAME")
        is_new = name not in vhost.queues
        declared = vhost.declare_queue(
            name, self._access.actor(request), durable=durable, arguments=arguments
        )
        await self._access.kept(declared.lsn, "fsync")
        return json_response(_shown(declared.queue), 201 if is_new else 200)

    async def show(self, request: Request) -> Response:
        """The fields of one queue."""
        return json_response(_shown(self._queue(request)))

    async def delete(self, request: Request) -> Response:
        """End one, with its messages."""
        vhost, name = self._access.vhost(request), request.names["queue"]
        if name in vhost.queues:
            self._queue(request)
        lsn = vhost.delete_queue(name, self._access.actor(request)).lsn
        await self._access.kept(lsn, "fsync")
        return Response(204)

    def _queue(self, request: Request) -> Queue:
        """The one in the path. Raises RoutingError, HttpError 409."""
        queue = self._access.queue(request)
        if isinstance(queue, Stream):
            raise HttpError(409, "wrong_mode", f"'{queue.name}' is a stream: its path is streams/NAME")
        return queue


def _shown(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": dict(queue.arguments),
        "ready": queue.ready_count,
        "unacked": queue.cursor.outstanding,
        "consumers": queue.consumer_count,
    }
