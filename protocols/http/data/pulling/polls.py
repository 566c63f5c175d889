"""A pull that waits: a consumer of its queue until it has something, or its time is up.

It is served as soon as it is attached; only one that finds nothing waits, with one timer. Its time is for
messages that are still to come: what the log has and is being read from the disk is waited for beyond it, for
no messages means that there are none. When its client goes away so does it, and what it had taken is given
back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.server.messages import HttpError, Request
from penstock.protocols.http.shared.taking import Delivery, each_delivery
from penstock.subscriptions.errors import ConsumerRefused, QueueGone
from penstock.subscriptions.queue.empty_check import look

if TYPE_CHECKING:
    from penstock.protocols.http.data.pulling.members import Member
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["BYTES_MAX", "Poll", "Polls"]

BYTES_MAX: Final = 1 << 20
"""Of bodies in one answer, unless asked otherwise; one message comes whatever its size."""
_PARKED_MAX: Final = 10_000


class Poll:
    """See the module."""

    priority = 0

    def __init__(
        self,
        queue: Queue,
        wanted: int,
        done: asyncio.Future[None] | None = None,
        bytes_max: int = BYTES_MAX,
        least: tuple[int, int] = (1, 0),
    ) -> None:
        self._queue = queue
        self._least = least
        self._wanted = wanted
        self.done = done
        """Told when there is something to look at; None while nobody waits."""
        self._bytes_max = bytes_max
        self._size = 0
        self.deliveries: list[Delivery] = []
        self.gone = ""
        """Why the queue let go of it."""

    def satisfied(self) -> bool:
        """Whether it has the messages and bytes that it waits for, or may have no more."""
        messages, size = self._least
        return bool(self.deliveries) and (
            (len(self.deliveries) >= messages and self._size >= size) or self.credit() <= 0
        )

    def credit(self) -> int:
        if self.gone or self._size >= self._bytes_max:
            return 0
        return self._wanted - len(self.deliveries)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        took = 0
        items = each_delivery(self._queue, cursor, first, step)
        while self.credit() > 0 and (delivery := next(items, None)) is not None:
            self.deliveries.append(delivery)
            self._size += len(delivery.record.body)
            took += 1
        if self.satisfied():
            self.wake()
        return took

    def void(self) -> None:
        """Its deliveries are void: its subscription goes on elsewhere."""
        self.deliveries.clear()
        self._size = 0

    def cancelled(self, reason: str) -> None:
        self.gone = reason
        self.wake()

    def wake(self) -> None:
        """Wait no longer."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


class Polls:
    """All that wait."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._parked = 0

    async def take(
        self,
        request: Request,
        queue: Queue,
        wanted: int,
        wait_s: float,
        *,
        bytes_max: int = BYTES_MAX,
        least: tuple[int, int] = (1, 0),
        member: Member | None = None,
    ) -> list[Delivery]:
        """Up to `wanted` messages, as soon as there are some; none when there were none for `wait_s` seconds.

        Args:
            least: So many messages, and bytes of bodies, are waited for; after the wait, what is there comes.
            member: The consumer with a name that it is for; attached already.

        Raises:
            HttpError: 409, another consumer is in the way; 404, the queue was deleted; 503, too many wait.

        """
        poll = Poll(queue, wanted, bytes_max=bytes_max, least=least)
        try:
            if member is None:
                queue.attach(poll)
            else:
                member.begin(poll)
                queue.credit_gained(member)
            queue.pump_now()
            if not (poll.satisfied() or poll.gone):
                await self._wait(request, queue, poll, wait_s)
        except ConsumerRefused as error:
            raise HttpError(409, "subscription_busy", error.message) from error
        except QueueGone as error:
            raise HttpError(404, "not_found", error.message) from error
        except asyncio.CancelledError:
            give_back(poll.deliveries)
            raise
        finally:
            if member is None:
                queue.detach(poll)
            else:
                member.end(poll)
        if request.gone or request.refusal is not None:
            give_back(poll.deliveries)
            raise request.refusal or HttpError(400, "malformed", "the client broke off")
        if poll.gone and not poll.deliveries:
            raise HttpError(404, "not_found", poll.gone)
        return poll.deliveries

    async def _wait(self, request: Request, queue: Queue, poll: Poll, wait_s: float) -> None:
        """Until the poll has something, its time is up, or nobody waits for it any more."""
        if self._parked >= _PARKED_MAX:
            raise HttpError(
                503, "too_many_polls", f"{_PARKED_MAX} polls wait already; try again", retry_after_s=1
            )
        loop = asyncio.get_running_loop()
        poll.done = loop.create_future()
        request.on_gone = request.on_shutdown = poll.wake
        timer = loop.call_later(max(wait_s, 0.001), poll.wake)
        self._parked += 1
        self._tick.schedule()
        try:
            await poll.done
            poll.done = loop.create_future()
            look(queue, lambda: bool(poll.deliveries or poll.gone or request.gone), poll.wake)
            await poll.done
        finally:
            self._parked -= 1
            timer.cancel()


def give_back(deliveries: list[Delivery]) -> None:
    """Nobody gets them."""
    for one in deliveries:
        one.requeue()
