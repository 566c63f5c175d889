"""Half messages over HTTP: prepared, decided, and asked about at a URL (`router.messages.half`).

    POST half                   {"exchange": X} or {"queue": Q}, "message": {...}; "name"?, "ask"? (a URL),
                                "check_after_ms"?, "check_each_ms"?, "max_checks"?, "expires_ms"?,
                                "dead_letter"?
    GET half/NAME               it is undecided; 404: it is not (any more)
    POST half/NAME/commit       it is published
    POST half/NAME/rollback     it is forgotten

A name is its user's in the vhost. A message prepared again by an undecided name is kept once; without a
name it gets one. Answers come when it is on the disk. `protocols.http.webhooks.delivery.questions` asks.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import AMQP091
from penstock.protocols.http.data.access import Access, absent
from penstock.protocols.http.data.publishing.bodies import message_of
from penstock.protocols.http.server.messages import (
    BODY_MAX,
    HttpError,
    Request,
    Response,
    json_response,
    parsed,
)
from penstock.protocols.http.shared.fields import Whole, destination, number_of, object_of
from penstock.protocols.http.webhooks.address_rules import Forbidden
from penstock.router.errors import HalfUnknown
from penstock.router.messages.half import Half, Place, Rules

if TYPE_CHECKING:
    from penstock.protocols.http.webhooks.delivery.questions import Questions

__all__ = ["NUMBERS", "Halves"]

_DAY_MS: Final = 86_400_000
_USUAL: Final = Rules()
NUMBERS: Final = {
    "check_after_ms": Whole(_USUAL.check_after_ms, 100, _DAY_MS),
    "check_each_ms": Whole(_USUAL.check_each_ms, 100, _DAY_MS),
    "max_checks": Whole(_USUAL.max_checks, 1, 1000),
    "expires_ms": Whole(_USUAL.expires_ms, 100, 365 * _DAY_MS),
}
"""Numbers of the rules of a half message."""
_GROUP: Final = "http"
"""Of all that HTTP prepares: who asks is the address, and no producer."""


class Halves:
    """The handlers."""

    def __init__(self, access: Access, questions: Questions) -> None:
        self._access = access
        self._questions = questions

    async def prepare(self, request: Request) -> Response:
        """Keep a message."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        item = dict(object_of(parsed(await request.body(BODY_MAX))))
        rules = _rules(item)
        name = _text(item, "name") or secrets.token_hex(12)
        ask = _text(item, "ask", 2048)
        if ask:
            try:
                self._questions.guard.target(ask)
            except Forbidden as error:
                raise HttpError(400, "bad_field", f"ask: {error}") from error
        to, queue = destination(item)
        message = message_of(item.pop("message", None), "message")
        if item:
            raise HttpError(400, "bad_field", f"{min(item)}: there is no such field")
        if message.due_ms:
            raise HttpError(400, "bad_field", "a half message has no delay")
        access.accepting(vhost, identity)
        what = (to, queue or message.routing_key or "", message.properties, message.body)
        try:
            key, kept = access.messages.half(vhost, identity, *what)
            if queue is not None and queue not in vhost.queues:
                raise absent("queue", queue, vhost)
            place = Place(vhost.name, identity.username, _GROUP, key)
            halves = access.broker.halves
            access.broker.rates.charge(identity.username, vhost.name, 1, len(message.body))
            _, lsn = halves.prepare(
                identity, place, rules, kept, name=name, ask_at=f"url:{ask}" if ask else ""
            )
        except PenstockError as error:
            raise access.app.translate(error) from error
        await access.kept(lsn, "fsync")
        return json_response({"name": name}, 201)

    async def show(self, request: Request) -> Response:
        """The undecided messages."""
        half = self._named(request)
        return json_response({"name": half.name, "checks": half.checks, "prepared_ms": half.prepared_ms})

    async def commit(self, request: Request) -> Response:
        """Publish it."""
        half = self._named(request)
        try:
            route = self._access.vhost(request).route(self._access.identity(request), AMQP091, half.place.key)
            if route.error is not None:
                raise route.error
            position, lsn = self._access.broker.halves.commit(half)
        except PenstockError as error:
            raise self._access.app.translate(error) from error
        await self._access.kept(lsn, "fsync")
        return json_response({"id": f"0:{position}"})

    async def rollback(self, request: Request) -> Response:
        """Forget it."""
        await self._access.kept(self._access.broker.halves.rollback(self._named(request)), "fsync")
        return json_response({})

    def _named(self, request: Request) -> Half:
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        try:
            return self._access.broker.halves.named(request.names["half"], vhost.name, identity.username)
        except HalfUnknown as error:
            raise HttpError(404, "not_found", f"{error.message}; {error.remedy}") from error


def _rules(item: dict[str, Any]) -> Rules:
    """Those in `item`, which leave it. Raises HttpError."""
    found: dict[str, Any] = {}
    for name, bounds in NUMBERS.items():
        found[name] = number_of(item, name, bounds)
        item.pop(name, None)
    return Rules(**found, dead_letter=_text(item, "dead_letter"))


def _text(item: dict[str, Any], name: str, most: int = 255) -> str:
    """A text of `item`, which leaves it; "": there is none. Raises HttpError."""
    value = item.pop(name, None)
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "surrogatepass")) <= most:
        raise HttpError(400, "bad_field", f"{name}: a text of 1 to {most} bytes")
    return value
