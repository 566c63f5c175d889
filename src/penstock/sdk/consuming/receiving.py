"""Receiving messages: loops, batches and workers, for consumers and retrying consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Generic, overload

from penstock.sdk.consuming.worker_pool import By, Handler, WorkerPool, responder
from penstock.sdk.errors import Closed
from penstock.sdk.message import Message

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Receiving"]


class Receiving(Generic[T]):
    """The methods that follow from `receive_many`."""

    stopped = False
    """`stop` was called, or it is closed."""

    async def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Give back what was not acknowledged. Idempotent."""
        raise NotImplementedError

    def stop(self) -> None:
        """Give out nothing more: loops over it end, and `workers`, when what they have begun is handled.

        Messages that are out may be settled until it is closed. For signal handlers:
        `loop.add_signal_handler`.
        """
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @overload
    async def receive(self) -> Message[T]: ...
    @overload
    async def receive(self, timeout_s: float | None) -> Message[T] | None: ...
    async def receive(self, timeout_s: float | None = None) -> Message[T] | None:
        """The next message; None: none came in time. Raises Closed, ClientError."""
        raise NotImplementedError

    async def receive_many(self, most: int = 1000, timeout_s: float | None = None) -> list[Message[T]]:
        """At least one message and what else is here, `most` at most; [] when none came in time."""
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        """Message by message, until it is closed or stopped."""
        raise NotImplementedError

    async def workers(self, n: int, handler: Handler[T], *, by: By = "key") -> None:
        """Give each message to `handler`, `n` at once, until it is closed or stopped.

        A message is acknowledged if `handler` returns, and given back and logged if it raises.

        Args:
            n: How many messages are handled at the same time.
            handler: `async def handler(message)`, or a function, which runs in a thread.
            by: "key": of each key one at a time, in their order; "message": without regard to keys.

        Raises:
            ClientError: it cannot go on.

        """
        await WorkerPool(self, n, handler, by).run()

    async def respond(self, n: int, handler: Handler[T], *, by: By = "message") -> None:
        """As `workers`, with what `handler` returns as the reply to each message that wants one.

        The message is acknowledged when the gateway has the reply. If `handler` raises, nobody gets a reply,
        and the message comes again: let it return a reply about errors that do not pass.

        Args:
            n: How many messages are handled at the same time.
            handler: `async def handler(message)`, or a function, which runs in a thread. It returns the body
                of the reply, bytes or text; None is an empty one.
            by: "key": of each key one at a time, in their order; "message": without regard to keys.

        Raises:
            ClientError: it cannot go on.

        """
        await self.workers(n, responder(handler), by=by)

    async def batches(self, most: int = 1000) -> AsyncIterator[Sequence[Message[T]]]:
        """`receive_many`, until it is closed."""
        while True:
            try:
                found = await self.receive_many(most)
            except Closed:
                return
            if found:
                yield found
