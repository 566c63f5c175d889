"""Messages that wait for their time, by the names that their publishers gave them.

    DELETE exchanges/X/delayed/NAME     it never comes: 204, when that is on the disk; 404: none waits

A name is one of an exchange: of `amq.default` for what was published to queues and streams, of the exchange
of MQTT topics for what was published to those; and whichever protocol it came by.
"""

from __future__ import annotations

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.router.errors import AccessRefused, NotFound
from penstock.router.messages.delay_names import delay_name

__all__ = ["DelayedHandlers"]


class DelayedHandlers:
    """The handler."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def cancel(self, request: Request) -> Response:
        """Have it never come; for those who may publish to the exchange, and as it was published."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        exchange, name = request.names["exchange"], request.names["delayed"]
        known = "" if exchange == "amq.default" else exchange
        if known not in vhost.exchanges:
            raise NotFound("exchange", exchange, vhost.name)
        if not access.broker.authorizer.allow(identity, vhost.name, "write", known):
            raise AccessRefused("exchange", exchange, vhost.name, identity.username, "write")
        if not access.broker.delayed.cancel_named(vhost, identity, delay_name(vhost.name, known, name)):
            raise HttpError(404, "not_found", f"no message called '{name}' waits for exchange '{exchange}'")
        await access.kept(access.broker.log.appender.next_lsn - 1, "fsync")
        return Response(204)
