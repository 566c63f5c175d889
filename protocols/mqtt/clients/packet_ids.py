"""The packet ids of one session, both ways, and the retained messages that some of them stand for.

A session that is away and has nothing under way has none in memory: its rows say which id comes next. So
what is here is made, or read, when somebody works with the session (`Client.ids`), and let go when nobody
does and `settled` says that nothing would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.clients._client import PacketIds
from penstock.protocols.mqtt.clients.rows import OUT, QOS2_IN
from penstock.protocols.mqtt.codec._packet_ids import Inflight, Received

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.router.rows import Tables
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["PacketIds", "Retained", "load"]


@dataclass(slots=True)
class Retained:
    """A retained message under way at QoS 1 or 2."""

    topic: bytes
    block: bytes
    payload: bytes
    qos: int
    ids: bytes
    stored_ms: int


def load(tables: Tables, key: bytes, cursor: Cursor, shared: Callable[[int], Cursor | None]) -> PacketIds:
    """The packet ids in the rows; nothing is under way where there are none.

    Args:
        tables: The log's.
        key: Of the session's rows.
        cursor: Of its own queue.
        shared: See `Inflight.restore`.

    """
    out, received = tables.get(OUT, key), tables.get(QOS2_IN, key)
    if out is None:
        inflight = Inflight()
        inflight.cursors.append(cursor)
    else:
        inflight = Inflight.restore(out, cursor, shared)
    return PacketIds(inflight, Received() if received is None else Received.restore(received))
