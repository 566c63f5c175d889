"""The rows of sessions that outlive the process: keys and values of the tables `mqtt.*`.

    mqtt.session   key  size u16 | vhost | client id
                   value  JSON: [user, expiry_s, ends_at, will, grants], the fourth where there is a will
                          (payload and properties in base64; else null or not there), the fifth, the scopes
                          of a token and its end, where the user logged in by one; until format 2 of the
                          tables an object
    mqtt.ends      key  number of a page, u32 big-endian
                   value  of each session: number of its queue u64 | ends_at f64. A clean stop puts the
                          sessions whose own rows do not say it; a start after a crash ignores them
    mqtt.qos2in    key as mqtt.session; value `_ids.Received`
    mqtt.out       key as mqtt.session; value `_ids.Inflight`

Sizes are little-endian. The filters are the router's (`router.sessions.filters`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.codec.packets import Will
from penstock.router.authorization.grants import Grants

if TYPE_CHECKING:
    from penstock.router.rows import Tables

__all__ = [
    "ENDS",
    "OUT",
    "QOS2_IN",
    "SESSION",
    "SessionRow",
    "put_ends",
    "read_ends",
    "session_key",
    "split_session_key",
]

SESSION: Final = "mqtt.session"
QOS2_IN: Final = "mqtt.qos2in"
OUT: Final = "mqtt.out"
ENDS: Final = "mqtt.ends"

_END: Final = struct.Struct("<Qd")
_ENDS_OF_PAGE: Final = 4096


@dataclass(slots=True)
class SessionRow:
    """The row of a session, besides its filters and packet ids."""

    user: str
    expiry_s: int
    ends_at: float | None = None
    """Seconds since the epoch; None: it was connected."""
    will: Will | None = None
    will_at: float | None = None
    """When the will is due; None: it waits for the connection's end."""
    grants: Grants | None = None
    """The rights in the token of its last login; None: it logged in otherwise."""

    def encode(self) -> bytes:
        """The value."""
        row: list[Any] = [self.user, self.expiry_s, self.ends_at]
        will = self.will
        if will is not None:
            row.append(
                {
                    "at": self.will_at,
                    "topic": will.topic,
                    "payload": base64.b64encode(will.payload).decode(),
                    "block": base64.b64encode(will.block).decode(),
                    "qos": will.qos,
                    "retain": will.retain,
                    "delay_s": will.delay_s,
                    "expiry_s": will.expiry_s,
                }
            )
        if self.grants is not None:
            row += [None] * (4 - len(row)) + [[self.grants.texts(), self.grants.ends_at]]
        return orjson.dumps(row)

    @classmethod
    def decode(cls, value: bytes) -> SessionRow:
        """The row of a value that `encode` made."""
        row = orjson.loads(value)
        if isinstance(row, dict):
            row = [row[name] for name in ("user", "expiry_s", "ends_at", "will") if name in row]
        found = cls(*row[:3])
        will = row[3] if len(row) > 3 else None
        if will is not None:
            found.will_at = will["at"]
            found.will = Will(
                will["topic"],
                base64.b64decode(will["payload"]),
                will["qos"],
                will["retain"],
                will["delay_s"],
                base64.b64decode(will["block"]),
                will["expiry_s"],
            )
        if len(row) > 4:
            found.grants, _ = Grants.parse(*row[4])
        return found


# Ends


def put_ends(tables: Tables, ends: Sequence[tuple[int, float]]) -> None:
    """Put the times at which sessions end, by the numbers of their queues, in place of those before."""
    pages = range(0, len(ends), _ENDS_OF_PAGE)
    for page, first in enumerate(pages):
        value = b"".join(_END.pack(*one) for one in ends[first : first + _ENDS_OF_PAGE])
        tables.put(ENDS, _page_key(page), value)
    for key in [key for key, _ in tables.items(ENDS) if key >= _page_key(len(pages))]:
        tables.delete(ENDS, key)


def read_ends(tables: Tables) -> dict[int, float]:
    """The times that the last clean stop put."""
    return dict(one for _, value in tables.items(ENDS) for one in _END.iter_unpack(value))


def _page_key(page: int) -> bytes:
    return page.to_bytes(4, "big")


# Keys


def _join(first: bytes, second: bytes) -> bytes:
    return len(first).to_bytes(2, "little") + first + second


def _split(key: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(key[:2], "little")
    return key[2:end], key[end:]


def session_key(vhost: str, client_id: str) -> bytes:
    """The key of a session's rows."""
    # Vhosts have short names, client ids at most 65,535 bytes: the size of the first is enough.
    return _join(vhost.encode(), client_id.encode())


def split_session_key(key: bytes) -> tuple[str, str]:
    """(vhost, client id) of such a key."""
    vhost, client_id = _split(key)
    return vhost.decode(), client_id.decode()
