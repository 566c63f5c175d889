"""Drains one queue into the queue of the same name elsewhere, in order, and at least once.

A message is published with a confirm at the target. It is acknowledged at the source when the target has
confirmed it and all before it. A connection that is lost on either side ends the run: the source then gives
back what was not acknowledged, and the next run takes it again. So a kill may repeat the messages that were
under way, at most `WINDOW` of a queue, and loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pamqp.frame
from pamqp import commands

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.migrate.report import MigrationError
from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.methods import Consume, Publish, QueueDeclare
from penstock.protocols.links.amqp.place import Place
from penstock.protocols.links.amqp.wire import CHANNEL, Connection, method_of, raise_closed
from penstock.protocols.links.errors import LinkError

__all__ = ["WINDOW", "Shovel"]

WINDOW: Final = 1000
"""Messages under way at most."""
_PAUSE_S: Final = 0.2
"""Between two looks at a queue that others still publish into."""
_STARVED_S: Final = 30.0


@dataclass(slots=True)
class Shovel:
    """One queue."""

    source: Place
    target: Place
    vhost: str
    queue: str
    follow: bool
    """Whether it goes on when the queue is empty."""
    on_moved: Callable[[int], None]
    """Called with a number of messages that are moved; with 0 when both connections are open."""

    async def run(self) -> None:
        """Until the queue is empty.

        Raises:
            Closed: a broker refused something; `code` says what.
            LinkError: the target does not take the messages.
            MigrationError: the source does not give them.
            OSError: a connection is lost. Run it again.

        """
        product = "penstock migrate"
        async with await Connection.open(self.target, self.vhost, product=product) as target:
            await target.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            async with await Connection.open(
                self.source, self.vhost, frame_max=target.frame_max, product=product
            ) as source:
                await source.call(commands.Basic.Qos(0, WINDOW, False), commands.Basic.QosOk)
                self.on_moved(0)
                await _Run(self, source, target).run()


class _Run:
    """From one loss of a connection to the next."""

    def __init__(self, shovel: Shovel, source: Connection, target: Connection) -> None:
        self._shovel = shovel
        self._source = source
        self._target = target
        self._in_flight = InFlight()
        self._moved_at = 0.0
        self._looking = False
        self._seen_empty = False
        """Whether the last look found nothing. RabbitMQ may answer one look before deliveries that left the
        queue, and answers the next one behind them."""

    async def run(self) -> None:
        consume = Consume(queue=self._shovel.queue, consumer_tag="penstock-migrate")
        self._moved_at = asyncio.get_running_loop().time()
        self._source.send(consume)
        self._look()
        try:
            async with asyncio.TaskGroup() as tasks:
                confirms = tasks.create_task(self._take_confirms())
                await self._take_messages()
                confirms.cancel()
        except ExceptionGroup as errors:
            # Both sides may fail at once; the reason that a broker gave is worth more.
            raise min(errors.exceptions, key=lambda error: not isinstance(error, PenstockError)) from None

    async def _take_messages(self) -> None:
        """Until the source has no more."""
        publish = Publish(exchange="", routing_key=self._shovel.queue, mandatory=True)
        relay = Relay(
            channel=CHANNEL,
            publish=pamqp.frame.marshal(publish, CHANNEL),
            # The copies of a stored message are stored already.
            change=HeaderEdit(frame_max=self._target.frame_max, end="target", lowers_copies=True),
        )
        while True:
            await self._source.taken_by(relay)
            for run in relay.runs:
                self._seen_empty = False
                self._in_flight.published(*run)
            if relay.out:
                self._moved_at = asyncio.get_running_loop().time()
                self._target.write((relay.out,))
                await self._target.drain()
            for raw in relay.others:
                raise_closed(raw)
                if await self._is_done(method_of(raw)):
                    return

    async def _is_done(self, method: Any) -> bool:
        """Whether a reply of the source says that nothing is left."""
        if isinstance(method, commands.Basic.Cancel):
            raise MigrationError(
                f"queue '{self._shovel.queue}' was deleted at the source", remedy="nothing is left to move"
            )
        if not isinstance(method, commands.Queue.DeclareOk):
            return False
        self._looking = False
        if self._in_flight:
            return False  # the last confirm looks again
        is_empty = method.message_count == 0
        if is_empty and self._seen_empty and not self._shovel.follow:
            return True
        if is_empty and not self._seen_empty:
            self._seen_empty = True
        else:
            self._check_that_it_moves(method.message_count or 0)
            await asyncio.sleep(_PAUSE_S)
        self._look()
        return False

    def _check_that_it_moves(self, ready: int) -> None:
        if ready and asyncio.get_running_loop().time() - self._moved_at > _STARVED_S:
            raise MigrationError(
                f"queue '{self._shovel.queue}' gives its messages to another consumer only",
                remedy="stop its single active or exclusive consumer",
            )

    def _look(self) -> None:
        """Ask how many messages are ready; the answer comes behind the deliveries that are sent already."""
        if not self._looking:
            self._looking = True
            self._source.send(QueueDeclare(queue=self._shovel.queue, passive=True))

    async def _take_confirms(self) -> None:
        while True:
            await self._target.taken_by(self._in_flight)
            self._settle()
            for raw in self._in_flight.others:
                raise_closed(raw)
                self._check(method_of(raw))
            await self._source.drain()

    def _check(self, method: Any) -> None:
        """Raises LinkError: the target refuses a message."""
        queue = f"queue '{self._shovel.queue}'"
        if isinstance(method, commands.Basic.Return):
            raise LinkError(f"the target has no {queue}; move the definitions first")
        if isinstance(method, commands.Basic.Nack):
            raise LinkError(f"{queue} of the target refuses messages; raise its limit (x-max-length)")

    def _settle(self) -> None:
        """Acknowledge at the source all messages up to the first that is not confirmed."""
        tag, moved = self._in_flight.settled()
        if moved:
            self._source.send(commands.Basic.Ack(tag, multiple=True))
            self._shovel.on_moved(moved)
            if not self._in_flight:
                self._look()
