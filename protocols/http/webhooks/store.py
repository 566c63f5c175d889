"""Rows of webhooks in the log's tables: settings, and the progress of each failed message.

    table           key                                        value
    webhook         row_key(vhost, name)                       JSON: vhost, name, user, settings, secrets, ...
                                                               or, instead of secrets, `sealed` (`sealing`)
    webhook_retry   row_key(vhost, name) | position u64, big   attempts u16 | first ms i64 | due ms i64

A row of the second table is put at a failure and deleted when its message is done. So a schedule of days goes
on after a restart, when the queue delivers its messages again.
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.errors import ConfigError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.settings import Settings, settings_of
from penstock.router.rows import row_key

if TYPE_CHECKING:
    from penstock.log_core.state.tables import Tables
    from penstock.protocols.http.webhooks.security.secrets import Seal

__all__ = ["Progress", "Store", "Webhook"]

_WEBHOOK: Final = "webhook"
_RETRY: Final = "webhook_retry"
_PROGRESS: Final = struct.Struct("<Hqq")


@dataclass(slots=True)
class Webhook:
    """One webhook as it is kept."""

    vhost: str
    name: str
    user: str
    """The user who made it: it reads with this user's rights."""
    settings: Settings
    secrets: list[str] = field(default_factory=list)
    """The newest first; an older one signs too until it is retired."""
    retire_ms: int = 0
    """When all secrets but the first are forgotten; 0: there is no other."""
    paused: bool = False
    disabled: str = ""
    """Why it was switched off; "": it was not."""
    granted_ms: int = 0
    """When the receiver agreed in a handshake; 0: never."""
    pace_s: float = 0.0
    """Least time between two requests, as it said then."""

    @property
    def key(self) -> bytes:
        return row_key(self.vhost, self.name)

    def encoded(self, seal: Seal | None) -> bytes:
        row = {name: getattr(self, name) for name in self.__slots__ if name != "settings"}
        row["settings"] = self.settings.stored()
        if seal is not None:
            hidden = {"secrets": row.pop("secrets")} | {
                name: row["settings"].pop(name) for name in ("headers", "auth")
            }
            row["sealed"] = seal.seal(hidden, self.key)
        return orjson.dumps(row)

    @classmethod
    def decoded(cls, row: bytes, seal: Seal | None) -> Webhook:
        """Raises ConfigError: its secrets are sealed, and not with this key."""
        value: dict[str, Any] = orjson.loads(row)
        if (sealed := value.pop("sealed", None)) is not None:
            name = value["name"]
            if seal is None:
                raise ConfigError(
                    f"the secrets of webhook '{name}' are sealed and there is no key",
                    key="webhooks.key_file",
                    remedy="name the file that was there",
                )
            hidden = seal.open(sealed, row_key(value["vhost"], name), name)
            value["secrets"] = hidden.pop("secrets")
            value["settings"] |= hidden
        return cls(**{**value, "settings": settings_of(value["settings"])})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a message has got."""

    attempts: int
    first_s: float
    due_s: float


class Store:
    """The two tables."""

    def __init__(self, tables: Tables, seal: Seal | None = None) -> None:
        self._tables = tables
        self._seal = seal

    def webhooks(self) -> list[Webhook]:
        """All there are; with a key their secrets are sealed with it from now on. Raises ConfigError."""
        found = [Webhook.decoded(row, self._seal) for _, row in self._tables.items(_WEBHOOK)]
        if self._seal is not None:
            for webhook in found:
                self.put(webhook)
        return found

    def put(self, webhook: Webhook) -> int:
        """Keep it; the LSN to wait for."""
        return self._tables.put(_WEBHOOK, webhook.key, webhook.encoded(self._seal))

    def delete(self, webhook: Webhook) -> int:
        """Forget it and its progress; the LSN to wait for."""
        for key in [key for key in self._tables.keys(_RETRY) if key.startswith(webhook.key)]:
            self._tables.delete(_RETRY, key)
        return self._tables.delete(_WEBHOOK, webhook.key)

    def progress(self, key: bytes, lsn: int) -> Progress | None:
        """How far the message at `lsn` has got with the webhook of this key."""
        row = self._tables.get(_RETRY, key + lsn.to_bytes(8, "big"))
        if row is None:
            return None
        attempts, first_ms, due_ms = _PROGRESS.unpack(row)
        return Progress(attempts, first_ms / 1000, due_ms / 1000)

    def keep(self, key: bytes, lsn: int, progress: Progress) -> None:
        """A message failed."""
        row = _PROGRESS.pack(
            min(progress.attempts, 0xFFFF), int(progress.first_s * 1000), int(progress.due_s * 1000)
        )
        self._tables.put(_RETRY, key + lsn.to_bytes(8, "big"), row)

    def done(self, key: bytes, lsn: int) -> None:
        """A message is done, or dead."""
        self._tables.delete(_RETRY, key + lsn.to_bytes(8, "big"))
