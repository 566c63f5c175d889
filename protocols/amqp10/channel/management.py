"""The pair of links to the node `/management`: requests come by the one, responses leave by the other.

Both links of a pair are in one session and have one name. Responses need the client's credit, and requests
ours: there are at most `_PENDING_MAX` of which the response has not left.

Source: AMQP 1.0 link pairing (committee specification 01), section 2.1; `amqp10.management`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.protocols.amqp10.codec.performatives import Accepted, Attach, Flow, Source, Target
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
            channel.say_later(delivery_id, Accepted(), 0, False)
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


class ResponseLink:
    """Sends the responses."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        self.channel = channel
        self.name = attach.name
        self.handle = attach.handle
        self._credit = 0
        self._sent = 0
        self._over = False
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        """Responses that have no credit, and what is to be called when they left."""
        target = attach.target if isinstance(attach.target, Target) else Target()
        source = attach.source if isinstance(attach.source, Source) else Source(NODE)
        self.answer = Attach(
            attach.name,
            attach.handle,
            False,
            1,
            0,
            source,
            target,
            initial_delivery_count=0,
            properties=attach.properties,
        )

    def start(self) -> None:
        """The attach was answered."""

    def flow(self, flow: Flow) -> None:
        """The client gives credit."""
        if flow.link_credit is not None:
            base = self._sent if flow.delivery_count is None else flow.delivery_count
            credit = (base + flow.link_credit - self._sent) & 0xFFFFFFFF
            self._credit = credit if credit < 2**31 else 0
        self.wake()
        if flow.drain or flow.echo:
            if flow.drain:
                self._sent, self._credit = (self._sent + self._credit) & 0xFFFFFFFF, 0
            self.channel.send_flow(
                handle=self.handle,
                delivery_count=self._sent,
                link_credit=self._credit,
                drain=flow.drain,
            )

    def add(self, payload: bytes, left: Callable[[], None]) -> None:
        """Send a response as soon as there is credit, and then call `left`."""
        if self._over:
            left()
            return
        self._waiting.append((payload, left))
        self.wake()

    def wake(self) -> None:
        """There may be room again."""
        while self._waiting and self._credit and self.channel.may_send:
            payload, left = self._waiting.popleft()
            self._credit -= 1
            self._sent = (self._sent + 1) & 0xFFFFFFFF
            self.channel.send_message(self.handle, payload)
            left()

    def detached(self) -> None:
        """The link is over; responses that wait go with it."""
        self._over = True
        while self._waiting:
            self._waiting.popleft()[1]()
