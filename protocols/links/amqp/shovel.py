"""A shovel: takes messages from a queue or an exchange of one broker, and publishes them at another one.

With `on-confirm` a message is acknowledged at its source when the destination has confirmed it and all before
it. When either connection is lost both are closed: the source then delivers again what was not acknowledged.
So a fault may repeat up to a prefetch of messages, and loses none.

    source --deliver, header, body--> rewritten method and header --> destination
       <------------- ack ----------------------- confirm <-----------------+

Headers and bodies keep their bytes, but for what the settings add.
Source: rabbitmq.com/docs/shovel-dynamic; rabbit_amqp091_shovel.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pamqp.frame
from pamqp import commands

from penstock.protocols.links.amqp.header import with_entry, with_first, with_properties
from penstock.protocols.links.amqp.place import place_of
from penstock.protocols.links.amqp.settings import Destination, ShovelSettings
from penstock.protocols.links.amqp.under_way import UnderWay, delivery_tag, is_delivery
from penstock.protocols.links.amqp.uri import Uri, masked, parse_uri
from penstock.protocols.links.amqp.wire import CHANNEL, HEADER, METHOD, Closed, Connection, Raw, method_of
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.link import Link

if TYPE_CHECKING:
    from penstock.protocols.links.local import Local

__all__ = ["Shovel"]

_LOOK_S: Final = 5.0
"""Between two looks at how many messages wait at the source."""
_ROUTE_AT: Final = 9
"""In a basic.deliver, behind the start of the delivery tag: tag u64, redelivered u8."""
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
_FORWARDED: Final = (
    "src_uri",
    "dest_uri",
    "src_queue",
    "src_exchange",
    "src_exchange_key",
    "dest_queue",
    "dest_exchange",
    "dest_exchange_key",
)
"""Facts that the header x-shovelled has."""
_FRAME: Final = struct.Struct(">BHI")


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
        self.pending = 0
        """Messages that are published and not confirmed."""

    def facts(self) -> Mapping[str, Any]:
        source, destination = self.settings.source, self.settings.destination
        optional = {
            "src_queue": source.queue,
            "src_exchange": source.exchange if source.queue is None else None,
            "src_exchange_key": source.key if source.queue is None else None,
            "dest_queue": destination.queue,
            "dest_exchange": destination.exchange,
            "dest_exchange_key": destination.key,
        }
        src_uri, dest_uri = (masked(uri).partition("?")[0] for uri in self._ends)
        return {
            "src_uri": src_uri,
            "src_protocol": "amqp091",
            "dest_uri": dest_uri,
            "dest_protocol": "amqp091",
            **{name: one for name, one in optional.items() if one is not None},
            "ack_mode": self.settings.ack_mode,
            "remaining": "unlimited" if self.remaining is None else self.remaining,
            "pending": self.pending,
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
                try:
                    await _Run(self, taken, target, queue, self._changes()).run()
                finally:
                    self.pending = 0

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
        declare = commands.Queue.Declare(queue=queue or "", passive=True)
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
                declare = commands.Queue.Declare(queue=queue, durable=True, arguments=dict(arguments))
            except OSError as error:
                where = f"{uri.host}:{uri.port}" if uri.host else "the gateway itself"
                raise LinkError(f"{end}: no connection to {where}: {error.strerror or error}") from None

    async def _bound(self, source: Connection) -> str:
        """The name of a queue of the shovel's own, which gets what is published from now on."""
        exchange, key = self.settings.source.exchange, self.settings.source.key
        arguments = dict(self.settings.source.queue_arguments)
        try:
            made = await source.call(
                commands.Queue.Declare(queue="", exclusive=True, arguments=arguments),
                commands.Queue.DeclareOk,
            )
            bind = commands.Queue.Bind(queue=made.queue, exchange=exchange, routing_key=key)
            await source.call(bind, commands.Queue.BindOk)
        except Closed as error:
            raise LinkError(f"source: {error.message}") from None
        return str(made.queue)

    def _changes(self) -> list[Callable[[bytes], bytes]]:
        """The functions that change the header of each message."""
        destination = self.settings.destination
        changes: list[Callable[[bytes], bytes]] = []
        if destination.properties:
            changes.append(lambda frame: with_properties(frame, destination.properties))
        if destination.forward_headers:
            facts = self.facts()
            table = {
                "shovelled-by": self._cluster,
                "shovel-type": "dynamic",
                "shovel-name": self.name,
                "shovel-vhost": self.vhost,
                **{name.replace("_", "-"): facts[name] for name in _FORWARDED if name in facts},
            }
            changes.append(lambda frame: with_first(frame, b"x-shovelled", table))
        if destination.timestamp_header:
            changes.append(
                lambda frame: with_entry(
                    frame, b"x-shovelled-timestamp", b"l" + struct.pack(">q", int(time.time() * 1000))
                )
            )
        return changes


class _Opened:
    """An open connection as a context, with what was found there."""

    def __init__(self, connection: Connection, waiting: int) -> None:
        self._connection = connection
        self._waiting = waiting

    async def __aenter__(self) -> tuple[Connection, int]:
        return self._connection, self._waiting

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


class _Run:
    """From one loss of a connection to the next."""

    def __init__(
        self,
        shovel: Shovel,
        source: Connection,
        target: Connection,
        queue: str,
        changes: list[Callable[[bytes], bytes]],
    ) -> None:
        self._shovel = shovel
        self._source = source
        self._target = target
        self._queue = queue
        self._changes = changes
        self._mode = shovel.settings.ack_mode
        destination = shovel.settings.destination
        self._publish = _publisher(destination)
        self._under_way = UnderWay(
            no_place=f"destination: there is no queue '{destination.queue}' any more",
            refused="destination: it refuses messages; raise the limit of the queue that is full",
        )
        self._left = shovel.remaining
        """Messages that are still to be published; None: all."""
        self._skipping = False
        self._over = asyncio.Event()

    async def run(self) -> None:
        arguments = dict(self._shovel.settings.source.consumer_arguments)
        self._source.send(
            commands.Basic.Consume(
                queue=self._queue, consumer_tag="", no_ack=self._mode == "no-ack", arguments=arguments
            )
        )
        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(one()) for one in (self._take, self._take_confirms, self._look)]
            await self._over.wait()
            for task in ends:
                task.cancel()

    async def _take(self) -> None:
        """Publish what comes from the source."""
        while True:
            out: list[bytes] = []
            tag = count = 0
            for raw in await self._frames(self._source, "source"):
                if raw[0] != METHOD:
                    if not self._skipping:
                        out.append(self._changed(raw[1]) if raw[0] == HEADER else raw[1])
                elif is_delivery(raw):
                    self._skipping = self._left == 0
                    if self._skipping:
                        continue
                    if self._left is not None:
                        self._left -= 1
                    tag = delivery_tag(raw)
                    count += 1
                    out.append(self._publish(raw[1]))
                    if self._mode == "on-confirm":
                        self._under_way.published(tag)
                else:
                    self._said(method_of(raw))
            if out:
                self._target.write(out)
                await self._target.drain()
                self._shovel.pending = len(self._under_way)
            if count and self._mode != "on-confirm":
                if self._mode == "on-publish":
                    self._source.send(commands.Basic.Ack(tag, multiple=True))
                    await self._source.drain()
                self._moved(count)

    async def _frames(self, connection: Connection, end: str) -> list[Raw]:
        try:
            return await connection.frames()
        except Closed as error:
            raise LinkError(f"{end}: {error.message}") from None
        except OSError as error:
            raise LinkError(f"{end}: the connection is lost: {error.strerror or error}") from None

    def _changed(self, frame: bytes) -> bytes:
        for change in self._changes:
            frame = change(frame)
        if self._changes and len(frame) > self._target.frame_max:
            raise LinkError("destination: the header of a message has no room for what the shovel adds")
        return frame

    def _said(self, method: Any) -> None:
        if isinstance(method, commands.Basic.Cancel):
            raise LinkError(f"source: queue '{self._queue}' was deleted")
        if isinstance(method, commands.Queue.DeclareOk):
            self._shovel.lag = method.message_count

    async def _look(self) -> None:
        """Count what waits at the source."""
        while True:
            self._source.send(commands.Queue.Declare(queue=self._queue, passive=True))
            await asyncio.sleep(_LOOK_S)

    async def _take_confirms(self) -> None:
        """Acknowledge at the source what the target has confirmed."""
        while True:
            frames = await self._frames(self._target, "destination")
            try:
                for raw in frames:
                    if raw[0] == METHOD:
                        self._under_way.confirmed(raw)
            finally:
                # A refusal may stand behind confirms.
                tag, count = self._under_way.settled()
                if count:
                    self._source.send(commands.Basic.Ack(tag, multiple=True))
                    self._moved(count)
            await self._source.drain()

    def _moved(self, count: int) -> None:
        shovel = self._shovel
        shovel.counts.forwarded += count
        shovel.pending = len(self._under_way)
        if shovel.remaining is not None:
            shovel.remaining -= count
            if shovel.remaining <= 0:
                self._over.set()


def _publisher(destination: Destination) -> Callable[[bytes], bytes]:
    """The function that makes a basic.publish of a basic.deliver, both as frames."""
    if destination.queue is not None:
        return _constant("", destination.queue, mandatory=True)
    if destination.exchange is not None and destination.key is not None:
        return _constant(destination.exchange, destination.key, mandatory=False)
    exchange = None if destination.exchange is None else _short(destination.exchange)
    key = None if destination.key is None else _short(destination.key)

    def publish(frame: bytes) -> bytes:
        at = 12 + frame[11] + _ROUTE_AT
        key_at = at + 1 + frame[at]
        route = (frame[at:key_at] if exchange is None else exchange) + (
            frame[key_at : key_at + 1 + frame[key_at]] if key is None else key
        )
        payload = _PUBLISH + route + b"\x00"
        return _FRAME.pack(METHOD, CHANNEL, len(payload)) + payload + b"\xce"

    return publish


def _constant(exchange: str, key: str, *, mandatory: bool) -> Callable[[bytes], bytes]:
    frame = pamqp.frame.marshal(
        commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory), CHANNEL
    )
    return lambda _: frame


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data
