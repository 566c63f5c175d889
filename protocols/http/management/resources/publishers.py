"""Work that publishers have under way in a vhost, as lists (`lists`).

    GET /api/half/{vhost}           half messages, which are neither committed nor rolled back
    GET /api/transactions/{vhost}   open transactions: over HTTP and AMQP 1.0, and channels of AMQP 0-9-1
                                    with messages
    GET /api/producers/{vhost}      producers that number their messages

    half          {"vhost", "name", "id", "user", "group", "exchange", "routing_key", "size", "prepared_at",
                   "expires_at", "next_check_at", "checks", "max_checks", "asks_at", "may_decide"}
    transactions  {"vhost", "name", "user", "protocol", "messages", "settled", "bytes", "age_ms", "left_ms",
                   "channel", "may_end"}
    producers     {"vhost", "name", "user", "protocol", "epoch", "last_sequence", "last_at", "last_id"}

Times are ms since 1970. A field is null where there is no such thing. A user sees their own; the tags
monitoring and administrator see those of all users. A producer that sent nothing since the gateway began to
keep their names is not in the list.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock.lazy_dataclass import dataclass
from penstock.log_core.producers import Seen
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import reply_list
from penstock.protocols.listening.registry import Live
from penstock.protocols.net.connection_info import ChannelInfo, TransactionInfo
from penstock.router.messages.half import Half
from penstock.router.names import split_key_block, text
from penstock.router.rows import producer_parts

if TYPE_CHECKING:
    from penstock.protocols.http.data.publishing.staged import Transaction

__all__ = ["add"]

_AT_ONCE: Final = 1000
"""Producers before the loop does something else."""


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Publishers(api)
    api.app.routes.add("GET", "/api/half/{vhost}", handlers.halves)
    api.app.routes.add("GET", "/api/transactions/{vhost}", handlers.transactions)
    api.app.routes.add("GET", "/api/producers/{vhost}", handlers.producers)


@dataclass(frozen=True, slots=True)
class _Producer:
    protocol: str
    user: str
    name: str
    key: bytes


class _Publishers:
    def __init__(self, api: Management) -> None:
        self._api = api

    def _of(self, request: Request) -> tuple[str, str, bool]:
        """The vhost, the user, and whether they see what is others'."""
        api = self._api
        return api.vhost(request).name, api.identity(request).username, api.sees_all(request)

    async def halves(self, request: Request) -> Response:
        vhost, user, all_ = self._of(request)
        found = [one for one in self._api.broker.halves.undecided(vhost) if all_ or one.place.user == user]

        def shown(one: Half) -> dict[str, Any]:
            exchange, key = split_key_block(one.place.key) or ("", b"")
            return {
                "vhost": vhost,
                "name": one.name,
                "id": one.id,
                "user": one.place.user,
                "group": one.place.group,
                "exchange": exchange,
                "routing_key": text(key),
                "size": one.size,
                "prepared_at": one.prepared_ms,
                "expires_at": one.prepared_ms + one.rules.expires_ms,
                "next_check_at": one.due_ms,
                "checks": one.checks,
                "max_checks": one.rules.max_checks,
                "asks_at": _origin(one.ask_at),
                "may_decide": bool(one.name) and one.place.user == user,
            }

        return await reply_list(
            request,
            found,
            shown,
            lambda one: (f"{one.id:020}", one.name),
            keys={
                "prepared_at": lambda one: one.prepared_ms,
                "size": lambda one: one.size,
                "user": lambda one: one.place.user,
                "checks": lambda one: one.checks,
            },
        )

    async def transactions(self, request: Request) -> Response:
        vhost, user, all_ = self._of(request)
        api = self._api
        over_http = [one for one in api.staged.open(vhost) if all_ or one.place[1] == user]
        of_channels = [
            (live, channel)
            for live in api.registry.connections()
            if live.info.vhost == vhost and (all_ or live.info.user == user)
            for channel in live.info.channels
            if channel.uncommitted
        ]
        now_ms = api.broker.log.wall_ms()
        items = [
            *(self._over_http(one, user) for one in over_http),
            *(_of_channel(live, channel) for live, channel in of_channels),
            *(
                _of_amqp10(live, one, now_ms)
                for live in api.registry.connections()
                if live.info.vhost == vhost and (all_ or live.info.user == user)
                for one in live.info.transactions
            ),
        ]
        return await reply_list(request, items, lambda item: item, lambda item: (item["vhost"], item["name"]))

    def _over_http(self, one: Transaction, user: str) -> dict[str, Any]:
        staged = self._api.staged
        return {
            "vhost": one.place[0],
            "name": one.id,
            "user": one.place[1],
            "protocol": "http",
            "messages": len(one.messages),
            "settled": len(one.settling),
            "bytes": one.size,
            "age_ms": int(staged.age_s(one) * 1000),
            "left_ms": int(staged.left_s(one) * 1000),
            "channel": None,
            "may_end": one.place[1] == user,
        }

    async def producers(self, request: Request) -> Response:
        vhost, user, all_ = self._of(request)
        known, found = self._api.broker.log.producers, []
        for at, key in enumerate(known.names()):
            if at % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            seen = known.seen(key)
            parts = None if seen is None else producer_parts(seen.label)
            if parts is not None and parts[1] == vhost and (all_ or parts[2] == user):
                found.append(_Producer(parts[0], parts[2], parts[3], key))

        def now(one: _Producer) -> Seen:
            return known.seen(one.key) or _FORGOTTEN

        def shown(one: _Producer) -> dict[str, Any]:
            seen = now(one)
            return {
                "vhost": vhost,
                "name": one.name,
                "user": one.user,
                "protocol": one.protocol,
                "epoch": seen.epoch or None,
                "last_sequence": seen.last,
                "last_at": seen.used_ms or None,
                "last_id": f"0:{seen.lsn}" if seen.lsn else None,
            }

        return await reply_list(
            request,
            found,
            shown,
            lambda one: (one.user, one.protocol, one.name),
            keys={
                "last_at": lambda one: now(one).used_ms,
                "user": lambda one: one.user,
                "protocol": lambda one: one.protocol,
            },
        )


_FORGOTTEN: Final = Seen(b"", 0, 0, None, 0)
"""One that was forgotten while the list was made."""


def _of_channel(live: Live, channel: ChannelInfo) -> dict[str, Any]:
    name = f"{live.name} ({channel.number})"
    return {
        "vhost": live.info.vhost,
        "name": name,
        "user": live.info.user,
        "protocol": "amqp",
        "messages": channel.uncommitted,
        "settled": None,
        "bytes": None,
        "age_ms": None,
        "left_ms": None,
        "channel": name,
        "may_end": False,
    }


def _of_amqp10(live: Live, one: TransactionInfo, now_ms: int) -> dict[str, Any]:
    return {
        "vhost": live.info.vhost,
        "name": f"{live.name} ({one.id})",
        "user": live.info.user,
        "protocol": "amqp10",
        "messages": one.messages,
        "settled": one.settled,
        "bytes": one.size,
        "age_ms": max(now_ms - one.opened_ms, 0),
        "left_ms": None,
        "channel": None,
        "may_end": False,
    }


def _origin(ask_at: str) -> str | None:
    """Where is asked, without what may be a secret: `url:https://host/path?key` -> `https://host`."""
    scheme, _, where = ask_at.partition(":")
    if scheme != "url":
        return scheme or None
    parts = urlsplit(where)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
