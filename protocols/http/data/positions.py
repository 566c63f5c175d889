"""The position that a moment in the log stands for, awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.router.backfill import find_position

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.since import Since

__all__ = ["position_of"]


async def position_of(log: Log, lp: int, since: Since) -> int:
    """The position of the first record kept of the partition `lp` that is not older; see `find_position`."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def told(position: int) -> None:
        if not found.done():  # whoever asked may have gone meanwhile
            found.set_result(position)

    find_position(log, lp, since, told)
    return await found
