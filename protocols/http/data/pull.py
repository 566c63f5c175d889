"""Pull with leases: take messages of a queue, wait for some if there are none, settle them later.

    POST .../queues/Q/pull    {max_messages, wait_ms, lease_ms}   messages, each with a handle
    POST .../queues/Q/ack     {handles}                           they are done
    POST .../queues/Q/nack    {handles, dead_letter}              back into the queue, or dead-lettered
    POST .../queues/Q/extend  {handles, lease_ms}                 more time

A message that is not settled when its lease ends is given back, marked as redelivered; its handle is stale
from then on. A handle is a random name, but no right: who uses it must be allowed to read the queue.

A poll that waits is an outlet of its queue, attached until it has something: its share of the turns is that
of any consumer. When its client goes away, so does it; what had been taken is given back.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.fields import number_of, object_of
from penstock.protocols.http.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.traffic import Taken
from penstock.subscriptions.errors import ConsumerRefused, QueueGone

if TYPE_CHECKING:
    from penstock.subscriptions._cursor import Cursor
    from penstock.subscriptions.queue import Queue

__all__ = ["Lease", "Puller", "shown"]

_MESSAGES: Final = (10, 1, 1000)
"""Default, least, most."""
_WAIT_MS: Final = (5000, 0, 60_000)
_LEASE_MS: Final = (30_000, 1000, 43_200_000)
_BYTES_MAX: Final = 1 << 20
"""Of bodies in one answer; one message comes whatever its size."""
_CHECK_S: Final = 0.25
"""How late a lease may end."""
_PARKED_MAX: Final = 10_000
_HANDLES_MAX: Final = 10_000


@dataclass(slots=True)
class Lease:
    """A message that somebody works on."""

    handle: str
    taken: Taken
    ends_at: float


class _Poll:
    """A poll that waits: an outlet until it has something."""

    priority = 0

    def __init__(self, queue: Queue, wanted: int, done: asyncio.Future[None]) -> None:
        self._queue = queue
        self._wanted = wanted
        self._done = done
        self._size = 0
        self.taken: list[Taken] = []
        self.gone = ""
        """Why the queue let go of it."""

    def credit(self) -> int:
        if self.gone or self._size >= _BYTES_MAX:
            return 0
        return self._wanted - len(self.taken)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        records = cursor.records()
        took = 0
        for at in range(first, len(records), step):
            if self.credit() <= 0:
                break
            seq, _, _, count, redelivered = records[at]
            batch, index = cursor.record(at)
            taken = Taken(self._queue, seq, batch.record(index), redelivered, count, 0)
            self.taken.append(taken)
            self._size += len(taken.record.body)
            took += 1
        self.wake()
        return took

    def cancelled(self, reason: str) -> None:
        self.gone = reason
        self.wake()

    def wake(self) -> None:
        """Wait no longer."""
        if not self._done.done():
            self._done.set_result(None)


class Puller:
    """The handlers, and all leases."""

    def __init__(self, access: Access, clock: Callable[[], float]) -> None:
        self._access = access
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._ends: list[tuple[float, str]] = []
        self._parked = 0
        access.broker.tick.every(_CHECK_S, self.expire)

    @property
    def leased(self) -> int:
        """Messages that are leased."""
        return len(self._leases)

    async def pull(self, request: Request) -> Response:
        """Take messages, waiting for some."""
        access = self._access
        queue = access.queue(request)
        body = object_of(await request.json())
        wanted = number_of(body, "max_messages", _MESSAGES)
        wait_ms, lease_ms = number_of(body, "wait_ms", _WAIT_MS), number_of(body, "lease_ms", _LEASE_MS)
        if queue.auto_delete:
            raise HttpError(409, "wrong_mode", "an auto-delete queue ends with its consumer: consume it")
        if queue.arguments.get("x-queue-type") == "stream":
            raise HttpError(409, "wrong_mode", "a stream is read from a position and not pulled")
        taken = await self.take(request, queue, wanted, wait_ms / 1000)
        if request.gone:
            for one in taken:
                one.requeue()
            return Response(400)
        access.messages.delivered += len(taken)
        return json_response({"messages": [self._lease(one, lease_ms / 1000) for one in taken]})

    async def take(self, request: Request, queue: Queue, wanted: int, wait_s: float) -> list[Taken]:
        """Up to `wanted` messages, as soon as there are some; none after `wait_s` seconds.

        Raises:
            HttpError: 409, another consumer is in the way; 404, the queue was deleted; 503, too many wait.

        """
        if self._parked >= _PARKED_MAX:
            raise HttpError(503, "too_many_polls", f"{_PARKED_MAX} polls wait already; try again")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        poll = _Poll(queue, wanted, done)
        request.on_gone = request.on_shutdown = poll.wake
        timer = loop.call_later(max(wait_s, 0.001), poll.wake)
        self._parked += 1
        try:
            queue.attach(poll)
            self._access.broker.tick.schedule()
            await done
        except ConsumerRefused as error:
            raise HttpError(409, "subscription_busy", error.message) from error
        except QueueGone as error:
            raise HttpError(404, "not_found", error.message) from error
        except asyncio.CancelledError:
            for one in poll.taken:
                one.requeue()
            raise
        finally:
            self._parked -= 1
            timer.cancel()
            queue.detach(poll)
        if poll.gone and not poll.taken:
            raise HttpError(404, "not_found", poll.gone)
        return poll.taken

    def _lease(self, taken: Taken, lease_s: float) -> dict[str, Any]:
        handle = secrets.token_urlsafe(18)
        ends_at = self._clock() + lease_s
        self._leases[handle] = Lease(handle, taken, ends_at)
        heapq.heappush(self._ends, (ends_at, handle))
        return {**shown(self._access, taken), "handle": handle}

    def expire(self) -> None:
        """Give back what was not settled in time. Called by the tick; a test may call it."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            _, handle = heapq.heappop(self._ends)
            lease = self._leases.get(handle)
            if lease is None:
                continue
            if lease.ends_at > now:  # extended meanwhile
                heapq.heappush(self._ends, (lease.ends_at, handle))
                continue
            del self._leases[handle]
            lease.taken.requeue()

    # Settling

    def leases(self, queue: Queue, handles: list[Any]) -> list[Lease]:
        """The leases of these handles. Raises HttpError 409, one of them is stale."""
        found = [self._leases.get(handle) if isinstance(handle, str) else None for handle in handles]
        leases = [lease for lease in found if lease is not None and lease.taken.queue is queue]
        if len(leases) < len(handles):
            raise HttpError(409, "stale_handle", f"a handle is not leased (any more) from '{queue.name}'")
        return leases

    def settle(self, leases: list[Lease]) -> list[Queue]:
        """They are done; the queues that were changed."""
        for lease in leases:
            lease.taken.settle()
            del self._leases[lease.handle]
        return list(dict.fromkeys(lease.taken.queue for lease in leases))

    async def ack(self, request: Request) -> Response:
        """They are done."""
        return await self._settle(request, lambda lease, _: lease.taken.settle())

    async def nack(self, request: Request) -> Response:
        """They are not."""

        def give_back(lease: Lease, body: dict[str, Any]) -> None:
            if body.get("dead_letter") is True:
                lease.taken.reject()
            else:
                lease.taken.requeue()

        return await self._settle(request, give_back)

    async def extend(self, request: Request) -> Response:
        """They take longer."""

        def later(lease: Lease, body: dict[str, Any]) -> None:
            lease.ends_at = self._clock() + number_of(body, "lease_ms", _LEASE_MS) / 1000

        return await self._settle(request, later, keep=True)

    async def _settle(
        self, request: Request, action: Callable[[Lease, dict[str, Any]], None], *, keep: bool = False
    ) -> Response:
        queue = self._access.queue(request)
        body = object_of(await request.json())
        handles = body.get("handles")
        if not isinstance(handles, list) or not all(isinstance(one, str) for one in handles):
            raise HttpError(400, "bad_field", "handles is a list of handles, as a pull gave them")
        if len(handles) > _HANDLES_MAX:
            raise HttpError(413, "too_many_handles", f"more than {_HANDLES_MAX} handles in one request")
        results: list[dict[str, Any]] = []
        stale = 0
        for handle in handles:
            lease = self._leases.get(handle)
            if lease is None or lease.taken.queue is not queue:
                stale += 1
                results.append({"handle": handle, "error": {"code": "stale_handle"}})
                continue
            action(lease, body)
            if not keep:
                del self._leases[handle]
            results.append({"handle": handle})
        if not queue.deleted:
            queue.credit_gained()
        self._access.broker.tick.schedule()
        if stale and stale == len(handles):
            raise HttpError(409, "stale_handle", "no handle is leased (any more) from this queue")
        return json_response({"results": results}, 207 if stale else 200)


def shown(access: Access, taken: Taken) -> dict[str, Any]:
    """A message as pull and tail show it."""
    message = access.messages.show(taken.record)
    properties = message.properties
    item: dict[str, Any] = {
        "id": f"0:{taken.record.lsn}",
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "deliveries": taken.deliveries + 1,
        "redelivered": taken.redelivered,
        "published_at": taken.record.ts,
        "headers": properties.pop("headers", {}),
        **properties,
    }
    try:
        item["value"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        item["value_b64"] = base64.b64encode(message.body).decode("ascii")
    return item
