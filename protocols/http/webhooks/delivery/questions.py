"""Questions about half messages, by HTTP: the courier of addresses `url:URL` (`router.messages.half`).

    POST URL    {"half": NAME, "checks": N, "vhost": V, "exchange": X, "routing_key": K,
                 "value" or "value_b64": the body, and its properties}
    200         {"commit": true} or {"commit": false}: it is decided
    else        whoever was asked does not know: it is asked again

URLs are judged as those of webhooks, and by the same rules (`guard`). A message is asked about once at a
time, and at most 100 are; what finds no place is asked about the next time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.errors import RoutingError
from penstock.log_core.batch._batch import AMQP091, Record
from penstock.logs import fields
from penstock.protocols.http.server.messages import dumps
from penstock.protocols.http.webhooks.address_rules import Forbidden, Guard
from penstock.protocols.http.webhooks.client import Client, NoAnswer, Resolve, look_up
from penstock.protocols.http.webhooks.delivery.formats import value_of
from penstock.router.authorization.identity import Identity
from penstock.router.errors import HalfUnknown
from penstock.router.messages.half import Half, HalfMessage

if TYPE_CHECKING:
    from penstock.protocols.http.shared.traffic import Messages
    from penstock.router.broker import Broker

__all__ = ["Questions"]

logger: Final = logging.getLogger("penstock.webhooks")

_AT_ONCE: Final = 100
_TIMEOUT_S: Final = 10.0


class Questions:
    """See the module."""

    def __init__(
        self,
        broker: Broker,
        messages: Messages,
        guard: Guard,
        tls: Callable[[], ssl.SSLContext],
        *,
        resolve: Resolve = look_up,
    ) -> None:
        self.guard = guard
        self._broker = broker
        self._messages = messages
        self._tls = tls
        self._resolve = resolve
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closed = False
        broker.halves.couriers["url"] = self._ask

    def _ask(self, half: Half, message: HalfMessage) -> bool:
        if self._closed or half.id in self._tasks or len(self._tasks) >= _AT_ONCE:
            return False
        task = asyncio.get_running_loop().create_task(self._answered(half, message))
        self._tasks[half.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(half.id, None))
        return True

    async def _answered(self, half: Half, message: HalfMessage) -> None:
        url = half.ask_at.partition(":")[2]
        named = fields(half=half.name, vhost=half.place.vhost, url=url)
        try:
            target = self.guard.target(url)
            tls = self._tls() if target.scheme == "https" else None
            client = Client(target, self.guard, tls, resolve=self._resolve)
            try:
                answer = await client.send(
                    "POST",
                    {"content-type": "application/json", "connection": "close"},
                    self._question(half, message),
                    timeout_s=_TIMEOUT_S,
                )
            finally:
                client.close()
        except (Forbidden, NoAnswer, OSError) as error:
            logger.warning("nobody could be asked about a half message: %s", error, extra=named)
            return
        if answer.status != 200:
            return
        try:
            said = json.loads(answer.body)
        except ValueError:
            said = None
        commit = said.get("commit") if isinstance(said, dict) else None
        if not isinstance(commit, bool):
            logger.warning("an answer about a half message says neither commit nor not", extra=named)
            return
        try:
            self._decide(half, commit)
        except HalfUnknown:
            return  # somebody else was first
        except RoutingError as error:
            logger.warning("a half message cannot be published: %s", error, extra=named)

    def _question(self, half: Half, message: HalfMessage) -> bytes:
        record = Record(
            0, half.place.key, message.props, message.body, (), 0, message.priority, message.enc, 0, 0, 0
        )
        shown = self._messages.show(record)
        asked = {
            **shown.properties,
            **value_of(shown.body),
            "half": half.name,
            "checks": half.checks,
            "vhost": half.place.vhost,
            "exchange": shown.exchange,
            "routing_key": shown.routing_key,
        }
        return dumps(asked)

    def _decide(self, half: Half, commit: bool) -> None:
        halves, place = self._broker.halves, half.place
        halves.find(half.id, place.vhost, place.user)
        if commit:
            route = self._broker.vhost(place.vhost).route(Identity(place.user), AMQP091, place.key)
            if route.error is not None:
                assert isinstance(route.error, RoutingError)
                raise route.error
            halves.commit(half)
        else:
            halves.rollback(half)
        self._broker.tick.schedule()

    async def drain(self, timeout_s: float) -> None:
        """Let what is under way end; nothing new begins."""
        self._closed = True
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
