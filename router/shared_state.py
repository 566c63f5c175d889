"""State that all workers of a gateway share: users, permissions, tokens, sessions of web pages, and which
worker owns each vhost.

Worker 0 has it in its log and announces every change of a row (`Said`). Each other worker has a copy in
memory (`Mirror`). It gets the whole copy when it starts or has lost worker 0, and then row by row. `apply`
makes a row effective there with the methods that an administrator would use.

The content of a vhost stays in the log of its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from penstock.router.arguments import decode_table
from penstock.router.authorization.permissions import Permission, TopicPermission

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.rows import Tables

__all__ = ["SHARED", "Change", "Mirror", "Said", "apply"]

SHARED: Final = ("vhost", "user", "permission", "topic_permission", "token", "web_session")
"""The tables, in the order in which their rows need one another."""

_DURABLE: Final = 1
"""An LSN that nobody waits for long: what worker 0 has said is durable there."""

Change = tuple[str, bytes, bytes | None]
"""Table, key and value of a row; None: it is gone."""


class Said:
    """The tables of worker 0, which tell of every change; the methods are those of `metadata.Tables`."""

    def __init__(self, tables: Tables, tell: Callable[[Change, int], object]) -> None:
        """`tell` gets a change and its LSN."""
        self._tables = tables
        self._tell = tell

    def put(self, table: str, key: bytes, value: bytes) -> int:
        lsn = self._tables.put(table, key, value)
        self._tell((table, key, value), lsn)
        return lsn

    def delete(self, table: str, key: bytes) -> int:
        lsn = self._tables.delete(table, key)
        self._tell((table, key, None), lsn)
        return lsn

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._tables.get(table, key)

    def items(self, table: str) -> Iterable[tuple[bytes, bytes]]:
        return self._tables.items(table)

    def all(self) -> list[Change]:
        """Every row."""
        return [(table, key, bytes(value)) for table in SHARED for key, value in self._tables.items(table)]


class Mirror:
    """The tables as another worker has them, in memory: nothing of it is that worker's to keep.

    The methods are those of `metadata.Tables`.
    """

    def __init__(self, rows: Iterable[Change]) -> None:
        self._rows: dict[str, dict[bytes, bytes]] = {table: {} for table in SHARED}
        for table, key, value in rows:
            if value is not None:
                self._rows[table][key] = value

    def put(self, table: str, key: bytes, value: bytes) -> int:
        self._rows[table][key] = value
        return _DURABLE

    def delete(self, table: str, key: bytes) -> int:
        return 0 if self._rows[table].pop(key, None) is None else _DURABLE

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._rows[table].get(key)

    def items(self, table: str) -> Iterable[tuple[bytes, bytes]]:
        return list(self._rows[table].items())

    def changes_to(self, rows: Iterable[Change]) -> list[Change]:
        """The changes that lead to these rows."""
        wanted: dict[str, dict[bytes, bytes | None]] = {table: {} for table in SHARED}
        for table, key, value in rows:
            wanted[table][key] = value
        changes: list[Change] = []
        for table in SHARED:
            mine = self._rows[table]
            changes += [(table, key, None) for key in mine if key not in wanted[table]]
            changes += [(table, key, value) for key, value in wanted[table].items() if mine.get(key) != value]
        return changes


def apply(broker: Broker, mirror: Mirror, change: Change) -> None:
    """Make a row hold in a worker that has a mirror."""
    table, key, value = change
    old = mirror.get(table, key)
    if value == old:
        return
    row = decode_table(value if value is not None else old or b"")
    if value is None:
        _remove(broker, table, key, row)
        mirror.delete(table, key)
    else:
        mirror.put(table, key, value)
        _set(broker, table, key, row)


def _set(broker: Broker, table: str, key: bytes, row: dict[str, object]) -> None:
    match table:
        case "vhost":
            broker.apply_vhost(row)
        case "user":
            name = str(row["name"])
            broker.users.restored(row)
            for member in broker.connections.of(user=name):
                member.permissions_changed()
        case "permission":
            user, vhost = str(row.pop("user")), str(row.pop("vhost"))
            broker.authorizer.set(user, vhost, Permission(**row))  # type: ignore[arg-type]
        case "topic_permission":
            user, vhost, exchange = (str(row.pop(name)) for name in ("user", "vhost", "exchange"))
            broker.authorizer.set_topic(user, vhost, exchange, TopicPermission(**row))  # type: ignore[arg-type]
        case "token":
            broker.tokens.restored(key, row)
        case "web_session":
            broker.web_sessions.restored(key, row)


def _remove(broker: Broker, table: str, key: bytes, row: dict[str, object]) -> None:
    match table:
        case "vhost":
            broker.forget_vhost(str(row["name"]))
        case "user":
            name = str(row["name"])
            if broker.users.identity(name) is not None:
                broker.administration.delete_user(name)
        case "permission":
            broker.authorizer.clear(str(row["user"]), str(row["vhost"]))
        case "topic_permission":
            broker.authorizer.clear_topic(str(row["user"]), str(row["vhost"]), str(row["exchange"]))
        case "token":
            broker.tokens.restored(key, None)
        case "web_session":
            broker.web_sessions.restored(key, None)
