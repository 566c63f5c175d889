"""The pair of links to the node `/management`: requests come by the one, responses leave by the other.

Both links of a pair are in one session and have one name. Responses need the client's credit, and requests
ours: there are at most `_PENDING_MAX` of which the response has not left.

Source: AMQP 1.0 link pairing (committee specification 01), section 2.1; `amqp10.management`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.protocols.amqp10.channel.settled_sender import SettledSender
from penstock.protocols.amqp10.codec.performatives import Accepted, Attach, Source
from penstock.protocols.amqp10.management.methods import carry_out
from penstock.protocols.amqp10.management.requests import Request, Response, parse_request

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["NODE", "RequestLink", "ResponseLink"]

NODE: Final = "/management"
_PENDING_MAX: Final = 16
_REQUEST_MAX: Final = 64 << 10
_TOKENS: Final = ("auth", "tokens")


class RequestLink(IncomingLink):
    """Takes requests."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        super().__init__(channel, attach, _REQUEST_MAX, _PENDING_MAX)

    def receive(self, delivery_id: int, settled: bool, payload: bytes, state: Any) -> None:
        channel = self.channel
        request = parse_request(payload)
        pair = self._pair()
        if not settled:
            self.say(delivery_id, Accepted())
        self.pending += 1
        session = channel.session
        if (request.method, *request.segments) == ("PUT", *_TOKENS):
            session.renew(request.body, lambda response: self._answer(pair, request, response))
        else:
            self._answer(pair, request, carry_out(session.vhost, session.actor, request))
            session.schedule()

    def _pair(self) -> ResponseLink:
        """Raises LinkError: there is none."""
        for link in self.channel.links.values():
            if isinstance(link, ResponseLink) and link.name == self.name:
                return link
        raise LinkError(
            "amqp:precondition-failed", f"attach a receiver from {NODE} with the name of this link first"
        )

    def _answer(self, pair: ResponseLink, request: Request, response: Response) -> None:
        def leave() -> None:
            self.pending -= 1
            if self.channel.links.get(self.handle) is self:
                self.credit_used()

        def ready(ok: bool) -> None:
            if not ok:
                pair.add(Response(500, "see the broker logfile").encoded(request.id), leave)
                return
            payload = response.encoded(request.id)
            self.channel.when_synced(response.lsn, lambda: pair.add(payload, leave))
            # The work it waited for may have ended at any time.
            self.channel.session.look()

        if response.after is not None:
            response.after(ready)
        else:
            ready(True)


class ResponseLink(SettledSender):
    """Sends the responses."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        source = attach.source if isinstance(attach.source, Source) else Source(NODE)
        super().__init__(channel, attach, source)
