"""POST queues/Q/redrive: dead letters of a queue go back to where they died.

    {"max": 1000, "to": QUEUE, "dry_run": false,
     "reason": "rejected" | "expired" | "maxlen" | "delivery_limit", "ids": ["0:4711", ...]}

    {"messages": [{"id": ..., "to": ..., "reason": ...}], "left": 3}

A move is one atomic unit, publish and removal; what is no dead letter, or died otherwise, stays in its
place, unmarked, and so does all with `dry_run`. With `ids` nothing else moves: those that a trial listed.
How a letter died is forgotten (`x-death` and what else the broker wrote), and so is who published it.
Without `to` it goes to the queue that it died in last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.data.live.sse import position_of
from penstock.protocols.http.data.publishing.bodies import Outgoing
from penstock.protocols.http.data.publishing.destinations import Destination, Run, ready
from penstock.protocols.http.data.pulling.polls import Polls
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, check_fields, number_of, optional_object
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.shared.taking import Delivery
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Redrive"]

MOST: Final = Whole(1000, 1, 1000)
_BYTES_MAX: Final = 16 << 20
REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit")
_FIELDS: Final = ("max", "reason", "to", "dry_run", "ids")


@dataclass(slots=True)
class _Letter:
    """A dead letter that moves."""

    delivery: Delivery
    to: str
    reason: str
    message: Outgoing

    def shown(self) -> dict[str, str]:
        return {"id": f"0:{self.delivery.record.lsn}", "to": self.to, "reason": self.reason}


class Redrive:
    """The handler."""

    def __init__(self, access: Access, polls: Polls) -> None:
        self._access = access
        self._polls = polls

    async def redrive(self, request: Request) -> Response:
        """Put dead letters back."""
        access = self._access
        vhost, queue = access.vhost(request), access.queue(request)
        if isinstance(queue, Stream):
            raise HttpError(409, "wrong_mode", f"'{queue.name}' is a stream: nothing can be taken out of it")
        body = await optional_object(request)
        check_fields(body, _FIELDS)
        most, to, reason = number_of(body, "max", MOST), body.get("to"), body.get("reason")
        if to is not None and not isinstance(to, str):
            raise HttpError(400, "bad_field", "to: the name of a queue")
        if reason is not None and reason not in REASONS:
            raise HttpError(400, "bad_field", f"reason: one of {', '.join(REASONS)}")
        ids = _positions(body["ids"]) if "ids" in body else None
        access.accepting(vhost, access.identity(request))
        deliveries = await self._polls.take(request, queue, most, 0, bytes_max=_BYTES_MAX)
        letters: list[_Letter] = []
        try:
            for one in deliveries:
                if ids is not None and one.record.lsn not in ids:
                    continue
                letter = self._letter(one, to, reason)
                if letter is not None:
                    letters.append(letter)
            moved = [] if body.get("dry_run") is True else letters
            identity = access.identity(request)
            messages = [
                ready(access, Destination(identity, vhost, "", one.to, True, True), one.message)
                for one in moved
            ]
            run = Run(access.broker, messages)
            run.check()
        except BaseException:
            _put_back(queue, deliveries)
            raise
        gone = {id(one.delivery) for one in moved}
        with access.broker.log.unit():
            run.append()
            for letter in moved:
                letter.delivery.settle()
            lsn = queue.promise() if moved else 0
        _put_back(queue, [one for one in deliveries if id(one) not in gone])
        queue.credit_gained()
        await access.kept(lsn, "fsync")
        shown = [letter.shown() for letter in letters]
        return json_response({"messages": shown, "left": len(deliveries) - len(moved)})

    def _letter(self, delivery: Delivery, to: str | None, reason: str | None) -> _Letter | None:
        """The destination of a message; None: it stays."""
        shown = self._access.messages.show(delivery.record)
        properties = {**shown.properties}
        headers = dict(properties.pop("headers", None) or {})
        deaths = headers.get("x-death")
        death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
        died, of = death.get("reason"), death.get("queue")
        if (reason is not None and died != reason) or not isinstance(to or of, str):
            return None
        kept: dict[str, Any] = {
            name: value
            for name, value in headers.items()
            if name != "x-death" and not name.startswith(("x-first-death-", "x-last-death-"))
        }
        properties.pop("user_id", None)
        if kept:
            properties["headers"] = kept
        message = Outgoing(shown.body, None, properties)
        return _Letter(delivery, str(to or of), str(died or ""), message)


def _positions(ids: object) -> frozenset[int]:
    """Those of messages with these ids. Raises HttpError 400."""
    if not isinstance(ids, list) or not 1 <= len(ids) <= MOST.most:
        raise HttpError(400, "bad_field", f"ids: 1 to {MOST.most} ids of messages")
    return frozenset(map(position_of, ids))


def _put_back(queue: Queue, deliveries: list[Delivery]) -> None:
    """They stay where they are, as if nobody had looked."""
    for one in deliveries:
        one.put_back()
    queue.wake()
