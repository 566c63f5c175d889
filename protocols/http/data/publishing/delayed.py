"""Messages that wait for their time.

    GET    delayed?max=100&cursor=C     those of the vhost, in the order of their times
           {"messages": [{"id": ..., "due_at": ..., ...}], "cursor": C}
    GET    delayed-hours                how many are due in each hour, of the first `COUNTED`
           {"hours": [{"at": MS, "messages": N}], "cursor": C}
    DELETE delayed/ID                   it never comes: 204, when that is on the disk; 404: none waits
    POST   delayed/ID/send              it comes now: 204, when that is on the disk; 404: none waits
    DELETE exchanges/X/delayed/NAME     the same by the name that its publisher gave it

A request reads at most `max` messages of all vhosts, so there may be fewer, or none, with a `cursor` to go on
with. Only a list without it has come to its end; so it is with the counts. A user sees messages that a tail
would show, and may cancel or send those that they may publish.

A name is one of an exchange: of `amq.default` for what was published to queues and streams, of the exchange
of MQTT topics for what was published to those; and whichever protocol it came by.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.batch._batch import AMQP091
from penstock.log_core.delayed.listing import BEFORE_ALL
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.positions import answer_of
from penstock.protocols.http.shared.rights import may_read
from penstock.router.errors import AccessRefused, NotFound
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.messages.delay_names import delay_name
from penstock.router.messages.delayed_listing import (
    LOOKED_AT,
    DelayedMessage,
    cancel_one,
    look,
    may_cancel,
    publish_one,
)
from penstock.router.names import dotted, split_key_block, text

if TYPE_CHECKING:
    from penstock.log_core.delayed._delays import Key
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["COUNTED", "ID_PATTERN", "DelayedHandlers"]


ID_PATTERN: Final = "^[0-9]{1,18}-[0-9]{1,18}$"
"""Of a waiting message, and of a cursor: when it is due in ms since 1970, and where it was scheduled."""
_MAX: Final = 100
COUNTED: Final = 10 * LOOKED_AT
"""Messages of all vhosts that are counted by hour: they are read from the disk for that."""
_HOUR_MS: Final = 3_600_000


class DelayedHandlers:
    """The handlers."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def index(self, request: Request) -> Response:
        """Those that wait."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        most = request.parameter("max", str(_MAX))
        if not (most.isascii() and most.isdigit() and len(most) < 4 and 1 <= int(most) <= LOOKED_AT):
            raise HttpError(400, "bad_field", f"max: a number from 1 to {LOOKED_AT}")
        cursor = request.parameter("cursor")
        behind = _key_of(cursor) if cursor else BEFORE_ALL
        if behind is None:
            raise HttpError(400, "bad_field", "cursor: send it as the answer before had it")
        found = await answer_of(partial(look, access.broker, vhost, behind, int(most)), access.broker.tick)
        answer: dict[str, Any] = {
            "messages": [
                _shown(one, vhost, identity)
                for one in found.messages
                if may_read(access.broker, identity, vhost, one.record.enc, one.record.key)
            ]
        }
        if found.next is not None:
            answer["cursor"] = _id_of(*found.next)
        return json_response(answer)

    async def hours(self, request: Request) -> Response:
        """How many are due in each hour that has some."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        counts: Counter[int] = Counter()
        behind: Key | None = BEFORE_ALL
        for _ in range(COUNTED // LOOKED_AT):
            if behind is None:
                break
            found = await answer_of(
                partial(look, access.broker, vhost, behind, LOOKED_AT), access.broker.tick
            )
            behind = found.next
            counts.update(
                one.due_ms // _HOUR_MS
                for one in found.messages
                if may_read(access.broker, identity, vhost, one.record.enc, one.record.key)
            )
        answer: dict[str, Any] = {
            "hours": [{"at": hour * _HOUR_MS, "messages": n} for hour, n in sorted(counts.items())]
        }
        if behind is not None:
            answer["cursor"] = _id_of(*behind)
        return json_response(answer)

    async def send_one(self, request: Request) -> Response:
        """Have it come now, by its id in the list; for those who may publish it as it was published."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        key = _key_of(request.names["waiting"])
        access.accepting(vhost, identity)
        ask = None if key is None else partial(publish_one, access.broker, vhost, identity, *key)
        if ask is None or not await answer_of(ask, access.broker.tick):
            raise HttpError(404, "not_found", "no such message waits, or your user may not publish it")
        return await self._decided()

    async def cancel_one(self, request: Request) -> Response:
        """Have it never come, by its id in the list; for those who may publish it as it was published."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        key = _key_of(request.names["waiting"])
        ask = None if key is None else partial(cancel_one, access.broker, vhost, identity, *key)
        if ask is None or not await answer_of(ask, access.broker.tick):
            raise HttpError(404, "not_found", "no such message waits, or your user may not cancel it")
        return await self._decided()

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
        return await self._decided()

    async def _decided(self) -> Response:
        await self._access.kept(self._access.broker.log.appender.next_lsn - 1, "fsync")
        return Response(204)


def _id_of(due_ms: int, place: int) -> str:
    return f"{due_ms}-{place}"


def _key_of(text: str) -> Key | None:
    """The key that an id or a cursor stands for; None: it is neither."""
    if re.fullmatch(ID_PATTERN, text) is None:
        return None
    due_ms, place = text.split("-")
    return int(due_ms), int(place)


def _shown(one: DelayedMessage, vhost: Vhost, identity: Identity) -> dict[str, Any]:
    record = one.record
    item: dict[str, Any] = {
        "id": _id_of(one.due_ms, one.place),
        "due_at": one.due_ms,
        "scheduled_at": record.ts,
        "size": one.size,
    }
    if record.enc == AMQP091:
        exchange, key = split_key_block(record.key) or ("", b"")
        item |= {"protocol": "amqp", "exchange": exchange, "routing_key": text(key)}
    else:
        item |= {"protocol": "mqtt", "exchange": MQTT_EXCHANGE, "routing_key": text(dotted(record.key))}
        item["topic"] = text(record.key)
    item["may_cancel"] = may_cancel(vhost, identity, record)
    return item
