"""GET /api/dead-letters/{vhost}: the queues that dead letters of queues and of webhooks go to (`lists`).

    {"vhost": V, "name": QUEUE, "messages": N, "sources": COUNT, "from": [NAME, ...], "webhooks": [NAME]}

A queue is in the list if the dead-letter exchange of some queue leads to it, by its arguments or its
policies. `sources` counts these queues, and `from` names the first `NAMED_MAX` of them. Of a direct exchange
the dead-letter routing key counts, too; where the key is that of the message, each bound queue may get it.
Streams are left out, because nothing can be taken out of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import chosen_in_parts, reply_list
from penstock.protocols.http.webhooks.belongings import dead_queue
from penstock.router.exchanges.entries import QueueEntry
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.router.vhost.vhost import Vhost

__all__ = ["NAMED_MAX", "add"]

NAMED_MAX: Final = 10
"""Sources that are named."""
_AT_ONCE: Final = 2000
"""Queues, groups or bindings looked at before the loop does something else."""
_Group = tuple[str, str | None]
"""Queues with the same dead-letter exchange and key; None: the key is that of each message."""


@dataclass(slots=True)
class _Sources:
    """Whose dead letters go somewhere."""

    count: int = 0
    names: Sequence[str] = ()
    webhooks: Sequence[str] = ()

    def add(self, count: int, names: Iterable[str]) -> None:
        """So many more; `names` are of the first ones."""
        self.count += count
        if len(self.names) < NAMED_MAX:
            self.names = (*self.names, *names)[:NAMED_MAX]


def add(api: Management) -> None:
    """Serve this path."""

    async def index(request: Request) -> Response:
        vhost = api.vhost(request)
        places = await _places(vhost, await _groups(vhost))
        for worker in api.webhooks.of(vhost):
            name = worker.webhook.name
            sources = places.setdefault(dead_queue(name), _Sources())
            sources.webhooks = (*sources.webhooks, name)
        entries = await chosen_in_parts(
            await api.queues.bound_to_default(vhost),
            lambda entry: entry.name in places and not isinstance(entry.queue, Stream),
        )
        rows = [(entry, places[entry.name]) for entry in entries]

        def shown(row: tuple[QueueEntry, _Sources]) -> dict[str, Any]:
            entry, sources = row
            return {
                "vhost": vhost.name,
                "name": entry.name,
                "messages": _messages(row),
                "sources": sources.count,
                "from": sources.names,
                "webhooks": sources.webhooks,
            }

        return await reply_list(
            request,
            rows,
            shown,
            lambda row: (vhost.name, row[0].name),
            is_sorted=True,
            keys={"messages": _messages, "sources": lambda row: row[1].count},
        )

    api.app.routes.add("GET", "/api/dead-letters/{vhost}", index)


def _messages(row: tuple[QueueEntry, _Sources]) -> int:
    queue = row[0].queue
    return queue.ready_count + queue.cursor.outstanding


async def _groups(vhost: Vhost) -> dict[_Group, _Sources]:
    """The queues that have a dead-letter exchange, by it and the key."""
    entries = vhost.entries()
    groups: dict[_Group, _Sources] = {}
    for at in range(0, len(entries), _AT_ONCE):
        await asyncio.sleep(0)
        for entry in entries[at : at + _AT_ONCE]:
            rules = entry.effective
            exchange: Any = rules.get("x-dead-letter-exchange")
            if exchange is None:
                continue
            key: Any = rules.get("x-dead-letter-routing-key")
            if key is None and exchange == "":
                key = entry.listed_name  # as a rule, it came by its own name
            sources = groups.get((exchange, key))
            if sources is None:
                groups[exchange, key] = _Sources(1, (entry.listed_name,))
            else:
                sources.add(1, (entry.listed_name,))
    return groups


async def _places(vhost: Vhost, groups: dict[_Group, _Sources]) -> dict[str, _Sources]:
    """The queues that these exchanges lead to."""
    places: dict[str, _Sources] = {}
    looked = 0
    for (name, key), sources in groups.items():
        if name == "":
            _add(places, key, sources)
        elif (exchange := vhost.exchanges.get(name)) is not None:
            bindings = list(exchange.bindings.values())
            counts = exchange.type == "direct" and key is not None
            for place in {
                one.destination.name
                for one in bindings
                if isinstance(one.destination, QueueEntry) and not (counts and one.key != key)
            }:
                _add(places, place, _Sources(sources.count, sources.names))
            looked += len(bindings)
        looked += 1
        if looked >= _AT_ONCE:
            looked = 0
            await asyncio.sleep(0)
    return places


def _add(places: dict[str, _Sources], place: str | None, sources: _Sources) -> None:
    """Add sources to those of a place, which may keep them as its own."""
    if place is not None and places.setdefault(place, sources) is not sources:
        places[place].add(sources.count, sources.names)
