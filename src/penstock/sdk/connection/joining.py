"""Joining a connection: a producer or a consumer gets its handle, and the link that there is, or comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.sdk.connection.connecting import Resumable

if TYPE_CHECKING:
    from penstock.sdk.client import Client
    from penstock.sdk.connection.link import Link

__all__ = ["Joining"]


class Joining(Resumable):
    """The part of a producer and a consumer that their opening has in common."""

    client: Client
    handle: int
    """0: it is not open."""
    _link: Link | None
    """The one on which it was opened; None: none."""

    async def _join(self, check: Callable[[], None]) -> None:
        """Open the handle on the link, and forget it if that fails.

        Args:
            check: Raises the error that came while there was no link.

        Raises:
            ClientError: the gateway refuses it, or there is no connection.

        """
        handle = self.handle = self.client.register(self)
        link = None
        try:
            link = await self.client.link()
            check()
            if self._link is not link:  # else it came with a new connection
                link.route(handle, self)
                await self.resume(link)
        except BaseException:
            self.handle = 0
            self._link = None
            self.client.forget(handle)
            if link is not None:
                link.drop(handle)
            raise
