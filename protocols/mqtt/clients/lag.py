"""How far a connected session that was promised nothing may lag behind: `mqtt.max_lag_bytes`.

A subscriber of QoS 0 that does not read holds everything from the first message on that it has not taken:
the log could delete nothing more. So the oldest messages of such sessions are dropped, as by a full queue.
They are counted (`$SYS/broker/publish/messages/dropped`), and the log says so once for each session and
doubling.

A session with a subscription of QoS 1 or 2 is left alone: its messages are promised, and
`mqtt.max_queued_bytes` or a backlog quota bounds them. Sessions are looked at in slices, so that many of
them cost no more than a few.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.logs import fields

if TYPE_CHECKING:
    from penstock.protocols.mqtt.clients.client import Client
    from penstock.protocols.mqtt.clients.clients import Clients

__all__ = ["LagLimit"]

_EACH_S: Final = 1.0
_AT_ONCE: Final = 5000
"""Sessions looked at each time (about 2 ms)."""

logger: Final = logging.getLogger("penstock.mqtt")


class LagLimit:
    """The limit of all sessions. Loop thread only."""

    def __init__(self, clients: Clients, max_bytes: int) -> None:
        """`max_bytes`: of the log, within a segment; 0 = any number."""
        self._clients = clients
        self._max_bytes = max_bytes
        self._ahead: list[Client] = []
        self._lost: dict[Client, int] = {}
        if max_bytes:
            clients.tick.every(_EACH_S, self.look)

    def look(self) -> None:
        """Drop what is too old for some sessions; the next ones come the next time."""
        if not self._ahead:
            self._ahead = [client for client in self._clients if client.connection is not None]
            self._lost = {client: n for client, n in self._lost.items() if client.connection is not None}
        some, self._ahead = self._ahead[-_AT_ONCE:], self._ahead[:-_AT_ONCE]
        before: dict[int, int] = {}
        for client in some:
            if client.connection is None or client.own_queue is None or client.own_queue.deleted:
                continue
            lp = client.vhost.lp
            if lp not in before:
                before[lp] = self._clients.log.held_since(lp, self._max_bytes)
            if client.queue.low() < before[lp] and _promised_nothing(client):
                self._drop(client, before[lp])

    def _drop(self, client: Client, before: int) -> None:
        dropped = 0

        def count(n: int) -> None:
            nonlocal dropped
            dropped += n

        client.queue.evict(before, count)
        if not dropped:
            return
        self._clients.backlog.dropped += dropped
        known = self._lost.get(client, 0)
        self._lost[client] = lost = known + dropped
        if not known or lost.bit_length() > known.bit_length():
            logger.warning(
                "messages of QoS 0 dropped: the client does not read them (mqtt.max_lag_bytes)",
                extra=fields(session=client.client_id, vhost=client.vhost.name, dropped=lost),
            )


def _promised_nothing(client: Client) -> bool:
    return not any(terms.qos for terms in client.by_tag.values())
