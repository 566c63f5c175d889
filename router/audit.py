"""The audit trail: who did what, from where, and what came of it, in order and chained by hashes.

    table `audit`        key  seq u64, big-endian | ms since the epoch u64, big-endian
                         value  JSON: {"seq", "at", "worker", "user", "peer", "protocol", "action", "target",
                                       "before", "after", "result", "detail", "prev"}
    table `audit_chain`  key  ""
                         value  JSON: {"first": the oldest seq that is kept, "next": that of the next entry,
                                       "hash": of the newest value}

`prev` is the SHA-256 of the value before, in hexadecimal; 64 zeros in the first there ever was. So nothing
can be changed, left out or put in between without every later hash being another. The row of the second table
says where the chain begins and ends; who keeps a hash elsewhere can tell whether all of it was made anew.

A table, not a stream: a stream lies in a vhost, where its users may read, purge and delete it. An entry is
put in the turn of what it is about and is written with it. The oldest go when there are more bytes than
`retention_bytes` or they are older than `retention_s`: looked at with each new entry, and at a start.

Refused logins are what anybody can make: 60 in a minute are noted one by one, the rest as a number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.log_core.log import Log

__all__ = ["Audit", "AuditOptions", "Verdict"]

_TABLE: Final = "audit"
_CHAIN: Final = "audit_chain"
_BEGIN: Final = "0" * 64
_VALUE_MAX: Final = 64 << 10
_TEXT_MAX: Final = 512
_REFUSALS_MAX: Final = 60
_MINUTE_S: Final = 60
_SLICE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Options of the section `audit`, with the same keys."""

    enabled: bool = True
    retention_bytes: int = 16 << 20
    retention_s: float = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying the chain."""

    entries: int
    first: int
    """The oldest seq; 0: there is none."""
    last: int
    hash: str
    """Of the newest entry: kept elsewhere, it proves later that all up to here is as it was."""
    broken: str = ""
    """Where it is broken, and how; "": it is whole."""


class Audit:
    """Of one worker."""

    def __init__(
        self,
        log: Log,
        options: AuditOptions,
        worker: int,
        after: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`after` calls something in so many seconds."""
        self._log = log
        self._tables = log.tables
        self._options = options
        self._worker = worker
        self._after = after
        self._keys: list[bytes] = sorted(self._tables.keys(_TABLE))
        self._bytes = sum(len(value) for _, value in self._tables.items(_TABLE))
        chain = self._chain()
        self._next: int = chain["next"]
        self._hash: str = chain["hash"]
        self._minute = 0
        self._refusals = 0
        self._unlisted = 0
        self._closed = False
        self.on_entry: list[Callable[[dict[str, Any]], None]] = []
        """Called with each new entry."""
        self._trim()

    def _chain(self) -> dict[str, Any]:
        row = self._tables.get(_CHAIN, b"")
        found: dict[str, Any] = json.loads(row) if row else {"first": 1, "next": 1, "hash": _BEGIN}
        return found

    # Writing

    def note(
        self,
        action: str,
        *,
        user: str,
        peer: str,
        protocol: str,
        target: Mapping[str, str] | None = None,
        before: object = None,
        after: object = None,
        result: str = "done",
        detail: str = "",
    ) -> int:
        """One more entry; the LSN to wait for, 0 when none is kept. Nothing of it may be a secret."""
        if not self._options.enabled or self._closed or self._log.failed is not None:
            return 0
        entry: dict[str, Any] = {
            "seq": self._next,
            "at": self._log.wall_ms(),
            "worker": self._worker,
            "user": user[:_TEXT_MAX],
            "peer": peer[:_TEXT_MAX],
            "protocol": protocol,
            "action": action,
            "target": {name: text[:_TEXT_MAX] for name, text in (target or {}).items()},
            "before": before,
            "after": after,
            "result": result,
            "detail": detail[:_TEXT_MAX],
            "prev": self._hash,
        }
        value = _encoded(entry)
        if len(value) > _VALUE_MAX:
            entry |= {
                "before": None,
                "after": None,
                "detail": f"before and after: {len(value)} bytes, left out",
            }
            value = _encoded(entry)
        key = self._next.to_bytes(8, "big") + entry["at"].to_bytes(8, "big")
        self._next += 1
        self._hash = hashlib.sha256(value).hexdigest()
        with self._log.unit():
            self._tables.put(_TABLE, key, value)
            self._keys.append(key)
            self._bytes += len(value)
            self._drop_old()
            lsn = self._put_chain()
        for told in self.on_entry:
            told(_shown(value))
        return lsn

    def login_refused(self, protocol: str, user: str, peer: str, reason: str) -> None:
        """A login was refused; see the module for how many are noted."""
        minute = self._log.wall_ms() // (_MINUTE_S * 1000)
        if minute != self._minute:
            self._tell_unlisted()
            self._minute, self._refusals = minute, 0
        if self._refusals >= _REFUSALS_MAX:
            self._unlisted += 1
            if self._unlisted == 1:
                self._after(_MINUTE_S, self._tell_unlisted)
            return
        self._refusals += 1
        self.note("login", user=user, peer=peer, protocol=protocol, result="refused", detail=reason)

    def _tell_unlisted(self) -> None:
        count, self._unlisted = self._unlisted, 0
        if count:
            self.note(
                "login",
                user="",
                peer="",
                protocol="",
                result="refused",
                detail=f"{count} more were refused: {_REFUSALS_MAX} in a minute are noted one by one",
            )

    def close(self) -> None:
        """The gateway stops: what was only counted is noted, and nothing after it."""
        self._tell_unlisted()
        self._closed = True

    def _put_chain(self) -> int:
        first = _seq(self._keys[0]) if self._keys else self._next
        row = {"first": first, "next": self._next, "hash": self._hash}
        return self._tables.put(_CHAIN, b"", _encoded(row))

    def _trim(self) -> None:
        with self._log.unit():
            if self._drop_old():
                self._put_chain()

    def _drop_old(self) -> int:
        """Drop what retention does not want; how many went. The newest stays: it is the end of the chain."""
        oldest_ms = self._log.wall_ms() - int(self._options.retention_s * 1000)
        count = 0
        while count < len(self._keys) - 1:
            key = self._keys[count]
            if self._bytes <= self._options.retention_bytes and _at(key) >= oldest_ms:
                break
            self._bytes -= len(self._tables.get(_TABLE, key) or b"")
            self._tables.delete(_TABLE, key)
            count += 1
        del self._keys[:count]
        return count

    # Reading

    def keys(self) -> list[bytes]:
        """Of all entries, the oldest first; they are for `entry` and `at_of`."""
        return self._keys.copy()

    @staticmethod
    def at_of(key: bytes) -> int:
        """When the entry of a key was made, ms since the epoch."""
        return _at(key)

    def entry(self, key: bytes) -> dict[str, Any] | None:
        """One entry, with its `hash`; None: retention has taken it."""
        value = self._tables.get(_TABLE, key)
        return None if value is None else _shown(value)

    def verify(self) -> Iterator[Verdict | None]:
        """Look at the whole chain; None after each slice of it, the verdict at last."""
        chain, keys = self._chain(), sorted(self._tables.keys(_TABLE))
        first, last = (_seq(keys[0]), _seq(keys[-1])) if keys else (0, 0)
        expected_seq, expected_hash = chain["first"], _BEGIN if chain["first"] == 1 else ""
        for count, key in enumerate(keys):
            if count and count % _SLICE == 0:
                yield None
            value = self._tables.get(_TABLE, key)
            if value is None:
                if _seq(key) < _seq(self._keys[0]):
                    expected_seq, expected_hash = _seq(key) + 1, ""
                    continue  # retention has taken it meanwhile
                value = b""
            broken = _fault(key, value, expected_seq, expected_hash)
            if broken:
                yield Verdict(len(keys), first, last, "", broken)
                return
            expected_seq, expected_hash = expected_seq + 1, hashlib.sha256(value).hexdigest()
        broken = ""
        if expected_seq != chain["next"]:
            broken = f"entries {expected_seq} to {chain['next'] - 1} are missing at the end"
        elif keys and expected_hash != chain["hash"]:
            broken = f"entry {last} is not the one that was noted last"
        yield Verdict(len(keys), first, last, expected_hash, broken)


def _fault(key: bytes, value: bytes, seq: int, prev: str) -> str:
    """The fault of an entry that should be number `seq`, behind the one with the hash `prev`; "": none."""
    if _seq(key) != seq:
        return f"entry {seq} is missing: entry {_seq(key)} comes in its place"
    try:
        entry = json.loads(value)
        said = (entry["seq"], entry["at"], entry["prev"])
    except (ValueError, KeyError, TypeError):
        return f"entry {seq} cannot be read"
    if said[:2] != (seq, _at(key)):
        return f"entry {seq} says that it is another one"
    if prev and said[2] != prev:
        return f"entry {seq} does not follow entry {seq - 1}: one of them was changed"
    return ""


def _seq(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def _at(key: bytes) -> int:
    return int.from_bytes(key[8:], "big")


def _shown(value: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(value)
    return {**entry, "hash": hashlib.sha256(value).hexdigest()}


def _encoded(value: object) -> bytes:
    # In ASCII: a name that is no UTF-8 has surrogates, which only escapes can carry.
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, set | frozenset | tuple):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return str(value)
