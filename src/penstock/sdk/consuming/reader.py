"""A reader: a consumer that takes nothing, and may go to any place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sdk.addresses import start_of
from penstock.sdk.consuming.consumer import Consumer
from penstock.sdk.errors import ClientError, ConnectionLost

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.sdk.addresses import Opening, Start
    from penstock.sdk.connection.link import Link

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Reader"]


class Reader(Consumer[T]):
    """Made by `Client.reader`; `async with` opens it, and closes it at the end."""

    _noun = "reader"

    async def has_more(self) -> bool:
        """Whether something that was published before this call is not given out yet; of topics only.

        `while await reader.has_more(): message = await reader.receive()` reads what is there, and ends.

        Raises:
            ClientError: it reads no topic; the topic is gone.

        """
        self._check()
        if not self.topic:
            raise ClientError(
                f"a reader of {self.place} does not know how much there is",
                remedy="receive(timeout_s=...) ends when nothing comes",
            )
        if not self._inbox.waiting and not self._unclaimed:
            described = await self.client.call("describe", topic=self.topic)
            last = described["last_position"] if described["messages"] else 0
            # Messages that came meanwhile were published after the question, or wait now.
            return bool(self._inbox.waiting or last >= (self._goes_on() or 0))
        return True

    async def seek(self, to: Start) -> None:
        """Go on from there; see `Client.reader` for `start`.

        Raises:
            ConnectionLost: it goes on from there, or where it was.
            ClientError: there is no such place; it goes on where it was.

        """
        if self._opening.do != "read":
            raise ClientError(
                f"a reader of {self.place} cannot seek", remedy="open another one with that start"
            )
        start = start_of(to)
        self._check()
        link = await self.client.link()
        # Behind its answer nothing comes from the old place.
        await link.request("close", handle=self.handle)
        was, goes_on = self._opening, self._goes_on()
        try:
            await self._read(link, was._replace(start=start), None)
        except ConnectionLost:
            raise
        except ClientError:
            await self._read(link, was, goes_on)
            raise

    async def _read(self, link: Link, opening: Opening, position: int | None) -> None:
        self._opening, self._next = opening, position
        self._void()
        self._inbox.position = 0
        await self.resume(link)
