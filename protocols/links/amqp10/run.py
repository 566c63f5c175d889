"""Moves messages of AMQP 1.0 from an open source to an open destination, until one of them is lost.

Both may be links of AMQP 1.0, or ends by 0-9-1 that translate. See `amqp/mover`, its twin for 0-9-1 alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp.mover import Progress
from penstock.protocols.links.amqp10._messages import Messages
from penstock.protocols.links.amqp10.adding import Addition
from penstock.protocols.links.errors import LinkError

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.settings import AckMode

__all__ = ["FromSource", "Refused", "Run", "ToTarget", "failed"]

_ENDS: Final = ("source: ", "destination: ")
_LOOK_S: Final = 5.0
"""Between two looks at how many messages wait at the source."""


class FromSource(Protocol):
    """Where messages come from. Its errors are those of a connection."""

    waiting: int | None
    """Messages that wait there, when it was last told; None: it never was."""
    messages: Messages
    """Of the last `take`."""

    async def take(self) -> list[tuple[int, int]]:
        """Take the next messages: the number of the first one, and how many follow on it, with it."""

    def settle(self, number: int, count: int, /) -> None:
        """Settle the messages up to this one, which are `count`."""

    def look(self) -> None:
        """Ask how many messages wait."""

    async def drain(self) -> None:
        """Wait until it takes more."""


class ToTarget(Protocol):
    """Where messages go. Its errors are those of a connection, or LinkError when it refuses one."""

    async def publish(self, messages: Messages, /) -> None:
        """Send messages; they are gone then."""

    async def take(self, in_flight: InFlight, /) -> None:
        """Take the next confirms. Raises Refused when all that came was looked at."""


class Refused(LinkError):
    """The destination refuses a message, maybe sooner than it accepts others that were sent before."""

    def __init__(self, message: str, before: int) -> None:
        super().__init__(message)
        self.before = before
        """How many messages were sent before that one."""


def failed(end: str, error: Exception) -> LinkError:
    """The error of an end when its connection failed, or it refused something."""
    if isinstance(error, LinkError):
        return error if error.message.startswith(_ENDS) else LinkError(f"{end}: {error.message}")
    return LinkError(f"{end}: the connection is lost: {getattr(error, 'strerror', None) or error}")


class Run:
    """See the module."""

    def __init__(
        self,
        source: FromSource,
        target: ToTarget,
        add: Addition,
        *,
        mode: AckMode,
        left: int | None,
        progress: Progress,
    ) -> None:
        """A run that `run` begins.

        Args:
            source: Open.
            target: Open.
            add: To each message.
            mode: When a message is settled at the source.
            left: Messages that may still be moved; None = all.
            progress: Told of what happens.

        """
        self._source = source
        self._target = target
        self._add = add
        self._mode = mode
        self._left = left
        self._progress = progress
        self._in_flight = InFlight()
        self._refusal: Refused | None = None
        """Nothing is sent any more, and what was sent before that message is waited for."""
        self._over = asyncio.Event()

    def end(self) -> None:
        """Let `run` return."""
        self._over.set()

    async def run(self) -> None:
        """Until `end`. Raises LinkError: an end refuses something, or is lost."""
        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(one()) for one in (self._take, self._take_confirms, self._look)]
            await self._over.wait()
            for task in ends:
                task.cancel()

    async def _take(self) -> None:
        """Send what comes from the source."""
        while True:
            try:
                got = await self._source.take()
            except (LinkError, OSError) as error:
                raise failed("source", error) from None
            if self._source.waiting is not None:
                self._progress.waiting(self._source.waiting)
            if self._left is not None:
                # A source by 0-9-1 gives more than is wanted: the rest goes back with its connection.
                got = self._wanted(got)
            if got and self._refusal is None:
                await self._move(got)

    def _wanted(self, got: list[tuple[int, int]]) -> list[tuple[int, int]]:
        left = self._left or 0
        self._source.messages.keep(left)
        wanted = []
        for number, count in got:
            kept = min(count, left)
            left -= kept
            if kept:
                wanted.append((number, kept))
        self._left = left
        return wanted

    async def _move(self, got: list[tuple[int, int]]) -> None:
        if self._mode == "on-confirm":
            for run in got:
                self._in_flight.published(*run)
            self._progress.pending = len(self._in_flight)
        messages = self._source.messages
        try:
            messages.change(self._add, every=self._add.adds)
        except Amqp10Error as error:
            raise LinkError(f"source: a message that cannot be read: {error.message}") from None
        try:
            await self._target.publish(messages)
        except (LinkError, OSError) as error:
            raise failed("destination", error) from None
        if self._mode == "on-confirm":
            return
        count = sum(count for _, count in got)
        if self._mode == "on-publish":
            number, more = got[-1]
            await self._settle(number + more - 1, count)
        self._progress.moved(count)

    async def _settle(self, number: int, count: int) -> None:
        try:
            self._source.settle(number, count)
            await self._source.drain()
        except OSError as error:
            raise failed("source", error) from None

    async def _take_confirms(self) -> None:
        """Settle at the source what the destination has accepted."""
        settled = 0
        while self._refusal is None or settled < self._refusal.before:
            try:
                await self._target.take(self._in_flight)
            except Refused as error:
                if self._refusal is None or error.before < self._refusal.before:
                    self._refusal = error
            except (LinkError, OSError) as error:
                raise failed("destination", error) from None
            number, count = self._in_flight.settled()
            self._progress.pending = len(self._in_flight)
            if count:
                settled += count
                await self._settle(number, count)
                self._progress.moved(count)
        raise failed("destination", self._refusal)

    async def _look(self) -> None:
        while True:
            try:
                self._source.look()
            except OSError as error:
                raise failed("source", error) from None
            await asyncio.sleep(_LOOK_S)
