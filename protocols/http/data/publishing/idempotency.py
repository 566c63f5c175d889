"""Publishing once, however often a request is sent: what came of a request is kept under its key.

A request with `Idempotency-Key: K` is appended as one atomic unit, together with a row that says what came of
each of its messages. A request with the same key gets the same answer and appends nothing, also after a crash
or a restart; with another body it is refused. A key is its user's in its vhost, and is forgotten after a day,
or, the oldest first, when there are more than 100,000 or their answers take more than 64 MiB. The same
remembers what came of transactions.

    table http_idempotency   key row_key(vhost, user, K)
    value: kept at i64, ms | digest of path and body, 16 bytes | n times: result u64
    result: the LSN, 0 = refused; bit 63: no queue got it; bit 62: whether one gets it was not known

Source: the IETF draft "The Idempotency-Key HTTP Header Field" (draft-ietf-httpapi-idempotency-key-header).
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError
from penstock.router.rows import row_key

if TYPE_CHECKING:
    from penstock.router.broker import Broker

__all__ = ["Idempotency", "Kept", "Once"]

Kept = tuple[int, bool | None]
"""The outcome of a message: its LSN, 0 = refused; whether a queue got it, None: that was not known."""

_TABLE: Final = "http_idempotency"
_HEAD: Final = struct.Struct("<q16s")
_KEPT_MS: Final = 86_400_000
_MOST: Final = 100_000
_BYTES_MAX: Final = 64 << 20
_SWEEP_S: Final = 60.0
_KEY_MAX: Final = 255
_UNROUTED: Final = 1 << 63
_UNKNOWN: Final = 1 << 62
_LSN: Final = _UNKNOWN - 1


@dataclass(frozen=True, slots=True)
class Once:
    """A request that has a key."""

    key: bytes
    digest: bytes


class Idempotency:
    """All keys of a gateway."""

    def __init__(self, broker: Broker, *, most: int = _MOST) -> None:
        self._log = broker.log
        self._most = most
        rows = sorted(
            (_HEAD.unpack_from(row)[0], key, len(row)) for key, row in self._log.tables.items(_TABLE)
        )
        self._known: OrderedDict[bytes, tuple[int, int]] = OrderedDict(
            (key, (kept_ms, size)) for kept_ms, key, size in rows
        )
        """When each was kept, and the bytes of its row; the oldest first."""
        self._size = sum(size for _, _, size in rows)
        broker.tick.every(_SWEEP_S, self.sweep)

    def once(self, text: str, vhost: str, user: str, path: str, body: bytes) -> Once | None:
        """The request that these make; None: it has no key. Raises HttpError 400."""
        if not text:
            return None
        if len(text) > _KEY_MAX:
            raise HttpError(400, "bad_field", f"Idempotency-Key: at most {_KEY_MAX} characters")
        digest = hashlib.blake2b(
            body,
            digest_size=16,
            person=hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).digest(),
        )
        return Once(row_key(vhost, user, text), digest.digest())

    def of_transaction(self, id: str, vhost: str, user: str) -> Once:
        """The commit of a transaction, whose id is as good as a key."""
        return Once(row_key(vhost, user, "transaction", id), bytes(16))

    def known(self, once: Once) -> list[Kept] | None:
        """The outcome of the request when it was sent first, for each message.

        Raises:
            HttpError: 422, that was another request.

        """
        row = self._log.tables.get(_TABLE, once.key)
        if row is None:
            return None
        _, digest = _HEAD.unpack_from(row)
        if digest != once.digest:
            raise HttpError(422, "idempotency_key_reused", "Idempotency-Key: it was used for another request")
        count = (len(row) - _HEAD.size) // 8
        return [
            (word & _LSN, None if word & _UNKNOWN else not word & _UNROUTED)
            for word in struct.unpack_from(f"<{count}Q", row, _HEAD.size)
        ]

    def keep(self, once: Once, results: Sequence[Kept]) -> None:
        """Remember what came of a request; inside the unit of its messages."""
        now_ms = self._log.wall_ms()
        words = [
            lsn | (_UNKNOWN if routed is None else 0 if routed else _UNROUTED) for lsn, routed in results
        ]
        row = _HEAD.pack(now_ms, once.digest) + struct.pack(f"<{len(words)}Q", *words)
        self._log.tables.put(_TABLE, once.key, row)
        self._known[once.key] = now_ms, len(row)
        self._size += len(row)
        while len(self._known) > self._most or self._size > _BYTES_MAX:
            self._forget(next(iter(self._known)))

    def sweep(self) -> None:
        """Forget what is a day old."""
        before_ms = self._log.wall_ms() - _KEPT_MS
        while self._known:
            key, (kept_ms, _) = next(iter(self._known.items()))
            if kept_ms > before_ms:
                break
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        self._size -= self._known.pop(key)[1]
        self._log.tables.delete(_TABLE, key)
