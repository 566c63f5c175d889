"""Federation: a link for each exchange and queue that a policy federates, and each of its upstreams.

Links are found anew, soon after anything in a vhost has changed that may matter: upstreams, policies,
exchanges, queues, bindings. Vhosts without upstreams cost nothing. It is the component of the parameters
`federation-upstream` and `federation-upstream-set`, too.

Source: rabbitmq.com/docs/federation; rabbit_federation_upstream, rabbit_federation_exchange.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.logs import fields
from penstock.protocols.links.amqp.federation.upstreams import (
    Upstream,
    check_set,
    check_upstream,
    upstreams_of,
)
from penstock.protocols.links.amqp.parameters import unmasked
from penstock.protocols.links.amqp.uri import parse_uri
from penstock.router.arguments import encode_table
from penstock.router.errors import InvalidParameter
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.names import binding_key, text, wire
from penstock.router.parameters import Parameter
from penstock.router.policies.definitions import FEDERATION
from penstock.subscriptions.dispatch.strategies import Kind

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.federation.federated import Federated, FederatedLink
    from penstock.protocols.links.amqp.federation.federated_exchange import Bindings
    from penstock.protocols.links.local import Local
    from penstock.router.broker import Broker
    from penstock.router.exchanges.exchanges import Exchange
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["UPSTREAM", "UPSTREAM_SET", "Federation"]

logger: Final = logging.getLogger("penstock.links")

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
"""The components of the parameters, as RabbitMQ has them."""

_SOON_S: Final = 0.05
_SHARE: Final = 10
"""A look at a vhost that takes 1 ms is followed by the next one after 10 ms at the earliest."""
_CLEAN_S: Final = 10.0
_SESSIONS_MAX: Final = 1000
"""With more MQTT sessions the upstream is asked for everything: their filters are not read at each change."""

_Key = tuple[str, str, str, str]


class Federation:
    """See the module."""

    def __init__(self, broker: Broker, local: Local, *, max_links: int, cluster: str) -> None:
        """Nothing runs before `start`.

        Args:
            broker: Whose exchanges and queues are federated.
            local: Its own side of links.
            max_links: Links of federation that there may be.
            cluster: The name of this gateway.

        """
        self._broker = broker
        self._local = local
        self._max = max_links
        self._cluster = cluster
        self._links: dict[_Key, tuple[FederatedLink, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Those of links that end."""
        self._vhosts: set[str] = set()
        """Those with upstreams."""
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._pause_s: dict[str, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._said_full = False
        for component in (UPSTREAM, UPSTREAM_SET):
            broker.parameters.components[component] = self

    def __iter__(self) -> Iterator[FederatedLink]:
        return iter([link for link, _ in self._links.values()])

    def links(self, vhost: str) -> list[FederatedLink]:
        """Those of a vhost, by name."""
        return [link for key, (link, _) in sorted(self._links.items()) if key[0] == vhost]

    # Life

    def start(self) -> None:
        """Begin all: front ends accept connections."""
        self._loop = asyncio.get_running_loop()
        self._broker.on_topology_changed.append(self._mark)
        for vhost in self._broker.vhosts:
            self._upstreams_changed(vhost)

    async def stop(self) -> None:
        """End all, and wait for it. Nothing is taken away at the upstreams."""
        self._loop = None
        for timer in self._due.values():
            timer.cancel()
        for _, task in self._links.values():
            task.cancel()
        if tasks := [*self._tasks, *(task for _, task in self._links.values())]:
            await asyncio.wait(tasks)

    def restart(self, link: FederatedLink) -> None:
        """End a link that is there, and begin it again at once."""
        _, task = self._links.pop(link.federated.key)
        self._begin(link.federated, self._end(link, task, cleans=False))
        if (vhost := self._broker.vhosts.get(link.vhost)) is not None:
            self._bind(vhost)

    # As a component

    def check(self, parameter: Parameter, known: Parameter | None) -> Parameter:
        """See `Component.check`."""
        try:
            if parameter.component == UPSTREAM_SET:
                check_set(parameter.value)
                return parameter
            if known is not None:
                parameter = replace(parameter, value=unmasked(parameter.value, known.value))
            check_upstream(parameter.value)
        except ValueError as error:
            raise InvalidParameter(f"Validation failed\n\n{error}\n") from None
        found = parameter.value["uri"]
        uris = [parse_uri(one) for one in (found if isinstance(found, list) else [found])]
        identity = self._broker.users.identity(parameter.user) if parameter.user else None
        for uri in uris:
            if (
                identity is not None
                and not uri.host
                and not self._broker.authorizer.enter(identity, uri.vhost)
            ):
                told = f'user "{parameter.user}" may not connect to vhost "{uri.vhost}"'
                raise InvalidParameter(f"Validation failed\n\n{told}\n")
        return parameter

    def changed(self, before: Parameter | None, now: Parameter | None) -> None:
        """See `Component.changed`."""
        changed = now or before
        if self._loop is not None and changed is not None:
            self._upstreams_changed(changed.vhost)

    # Looking

    def _upstreams_changed(self, vhost: str) -> None:
        if self._broker.parameters.of(vhost, UPSTREAM):
            self._vhosts.add(vhost)
        elif vhost not in self._vhosts:
            return
        self._mark(vhost)

    def _mark(self, vhost: str) -> None:
        """Something has changed in a vhost: look soon."""
        if vhost in self._vhosts and vhost not in self._due and self._loop is not None:
            pause_s = max(_SOON_S, self._pause_s.get(vhost, 0.0))
            self._due[vhost] = self._loop.call_later(pause_s, self._look, vhost)

    def _look(self, name: str) -> None:
        del self._due[name]
        began = time.monotonic()
        vhost = self._broker.vhosts.get(name)
        wanted = {} if vhost is None else {one.key: one for one in self._federated(vhost)}
        for key, (link, task) in list(self._links.items()):
            if key[0] == name and wanted.get(key) != link.federated:
                del self._links[key]
                old = self._end(link, task, cleans=key not in wanted)
                if key in wanted:
                    self._begin(wanted[key], old)
        for key, one in wanted.items():
            if key not in self._links:
                self._begin(one, None)
        if vhost is not None:
            self._bind(vhost)
        if not self._broker.parameters.of(name, UPSTREAM):
            self._vhosts.discard(name)
        self._pause_s[name] = (time.monotonic() - began) * _SHARE

    def _federated(self, vhost: Vhost) -> Iterator[Federated]:
        from penstock.protocols.links.amqp.federation.federated import Federated

        if not any(FEDERATION & policy.definition.keys() for policy in vhost.policies.all("policy")):
            return
        parameters = self._broker.parameters
        upstreams = {one.name: (one.value, one.user) for one in parameters.of(vhost.name, UPSTREAM)}
        sets = {one.name: one.value for one in parameters.of(vhost.name, UPSTREAM_SET)}

        def of(name: str, kind: str) -> list[Upstream]:
            return upstreams_of(vhost.policies.definition(name, kind), upstreams, sets)

        for exchange in vhost.exchanges.values():
            if exchange.name and not exchange.internal:
                for upstream in of(exchange.name, "exchange"):
                    yield Federated(
                        vhost=vhost.name,
                        type="exchange",
                        name=exchange.name,
                        upstream=upstream,
                        declared={
                            "exchange_type": exchange.type,
                            "durable": exchange.durable,
                            "auto_delete": exchange.auto_delete,
                            "arguments": exchange.arguments,
                        },
                    )
        for entry in vhost.queues.values():
            if entry.owner is None and entry.queue.kind is not Kind.STREAM:
                for upstream in of(entry.name, str(entry.arguments.get("x-queue-type", "classic"))):
                    yield Federated(
                        vhost=vhost.name,
                        type="queue",
                        name=entry.name,
                        upstream=upstream,
                        declared={
                            "durable": entry.durable,
                            "auto_delete": entry.auto_delete,
                            "arguments": dict(entry.arguments),
                        },
                    )

    def _bind(self, vhost: Vhost) -> None:
        """Tell the links of exchanges which bindings there are."""
        from penstock.protocols.links.amqp.federation.federated_exchange import ExchangeLink

        found: dict[str, Bindings] = {}
        for key, (link, _) in self._links.items():
            if key[0] == vhost.name and isinstance(link, ExchangeLink):
                name = link.federated.name
                if name not in found:
                    found[name] = _bindings(vhost, vhost.exchanges[name])
                link.bind(found[name])

    # Links

    def _begin(self, federated: Federated, old: asyncio.Task[None] | None) -> None:
        """Run a link, once the `old` one of its key is over."""
        from penstock.protocols.links.amqp.federation.federated_exchange import ExchangeLink
        from penstock.protocols.links.amqp.federation.federated_queue import QueueLink

        if len(self._links) >= self._max:
            if not self._said_full:
                self._said_full = True
                logger.warning(
                    "an exchange or queue is not federated: links.max_links is %d",
                    self._max,
                    extra=fields(vhost=federated.vhost, name=federated.name),
                )
            return
        user = federated.upstream.user or self._broker.users.default_user
        link: FederatedLink
        if federated.type == "exchange":
            link = ExchangeLink(federated, user, self._local, self._cluster)
        else:
            link = QueueLink(federated, user, self._local, self._cluster, lambda: self._needs(federated))
        assert self._loop is not None
        self._links[federated.key] = link, self._loop.create_task(_run(link, old))

    def _needs(self, federated: Federated) -> bool:
        vhost = self._broker.vhosts.get(federated.vhost)
        entry = None if vhost is None else vhost.queues.get(federated.name)
        return entry is not None and _needs(entry.queue)

    def _end(self, link: FederatedLink, task: asyncio.Task[None], *, cleans: bool) -> asyncio.Task[None]:
        """End a link; `cleans`: for good."""
        task.cancel()
        assert self._loop is not None
        ending = self._loop.create_task(_end(link, task, cleans and link.upstream.cleanup == "default"))
        self._tasks.add(ending)
        ending.add_done_callback(self._tasks.discard)
        return ending


async def _run(link: FederatedLink, old: asyncio.Task[None] | None) -> None:
    if old is not None:
        await asyncio.wait([old])
    await link.run()


async def _end(link: FederatedLink, task: asyncio.Task[None], cleans: bool) -> None:
    await asyncio.wait([task])
    if not cleans:
        return
    try:
        async with asyncio.timeout(_CLEAN_S):
            await link.clean()
    except (PenstockError, OSError, TimeoutError) as error:
        logger.warning(
            "a federation is over, and its queue stays at the upstream: %s",
            str(error) or "no answer",
            extra=fields(link=link.name, vhost=link.vhost),
        )


def _bindings(vhost: Vhost, exchange: Exchange) -> Bindings:
    """The bindings from an exchange, and the filters of MQTT's clients, each once."""
    found: dict[tuple[str, bytes], dict[str, Any]] = {}
    for one in exchange.bindings.values():
        # Only the bindings of shared subscriptions have filters of MQTT.
        is_filter = isinstance(one.destination, QueueEntry) and one.destination.kind == "share"
        key = text(binding_key(wire(one.key))) if is_filter else one.key
        arguments = dict(one.arguments)
        found[key, encode_table(arguments)] = arguments
    nothing = encode_table({})
    if exchange is vhost.mqtt_exchange and len(vhost.sessions.entries) > _SESSIONS_MAX:
        found["#", nothing] = {}
    elif exchange is vhost.mqtt_exchange:
        for session in vhost.sessions.entries.values():
            for topic in vhost.sessions.topics(session.name):
                found[text(binding_key(wire(topic))), nothing] = {}
    return found


def _needs(queue: Queue) -> bool:
    """Whether a queue is empty and a consumer of it wants more, links of other gateways apart."""
    if queue.ready_count:
        return False
    return any(one.priority >= 0 and one.credit() > 0 for one in queue.consumers)
