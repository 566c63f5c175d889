"""A shovel with AMQP 1.0 at one end or both.

    Receiver or Consumer --messages of AMQP 1.0--> addition --> Sender or Publisher
             <----------- settle ----------- InFlight <----- outcomes -----+

It has the promises of the other shovels: with `on-confirm` a message is settled at its source when the
destination has accepted it and all before it.

Source: rabbitmq.com/docs/shovel-dynamic; rabbit_amqp10_shovel.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

from pamqp import commands

from penstock.protocols.links.amqp.mover import Progress
from penstock.protocols.links.amqp.place import place_of
from penstock.protocols.links.amqp.shovel import Shovel
from penstock.protocols.links.amqp.uri import Uri, parse_uri
from penstock.protocols.links.amqp10.adding import Addition
from penstock.protocols.links.amqp10.beside import Consumer, Publisher
from penstock.protocols.links.amqp10.run import FromSource, Run, ToTarget, failed
from penstock.protocols.links.amqp10.source import Receiver
from penstock.protocols.links.amqp10.target import Sender
from penstock.protocols.links.amqp10.wire import Closed, Connection
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.terms import AMQP10

__all__ = ["Amqp10Shovel"]


class Amqp10Shovel(Shovel):
    """See the module."""

    async def _serve(self) -> None:
        self._ends = random.choice(self.settings.source.uris), random.choice(self.settings.destination.uris)
        source_uri, target_uri = map(parse_uri, self._ends)
        if self.remaining is None and isinstance(self.settings.source.delete_after, int):
            self.remaining = self.settings.source.delete_after
        if self.remaining == 0:
            return
        async with AsyncExitStack() as opened:
            target = await self._target(target_uri, opened)
            source = await self._source(source_uri, opened)
            if self.remaining == 0:
                return
            self._up()
            progress = Progress(self._moved, self._waiting)
            add = Addition(self.settings.destination, self._forwarded())
            run = Run(
                source, target, add, mode=self.settings.ack_mode, left=self.remaining, progress=progress
            )
            self._progress, self._end = progress, run.end
            try:
                await run.run()
            finally:
                self._end = None
                progress.pending = 0

    async def _source(self, uri: Uri, opened: AsyncExitStack) -> FromSource:
        source, settled = self.settings.source, self.settings.ack_mode == "no-ack"
        if source.protocol == AMQP10:
            link = Receiver(
                await self._connected("source", uri, opened),
                self._link_name,
                source.address,
                prefetch=source.prefetch,
                settled=settled,
                left=self.remaining,
            )
            await _attached("source", link)
            return link
        found = await self._open("source", uri, source.queue, source.queue_arguments, source.predeclared)
        connection, waiting = await opened.enter_async_context(found)
        queue = source.queue or await self._bound(connection)
        if self.remaining is None and source.delete_after == "queue-length":
            self.remaining = waiting
        await connection.call(commands.Basic.Qos(0, source.prefetch, False), commands.Basic.QosOk)
        return Consumer(connection, queue, source.consumer_arguments, settled=settled)

    async def _target(self, uri: Uri, opened: AsyncExitStack) -> ToTarget:
        destination, confirms = self.settings.destination, self.settings.ack_mode == "on-confirm"
        if destination.protocol == AMQP10:
            link = Sender(
                await self._connected("destination", uri, opened),
                self._link_name,
                destination.address,
                settled=not confirms,
            )
            await _attached("destination", link)
            return link
        found = await self._open(
            "destination", uri, destination.queue, destination.queue_arguments, destination.predeclared
        )
        connection, _ = await opened.enter_async_context(found)
        if confirms:
            await connection.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        return Publisher(connection, destination, self._change(connection.frame_max))

    @property
    def _link_name(self) -> str:
        return f"penstock shovel {self.name}"

    async def _connected(self, end: str, uri: Uri, opened: AsyncExitStack) -> Connection:
        try:
            place = place_of(uri, self._local, self._user)
            connection = await Connection.open(place, uri.vhost, product=self._link_name)
        except Closed as error:
            raise LinkError(f"{end}: {error.message}") from None
        except OSError as error:
            where = f"{uri.host}:{uri.port}" if uri.host else "the gateway itself"
            raise LinkError(f"{end}: no connection to {where}: {error.strerror or error}") from None
        return await opened.enter_async_context(connection)

    def _forwarded(self) -> dict[str, str]:
        """Application properties that say which shovel it was."""
        destination = self.settings.destination
        if not destination.forward_headers or destination.protocol != AMQP10:
            return {}
        return {"shovelled-by": self._cluster, "shovel-type": "dynamic", "shovel-name": self.name}


async def _attached(end: str, link: Receiver | Sender) -> None:
    try:
        await link.attach()
    except (Closed, OSError) as error:
        raise failed(end, error) from None
