"""Moves messages from one open connection to another: of a source's consumer into publishes at a target.

With `on-confirm` a message is acknowledged at its source when the target has confirmed it and all before it.
When either connection is lost both are closed: the source then delivers again what was not acknowledged. So
a fault may repeat up to a prefetch of messages, and loses none.

    source --deliver, header, body--> Relay --publish, header, body--> target
       <------------- ack ------------- InFlight <---- confirm -----------+
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.methods import Consume, QueueDeclare
from penstock.protocols.links.amqp.wire import Closed, Connection, Raw, method_of, raise_closed
from penstock.protocols.links.errors import LinkError

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.settings import AckMode

__all__ = ["End", "Mover", "Progress"]

_LOOK_S: Final = 5.0
"""Between two looks at how many messages wait at the source."""


@dataclass(frozen=True, slots=True)
class End:
    """One end, and what errors call it."""

    name: str
    connection: Connection

    def failed(self, error: Exception) -> LinkError:
        """The error of this end when its connection failed."""
        if isinstance(error, Closed):
            return LinkError(f"{self.name}: {error.message}")
        told = getattr(error, "strerror", None) or error
        return LinkError(f"{self.name}: the connection is lost: {told}")


@dataclass(slots=True)
class Progress:
    """The news of a mover."""

    moved: Callable[[int], None]
    """So many more messages are settled at the source, or with `no-ack` published."""
    waiting: Callable[[int], None]
    """So many wait at the source, at the last look."""
    pending: int = 0
    """Messages that are published and not confirmed."""


class Mover:
    """See the module. Of one run: from the opening of both connections to the loss of one."""

    def __init__(
        self,
        source: End,
        target: End,
        relay: Relay,
        *,
        queue: str,
        mode: AckMode,
        progress: Progress,
        arguments: Mapping[str, Any],
        consumer_tag: str = "",
        no_place: str,
    ) -> None:
        """A mover that `run` begins.

        Args:
            source: Has its prefetch already.
            target: With `on-confirm` it confirms already.
            relay: Makes publishes of deliveries.
            queue: At the source.
            mode: When a message is settled at the source.
            progress: Told of what happens.
            arguments: Of the consumer.
            consumer_tag: Of the consumer; "" = the source makes one.
            no_place: The error when the target routes a mandatory message nowhere.

        """
        self._source = source
        self._target = target
        self._relay = relay
        self._queue = queue
        self._mode = mode
        self._progress = progress
        self._arguments = dict(arguments)
        self._consumer_tag = consumer_tag
        self._no_place = no_place
        self._in_flight = InFlight()
        self._over = asyncio.Event()

    def consume(self) -> None:
        """Begin to take messages; again after `cancel`. Raises OSError."""
        self._source.connection.send(
            Consume(
                queue=self._queue,
                consumer_tag=self._consumer_tag,
                no_ack=self._mode == "no-ack",
                arguments=dict(self._arguments),
            )
        )

    def cancel(self) -> None:
        """Take no more; those that came already are moved. It has a consumer tag. Raises OSError."""
        self._source.connection.send(commands.Basic.Cancel(self._consumer_tag))

    def end(self) -> None:
        """Let `run` return."""
        self._over.set()

    async def run(self) -> None:
        """Until `end`.

        Raises:
            LinkError: an end refuses something, or is lost.

        """
        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(one()) for one in (self._take, self._take_confirms, self._look)]
            await self._over.wait()
            for task in ends:
                task.cancel()

    async def _take(self) -> None:
        """Publish what comes from the source."""
        relay, source, target = self._relay, self._source, self._target
        while True:
            try:
                await source.connection.taken_by(relay)
            except OSError as error:
                raise source.failed(error) from None
            for raw in relay.others:
                self._said(raw)
            count = sum(count for _, count in relay.runs)
            if self._mode == "on-confirm":
                for run in relay.runs:
                    self._in_flight.published(*run)
            if relay.out:
                try:
                    target.connection.write((relay.out,))
                    await target.connection.drain()
                except OSError as error:
                    raise target.failed(error) from None
            self._progress.pending = len(self._in_flight)
            await self._settle_at_once(count)

    async def _settle_at_once(self, count: int) -> None:
        """Acknowledge what did not pass, and with `on-publish` what did."""
        tags = [(tag, False) for tag in self._relay.dropped] if self._mode != "no-ack" else []
        if count and self._mode == "on-publish":
            first, more = self._relay.runs[-1]
            tags = [(first + more - 1, True), *tags]
        await self._acknowledge(tags)
        if count and self._mode != "on-confirm":
            self._progress.moved(count)

    async def _acknowledge(self, tags: list[tuple[int, bool]]) -> None:
        if not tags:
            return
        source = self._source
        try:
            source.connection.acknowledge(tags)
            await source.connection.drain()
        except OSError as error:
            raise source.failed(error) from None

    def _said(self, raw: Raw) -> None:
        try:
            raise_closed(raw)
        except Closed as error:
            raise self._source.failed(error) from None
        method: Any = method_of(raw)
        if isinstance(method, commands.Basic.Cancel):
            raise LinkError(f"{self._source.name}: queue '{self._queue}' was deleted")
        if isinstance(method, commands.Queue.DeclareOk):
            self._progress.waiting(method.message_count or 0)

    async def _look(self) -> None:
        """Count what waits at the source."""
        while True:
            try:
                self._source.connection.send(QueueDeclare(queue=self._queue, passive=True))
            except OSError as error:
                raise self._source.failed(error) from None
            await asyncio.sleep(_LOOK_S)

    async def _take_confirms(self) -> None:
        """Acknowledge at the source what the target has confirmed."""
        in_flight, target = self._in_flight, self._target
        while True:
            try:
                await target.connection.taken_by(in_flight)
            except OSError as error:
                raise target.failed(error) from None
            tag, count = in_flight.settled()
            self._progress.pending = len(in_flight)
            if count:
                await self._acknowledge([(tag, True)])
                self._progress.moved(count)
            for raw in in_flight.others:
                self._refused(raw)

    def _refused(self, raw: Raw) -> None:
        """A frame of the target that confirms nothing. Raises LinkError: it refuses something."""
        target = self._target
        try:
            raise_closed(raw)
        except Closed as error:
            raise target.failed(error) from None
        method: Any = method_of(raw)
        if isinstance(method, commands.Basic.Return):
            raise LinkError(self._no_place)
        if isinstance(method, commands.Basic.Nack):
            raise LinkError(f"{target.name}: it refuses messages; raise the limit of the queue that is full")
