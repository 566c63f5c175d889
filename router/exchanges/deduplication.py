"""Exchanges of type `x-message-deduplication`: they route one message for each value of
`x-deduplication-header`.

A message whose value another one had is confirmed and goes nowhere. Otherwise these exchanges are fanouts.

    x-cache-size          values remembered, the newest; required
    x-cache-ttl           ms for which a value counts, from its first message on; also a header of the message
    x-cache-persistence   "disk": they survive a restart; "memory" (the default): they do not

A value is remembered in the atomic unit of its message, with the message's position. So a duplicate is
confirmed no sooner than the first message, and a crash keeps both or neither.

    table seen   key    digest of vhost and exchange, 16 bytes | digest of the value, 16 bytes
                 value  number of the entry u64 | until when it counts, ms since the epoch, u64 (0: for good)

Source: the message deduplication plugin for RabbitMQ (arguments, header and texts).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.router.arguments import Arguments, encode_table
from penstock.router.errors import InvalidParameter
from penstock.router.rows import row_key

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.vhost.vhost import Vhost

__all__ = ["DEDUPLICATING_TYPE", "SIZE_MAX", "Seen", "check_cache", "restore"]

DEDUPLICATING_TYPE: Final = "x-message-deduplication"
HEADER: Final = "x-deduplication-header"
SIZE_MAX: Final = 10_000_000
"""Values that an exchange may remember: each takes some 200 bytes of memory."""
_TABLE: Final = "seen"
_ROW: Final = struct.Struct("<QQ")


def check_cache(arguments: Arguments) -> None:
    """Look at the arguments of such an exchange.

    Raises:
        InvalidParameter: in the plugin's words.

    """
    size = _number(arguments.get("x-cache-size"))
    if size is None:
        raise InvalidParameter(
            "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"
        )
    if size > SIZE_MAX:
        raise InvalidParameter(f"Invalid argument, 'x-cache-size' must be at most {SIZE_MAX}")
    if "x-cache-ttl" in arguments and _number(arguments["x-cache-ttl"]) is None:
        raise InvalidParameter("Invalid argument, 'x-cache-ttl' must be an integer greater than 0")
    if arguments.get("x-cache-persistence", "memory") not in ("memory", "disk"):
        raise InvalidParameter("Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'")


def _number(value: object) -> int | None:
    """A number above 0, which may come as text; None: it is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63
    return value if is_number and isinstance(value, int) else None


class Seen:
    """The values that one exchange remembers."""

    def __init__(self, log: Log, vhost: str, exchange: str, arguments: Arguments) -> None:
        """`arguments` passed `check_cache`."""
        self._log = log
        self._prefix = row_key(vhost, exchange)
        self._most = _number(arguments["x-cache-size"]) or 1
        self._ttl_ms = _number(arguments.get("x-cache-ttl")) or 0
        self._is_durable = arguments.get("x-cache-persistence") == "disk"
        self._values: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """By digest: (until when it counts, 0 = for good; LSN of its message, 0 = of an earlier run)."""
        self._next = 0
        self.duplicates = 0
        """Messages that were not let through."""

    @property
    def prefix(self) -> bytes:
        """How its rows' keys begin."""
        return self._prefix

    def __len__(self) -> int:
        return len(self._values)

    def value_of(self, headers: Arguments) -> bytes | None:
        """The value that identifies a message with these headers; None: it is let through."""
        value = headers.get(HEADER)
        return None if value is None else row_key(encode_table({"": value}))

    def find(self, value: bytes) -> int | None:
        """The LSN of the first message of this value while that counts, else None."""
        found = self._values.get(value)
        if found is None or (found[0] and found[0] <= self._log.wall_ms()):
            return None
        self.duplicates += 1
        return found[1]

    def note(self, value: bytes, headers: Arguments, lsn: int) -> None:
        """The message of this value is in the log; to be called in its atomic unit."""
        ttl_ms = _number(headers.get("x-cache-ttl")) or self._ttl_ms
        until_ms = min(self._log.wall_ms() + ttl_ms, 2**63) if ttl_ms else 0
        self._values[value] = until_ms, lsn
        self._values.move_to_end(value)
        if self._is_durable:
            self._log.tables.put(_TABLE, self._prefix + value, _ROW.pack(self._next, until_ms))
        self._next += 1
        if len(self._values) > self._most:
            self._forget(next(iter(self._values)))

    def _forget(self, value: bytes) -> None:
        del self._values[value]
        if self._is_durable:
            self._log.tables.delete(_TABLE, self._prefix + value)

    def clear(self) -> None:
        """Forget all, with the exchange."""
        for value in list(self._values):
            self._forget(value)

    def put_back(self, rows: list[tuple[int, bytes, int]]) -> None:
        """The values that the last run remembered: (number, value, until when it counts)."""
        for number, value, until_ms in sorted(rows):
            self._values[value] = until_ms, 0
            self._next = number + 1


def restore(log: Log, vhosts: Mapping[str, Vhost]) -> None:
    """Put back what the exchanges of all vhosts remember on disk."""
    rows: dict[bytes, list[tuple[int, bytes, int]]] = {}
    for key, row in log.tables.items(_TABLE):
        number, until_ms = _ROW.unpack(row)
        rows.setdefault(key[:16], []).append((number, key[16:], until_ms))
    for vhost in vhosts.values():
        for exchange in vhost.exchanges.values():
            if exchange.seen is not None:
                exchange.seen.put_back(rows.pop(exchange.seen.prefix, []))
