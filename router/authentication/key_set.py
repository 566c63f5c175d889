"""The public keys that verify tokens: a JSON Web Key Set (RFC 7517), from any source.

The set is read again when it is older than `refresh_s`, and when a token names an unknown key, at most
once in `AGAIN_S`. So keys rotate without a restart, and a flood of unknown names costs nothing. If the set
cannot be read, the last good one stays valid, and a log line says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.logs import fields

__all__ = ["AGAIN_S", "Key", "KeySet", "KeySetError", "read_keys"]

logger = logging.getLogger("penstock.auth")

AGAIN_S: Final = 60.0
_KEYS_MAX: Final = 1000
_RSA_BITS_MIN: Final = 2048
_ALGORITHMS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
"""By type and curve of a key. There is no secret among them that both sides would have."""


class KeySetError(PenstockError):
    """A key set cannot be had, or is none."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

    id: str
    """"" = it has no name."""
    public: Any = field(compare=False)
    """As PyJWT takes it."""
    der: bytes
    """The same as bytes, to be compared."""
    algorithms: frozenset[str]
    """A token signed with it has one of them."""


class KeySet:
    """See the module."""

    def __init__(
        self,
        read: Callable[[], bytes],
        source: str,
        *,
        refresh_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` gives the set, in a thread, or raises KeySetError; `source` names it in log lines."""
        self._get = read
        self._source = source
        self._clock = clock
        self._refresh_s = refresh_s
        self._keys: tuple[Key, ...] = ()
        self._due = clock()
        """When the set is read again."""
        self._again = clock()
        """When it may be read again for an unknown key."""
        self._reading: asyncio.Future[tuple[Key, ...]] | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="penstock-jwks")
        self.on_changed: Callable[[], None] = lambda: None
        """Called when other keys hold than before."""

    def begin(self) -> None:
        """Read it now. Raises KeySetError: it cannot be used."""
        self._take(self._load())
        self._due = self._clock() + self._refresh_s

    async def find(self, key_id: str | None) -> list[Key]:
        """The keys of this name, all when a token names none; empty: there is no such key."""
        if self._clock() >= self._due:
            await self._read()
        found = self._found(key_id)
        if not found and self._clock() >= self._again:
            self._again = self._clock() + AGAIN_S
            await self._read()
            found = self._found(key_id)
        return found

    def _found(self, key_id: str | None) -> list[Key]:
        return [key for key in self._keys if key_id is None or key.id == key_id]

    async def _read(self) -> None:
        """Read the set again; whoever asks meanwhile waits for the same."""
        if self._reading is None:
            # Before it is tried: it counts for a set that cannot be had, too.
            self._due = self._clock() + min(self._refresh_s, AGAIN_S)
            self._reading = asyncio.get_running_loop().run_in_executor(self._executor, self._load)
            # It is called before those who wait go on.
            self._reading.add_done_callback(self._was_read)
        with contextlib.suppress(KeySetError):
            await asyncio.shield(self._reading)

    def _was_read(self, reading: asyncio.Future[tuple[Key, ...]]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            self._due = self._clock() + self._refresh_s
            self._take(reading.result())
        else:
            logger.error(
                "the keys of tokens were not read again: %s",
                error,
                extra=fields(source=self._source, keys=len(self._keys)),
            )

    def _load(self) -> tuple[Key, ...]:
        return read_keys(self._get())

    def _take(self, keys: tuple[Key, ...]) -> None:
        if keys != self._keys:
            self._keys = keys
            logger.info("keys of tokens read", extra=fields(source=self._source, keys=len(keys)))
            self.on_changed()

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def read_keys(document: bytes) -> tuple[Key, ...]:
    """The keys of a set that can verify a token; others in it are left out.

    Raises:
        KeySetError: it is no set, or has no such key.

    """
    try:
        entries = json.loads(document)["keys"]
        keys = tuple(key for entry in entries[:_KEYS_MAX] if (key := _key(entry)) is not None)
    except (ValueError, KeyError, TypeError, RecursionError, jwt.PyJWTError) as error:
        raise KeySetError(
            f"it is no JSON Web Key Set: {type(error).__name__}: {error}",
            remedy='it is an object whose "keys" are a list of keys (RFC 7517)',
        ) from None
    if not keys:
        raise KeySetError(
            "the key set has no key that can verify a token",
            remedy="it needs a public key: RSA of 2048 bits or more, EC P-256, P-384 or P-521, or Ed25519",
        )
    return keys


def _key(entry: Mapping[str, Any]) -> Key | None:
    kind = entry["kty"]
    algorithms = _ALGORITHMS.get((kind, "" if kind == "RSA" else entry.get("crv", "")))
    if algorithms is None or entry.get("use", "sig") != "sig":
        return None
    if "verify" not in entry.get("key_ops", ["verify"]):
        return None
    if "alg" in entry:
        algorithms &= {entry["alg"]}
    if not algorithms:
        return None
    public = jwt.PyJWK(dict(entry), algorithm=min(algorithms)).key
    if hasattr(public, "public_key"):
        # A set with private keys is a mistake of whoever made it; what verifies is in it all the same.
        public = public.public_key()
    if isinstance(public, RSAPublicKey) and public.key_size < _RSA_BITS_MIN:
        return None
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Key(str(entry.get("kid", "")), public, der, algorithms)
