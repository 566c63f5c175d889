"""All links of a worker: begun when the gateway serves, changed with their parameters, ended at a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.protocols.links.amqp.parameters import unmasked
from penstock.protocols.links.amqp.settings import ShovelSettings, local_vhosts, shovel_settings
from penstock.protocols.links.federation import Federation
from penstock.protocols.links.link import Link
from penstock.protocols.links.local import Local
from penstock.protocols.links.terms import AMQP10
from penstock.router.errors import InvalidParameter
from penstock.router.parameters import Parameter

if TYPE_CHECKING:
    from penstock.config.bridges import Bridge as Settings
    from penstock.protocols.links.amqp.shovel import Shovel
    from penstock.protocols.links.mqtt.bridge import Bridge
    from penstock.protocols.links.native.shovel import NativeShovel
    from penstock.protocols.listening.registry import Registry
    from penstock.router.broker import Broker

__all__ = ["SHOVEL", "Links"]

SHOVEL: Final = "shovel"
"""The component of shovels' parameters, as RabbitMQ has it."""

_Key = tuple[str, str]


class Links:
    """See the module. It is the component `shovel` of the broker's parameters, too."""

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        *,
        max_links: int,
        bridges: Sequence[Settings],
        receive_maximum: int,
        cluster: str,
    ) -> None:
        """Nothing runs before `start`.

        Args:
            broker: Whose messages are moved.
            registry: Its front ends, once there are some.
            max_links: Shovels that there may be, and links of federation.
            bridges: From the configuration; those of other workers' vhosts are theirs.
            receive_maximum: Messages that the gateway takes from an MQTT client at a time.
            cluster: The name of this gateway.

        """
        self._broker = broker
        self._local = Local(broker, registry)
        self._max = max_links
        self.federation: Final = Federation(broker, self._local, max_links=max_links, cluster=cluster)
        """The links of federation."""
        self._cluster = cluster
        self._settings = bridges
        self._receive_maximum = receive_maximum
        self._bridges: list[tuple[Bridge, asyncio.Task[None]]] = []
        self._links: dict[_Key, tuple[Link, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._started = False
        broker.parameters.components[SHOVEL] = self

    def start(self) -> None:
        """Begin all: front ends accept connections."""
        self._started = True
        for vhost in self._broker.vhosts:
            for parameter in self._broker.parameters.of(vhost, SHOVEL):
                self._begin(parameter, None)
        if self._settings:
            # Most gateways have no bridges, and then no start loads them. Shovels likewise.
            from penstock.protocols.links.mqtt.bridge import Bridge
        for settings in self._settings:
            if self._broker.elsewhere(settings.vhost) is None:
                user = settings.local_username or self._broker.users.default_user
                bridge = Bridge(settings, user, self._local, self._receive_maximum)
                self._bridges.append((bridge, asyncio.get_running_loop().create_task(bridge.run())))
        self.federation.start()

    async def stop(self) -> None:
        """End all, and wait for it."""
        self._started = False
        await self.federation.stop()
        for key in list(self._links):
            self._end(key)
        for _, task in self._bridges:
            task.cancel()
        if tasks := [*self._ending, *(task for _, task in self._bridges)]:
            await asyncio.wait(tasks)

    def __iter__(self) -> Iterator[Link]:
        return iter([*(link for link, _ in self._links.values()), *self.federation, *self.bridges])

    @property
    def bridges(self) -> list[Bridge]:
        """All bridges, as they are configured."""
        return [bridge for bridge, _ in self._bridges]

    def shovels(self, vhost: str) -> list[Link]:
        """Those of a vhost, by name."""
        return [link for (of, _), (link, _) in sorted(self._links.items()) if of == vhost]

    def restart(self, vhost: str, name: str) -> None:
        """End a link that is there, and begin it again at once."""
        parameter = self._broker.parameters.get(vhost, SHOVEL, name)
        if parameter is not None:
            self.changed(parameter, parameter)

    # As a component

    def check(self, parameter: Parameter, known: Parameter | None) -> Parameter:
        """See `Component.check`."""
        if known is not None:
            parameter = replace(parameter, value=unmasked(parameter.value, known.value))
        elif len(self._links) >= self._max:
            raise InvalidParameter(f"links.max_links is {self._max}", remedy="raise it, or delete a link")
        try:
            settings = shovel_settings(parameter.value)
        except ValueError as error:
            raise InvalidParameter(f"Validation failed\n\n{error}\n") from None
        identity = self._broker.users.identity(parameter.user) if parameter.user else None
        for vhost in local_vhosts(settings):
            if identity is not None and not self._broker.authorizer.enter(identity, vhost):
                told = f'user "{parameter.user}" may not connect to vhost "{vhost}"'
                raise InvalidParameter(f"Validation failed\n\n{told}\n")
        return parameter

    def changed(self, before: Parameter | None, now: Parameter | None) -> None:
        """See `Component.changed`."""
        if not self._started:
            return
        old = None if before is None else self._end((before.vhost, before.name))
        if now is not None:
            self._begin(now, old)

    def _end(self, key: _Key) -> asyncio.Task[None] | None:
        _, task = self._links.pop(key, (None, None))
        if task is not None and not task.done():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
            return task
        return None

    def _begin(self, parameter: Parameter, old: asyncio.Task[None] | None) -> None:
        """Run a link, once the `old` one of its name is over."""
        user = parameter.user or self._broker.users.default_user
        settings = shovel_settings(parameter.value)
        link: Shovel | NativeShovel
        if settings.native:
            from penstock.protocols.links.native.shovel import NativeShovel

            link = NativeShovel(parameter.vhost, parameter.name, settings, user, self._local)
        else:
            link = self._shovel_of(settings)(
                parameter.vhost, parameter.name, settings, user, self._local, self._cluster
            )
        task = asyncio.get_running_loop().create_task(self._run(link, old))
        self._links[parameter.vhost, parameter.name] = link, task

    @staticmethod
    def _shovel_of(settings: ShovelSettings) -> type[Shovel]:
        """The kind of a shovel by AMQP."""
        if AMQP10 in (settings.source.protocol, settings.destination.protocol):
            from penstock.protocols.links.amqp10.shovel import Amqp10Shovel

            return Amqp10Shovel
        from penstock.protocols.links.amqp.shovel import Shovel

        return Shovel

    async def _run(self, link: Shovel | NativeShovel, old: asyncio.Task[None] | None) -> None:
        if old is not None:
            await asyncio.wait([old])
        await link.run()
        if link.remaining == 0:
            self._broker.parameters.clear(link.vhost, SHOVEL, link.name)
            self._broker.tick.schedule()
