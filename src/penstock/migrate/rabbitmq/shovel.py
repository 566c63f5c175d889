"""Drains one queue into the queue of the same name elsewhere, in order, and at least once.

A message is published with a confirm at the target. It is acknowledged at the source when the target has
confirmed it and all before it. A connection that is lost on either side ends the run: the source then gives
back what was not acknowledged, and the next run takes it again. So a kill may repeat the messages that were
under way, at most `WINDOW` of a queue, and loses none.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pamqp.frame
from pamqp import commands

from penstock.migrate.rabbitmq.copies import harmless
from penstock.migrate.rabbitmq.wire import CHANNEL, HEADER, METHOD, Connection, Place, Raw, method_of
from penstock.migrate.report import MigrationError

__all__ = ["WINDOW", "Shovel"]

WINDOW: Final = 1000
"""Messages under way at most."""
_PAUSE_S: Final = 0.2
"""Between two looks at a queue that others still publish into."""
_STARVED_S: Final = 30.0
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_ACK: Final = b"\x00\x3c\x00\x50"
_TAG: Final = struct.Struct(">Q")


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
    """Called with a number of messages that are moved."""

    async def run(self) -> None:
        """Until the queue is empty.

        Raises:
            Closed: a broker refused something; `code` says what.
            MigrationError: the target does not take the messages.
            OSError: a connection is lost. Run it again.

        """
        async with await Connection.open(self.target, self.vhost) as target:
            await target.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            async with await Connection.open(self.source, self.vhost, frame_max=target.frame_max) as source:
                await source.call(commands.Basic.Qos(0, WINDOW, False), commands.Basic.QosOk)
                await _Run(self, source, target).run()


class _Run:
    """From one loss of a connection to the next."""

    def __init__(self, shovel: Shovel, source: Connection, target: Connection) -> None:
        self._shovel = shovel
        self._source = source
        self._target = target
        publish = commands.Basic.Publish(exchange="", routing_key=shovel.queue, mandatory=True)
        self._publish = pamqp.frame.marshal(publish, CHANNEL)
        self._under_way: deque[int] = deque()
        """Delivery tags of what is published and not acknowledged at the source."""
        self._first = 1
        """The publish number of the first of them."""
        self._confirmed: set[int] = set()
        """Publish numbers behind it that are confirmed."""
        self._moved_at = 0.0
        self._looking = False
        self._seen_empty = False
        """Whether the last look found nothing. RabbitMQ may answer one look before deliveries that left the
        queue, and answers the next one behind them."""

    async def run(self) -> None:
        consume = commands.Basic.Consume(queue=self._shovel.queue, consumer_tag="penstock-migrate")
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
            raise min(errors.exceptions, key=lambda error: not isinstance(error, MigrationError)) from None

    async def _take_messages(self) -> None:
        """Until the source has no more."""
        while True:
            out: list[bytes] = []
            for raw in await self._source.frames():
                if raw[0] != METHOD:
                    out.append(harmless(raw[1]) if raw[0] == HEADER else raw[1])
                elif raw[1][7:11] == _DELIVER:
                    # The tag stands behind the consumer's tag.
                    at = 12 + raw[1][11]
                    self._seen_empty = False
                    self._under_way.append(_TAG.unpack_from(raw[1], at)[0])
                    out.append(self._publish)
                elif await self._is_done(method_of(raw)):
                    return
            if out:
                self._moved_at = asyncio.get_running_loop().time()
                self._target.write(out)
                await self._target.drain()

    async def _is_done(self, method: Any) -> bool:
        """Whether a reply of the source says that nothing is left."""
        if isinstance(method, commands.Basic.Cancel):
            raise MigrationError(
                f"queue '{self._shovel.queue}' was deleted at the source", remedy="nothing is left to move"
            )
        if not isinstance(method, commands.Queue.DeclareOk):
            return False
        self._looking = False
        if self._under_way:
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
            self._source.send(commands.Queue.Declare(queue=self._shovel.queue, passive=True))

    async def _take_confirms(self) -> None:
        while True:
            frames = await self._target.frames()
            try:
                for raw in frames:
                    if raw[0] == METHOD:
                        self._take_confirm(raw)
            finally:
                # A refusal may stand behind confirms.
                self._settle()
            await self._source.drain()

    def _take_confirm(self, raw: Raw) -> None:
        if raw[1][7:11] == _ACK:
            (number,) = _TAG.unpack_from(raw[1], 11)
            multiple = raw[1][19] & 1
            self._confirmed.update(range(self._first, number + 1) if multiple else (number,))
            return
        method: Any = method_of(raw)
        queue = self._shovel.queue
        if isinstance(method, commands.Basic.Return):
            raise MigrationError(f"the target has no queue '{queue}'", remedy="move the definitions first")
        if isinstance(method, commands.Basic.Nack):
            raise MigrationError(
                f"queue '{queue}' of the target refuses messages", remedy="raise its limit (x-max-length)"
            )

    def _settle(self) -> None:
        """Acknowledge at the source all messages up to the first that is not confirmed."""
        tag = moved = 0
        while self._first in self._confirmed:
            self._confirmed.remove(self._first)
            self._first += 1
            tag = self._under_way.popleft()
            moved += 1
        if moved:
            self._source.send(commands.Basic.Ack(tag, multiple=True))
            self._shovel.on_moved(moved)
            if not self._under_way:
                self._look()
