"""A shovel: takes messages from a queue or an exchange of one broker, and publishes them at another one.

Headers and bodies keep their bytes, but for what the settings add.
Source: rabbitmq.com/docs/shovel-dynamic; rabbit_amqp091_shovel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pamqp.frame
from pamqp import commands

from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.header import element, encoded, short_string
from penstock.protocols.links.amqp.methods import Publish, QueueBind, QueueDeclare
from penstock.protocols.links.amqp.mover import End, Mover, Progress
from penstock.protocols.links.amqp.place import place_of
from penstock.protocols.links.amqp.settings import Destination, ShovelSettings
from penstock.protocols.links.amqp.uri import Uri, masked, parse_uri
from penstock.protocols.links.amqp.wire import CHANNEL, Closed, Connection
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.link import Link
from penstock.protocols.links.terms import AMQP

if TYPE_CHECKING:
    from penstock.protocols.links.local import Local

__all__ = ["Shovel"]

_FORWARDED: Final = (
    "src_uri",
    "dest_uri",
    "src_address",
    "src_queue",
    "src_exchange",
    "src_exchange_key",
    "dest_queue",
    "dest_exchange",
    "dest_exchange_key",
)
"""Facts that the header x-shovelled has."""


_CONSUMER: Final = "shovel"
"""The consumer's tag, which each delivery repeats: a source's own one has 31 bytes."""


class Shovel(Link):
    """See the module."""

    kind = "shovel"

    def __init__(
        self, vhost: str, name: str, settings: ShovelSettings, user: str, local: Local, cluster: str
    ) -> None:
        """A shovel that `run` begins.

        Args:
            vhost: Of the parameter.
            name: Of the parameter.
            settings: Its ends, and how it moves messages.
            user: The user who logs in where a URI names no host.
            local: The gateway's own side.
            cluster: The name of this gateway, for headers.

        """
        super().__init__(vhost, name, settings.reconnect_delay_s)
        self.settings: Final = settings
        self._user = user
        self._local = local
        self._cluster = cluster
        self._ends = settings.source.uris[0], settings.destination.uris[0]
        """The URIs in use."""
        self.remaining: int | None = None
        """Messages left until it is over; None: it never is."""
        self.lag: int | None = None
        """Messages that wait at the source, when they were last counted."""
        self._end: Callable[[], None] | None = None
        """Ends the run, while there is one."""
        self._progress: Progress | None = None

    def facts(self) -> Mapping[str, Any]:
        source, destination = self.settings.source, self.settings.destination
        by_exchange = source.queue is None and source.protocol == AMQP
        optional = {
            "src_address": source.address or None,
            "src_queue": source.queue,
            "src_exchange": source.exchange if by_exchange else None,
            "src_exchange_key": source.key if by_exchange else None,
            "dest_address": destination.address or None,
            "dest_queue": destination.queue,
            "dest_exchange": destination.exchange,
            "dest_exchange_key": destination.key,
        }
        src_uri, dest_uri = (masked(uri).partition("?")[0] for uri in self._ends)
        return {
            "src_uri": src_uri,
            "src_protocol": source.protocol,
            "dest_uri": dest_uri,
            "dest_protocol": destination.protocol,
            **{name: one for name, one in optional.items() if one is not None},
            "ack_mode": self.settings.ack_mode,
            "remaining": "unlimited" if self.remaining is None else self.remaining,
            "pending": 0 if self._progress is None else self._progress.pending,
            "messages_ready": self.lag,
        }

    async def _serve(self) -> None:
        source, destination = self.settings.source, self.settings.destination
        self._ends = random.choice(source.uris), random.choice(destination.uris)
        source_uri, target_uri = map(parse_uri, self._ends)
        arguments = source.queue_arguments, destination.queue_arguments
        async with await self._open(
            "destination", target_uri, destination.queue, arguments[1], destination.predeclared
        ) as (target, _):
            if self.settings.ack_mode == "on-confirm":
                await target.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            async with await self._open(
                "source", source_uri, source.queue, arguments[0], source.predeclared, target.frame_max
            ) as (taken, waiting):
                queue = source.queue or await self._bound(taken)
                if self.remaining is None and source.delete_after != "never":
                    self.remaining = waiting if source.delete_after == "queue-length" else source.delete_after
                if self.remaining == 0:
                    return
                await taken.call(commands.Basic.Qos(0, source.prefetch, False), commands.Basic.QosOk)
                self._up()
                await self._move(End("source", taken), End("destination", target), queue)

    async def _open(
        self,
        end: str,
        uri: Uri,
        queue: str | None,
        arguments: Mapping[str, Any],
        predeclared: bool,
        frame_max: int = 128 << 10,
    ) -> _Opened:
        """A connection, and how many messages wait in `queue`, which is made if it is not there."""
        product = f"penstock shovel {self.name}"
        declare = QueueDeclare(queue=queue or "", passive=True)
        while True:
            try:
                place = place_of(uri, self._local, self._user)
                connection = await Connection.open(place, uri.vhost, frame_max=frame_max, product=product)
                if queue is None:
                    return _Opened(connection, 0)
                try:
                    found = await connection.call(declare, commands.Queue.DeclareOk)
                    return _Opened(connection, found.message_count or 0)
                except BaseException:
                    await connection.close()
                    raise
            except Closed as error:
                # A refusal ends the channel, and here its connection.
                if error.code != 404 or not declare.passive or predeclared or queue is None:
                    raise LinkError(f"{end}: {error.message}") from None
                declare = QueueDeclare(queue=queue, durable=True, arguments=dict(arguments))
            except OSError as error:
                where = f"{uri.host}:{uri.port}" if uri.host else "the gateway itself"
                raise LinkError(f"{end}: no connection to {where}: {error.strerror or error}") from None

    async def _bound(self, source: Connection) -> str:
        """The name of a queue of the shovel's own, which gets what is published from now on."""
        exchange, key = self.settings.source.exchange, self.settings.source.key
        arguments = dict(self.settings.source.queue_arguments)
        try:
            made = await source.call(
                QueueDeclare(queue="", exclusive=True, arguments=arguments),
                commands.Queue.DeclareOk,
            )
            bind = QueueBind(queue=made.queue, exchange=exchange, routing_key=key)
            await source.call(bind, commands.Queue.BindOk)
        except Closed as error:
            raise LinkError(f"source: {error.message}") from None
        return str(made.queue)

    async def _move(self, source: End, target: End, queue: str) -> None:
        destination = self.settings.destination
        progress = Progress(self._moved, self._waiting)
        mover = Mover(
            source,
            target,
            _relay(destination, self._change(target.connection.frame_max), self.remaining),
            queue=queue,
            mode=self.settings.ack_mode,
            progress=progress,
            arguments=self.settings.source.consumer_arguments,
            consumer_tag=_CONSUMER,
            no_place=f"destination: there is no queue '{destination.queue}' any more",
        )
        self._progress, self._end = progress, mover.end
        try:
            mover.consume()
            await mover.run()
        finally:
            self._end = None
            progress.pending = 0

    def _waiting(self, count: int) -> None:
        self.lag = count

    def _moved(self, count: int) -> None:
        self.counts.forwarded += count
        if self.remaining is not None:
            self.remaining -= count
            if self.remaining <= 0 and self._end is not None:
                self._end()

    def _change(self, frame_max: int) -> HeaderEdit | None:
        """The change of each message's header; None: it stays as it is."""
        destination = self.settings.destination
        array, firsts = None, None
        if destination.forward_headers:
            facts = self.facts()
            table = {
                "shovelled-by": self._cluster,
                "shovel-type": "dynamic",
                "shovel-name": self.name,
                "shovel-vhost": self.vhost,
                **{name.replace("_", "-"): facts[name] for name in _FORWARDED if name in facts},
            }
            array, firsts = b"x-shovelled", (element(table), element(table))
        stamp = b"x-shovelled-timestamp" if destination.timestamp_header else None
        if not (destination.properties or array or stamp):
            return None
        return HeaderEdit(
            frame_max=frame_max,
            end="destination",
            properties=encoded(destination.properties),
            array=array,
            firsts=firsts,
            stamp=stamp,
        )


class _Opened:
    """An open connection as a context, with what was found there."""

    def __init__(self, connection: Connection, waiting: int) -> None:
        self._connection = connection
        self._waiting = waiting

    async def __aenter__(self) -> tuple[Connection, int]:
        return self._connection, self._waiting

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


def _relay(destination: Destination, change: HeaderEdit | None, left: int | None) -> Relay:
    """The relay to the destination; `left`: so many messages, None = all."""
    most = -1 if left is None else left
    if destination.queue is not None:
        publish = Publish(exchange="", routing_key=destination.queue, mandatory=True)
        frame = pamqp.frame.marshal(publish, CHANNEL)
        return Relay(channel=CHANNEL, publish=frame, change=change, left=most)
    return Relay(
        channel=CHANNEL,
        exchange=None if destination.exchange is None else short_string(destination.exchange),
        key=None if destination.key is None else short_string(destination.key),
        change=change,
        left=most,
    )
