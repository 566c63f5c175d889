"""Hashes of passwords: made with scrypt, and RabbitMQ's salted SHA-256 and SHA-512 taken as they are.

Stored as text, one line per form:

    scrypt:LOG2N:R:P:SALT:KEY    base64 of 16 random bytes and of 32 derived bytes
    sha256:SALTED                base64 of a 4-byte salt and SHA-256(salt + password), as RabbitMQ exports it
    sha512:SALTED                the same with SHA-512

A scrypt hash takes some 50 ms and 16 MiB: never verify on the event loop. Source: RFC 7914; RabbitMQ's
rabbit_password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from typing import Final

__all__ = ["DUMMY", "hash_password", "is_slow", "rabbitmq_hash", "verify_password"]

_LOG2_N: Final = 14
_R: Final = 8
_P: Final = 1
_MEMORY_MAX: Final = 64 << 20
_SALT_SIZE: Final = 4
_SIZES: Final = {"sha256": 32, "sha512": 64}


def hash_password(password: bytes) -> str:
    """A new hash of a password. Slow."""
    salt = os.urandom(16)
    return ":".join(("scrypt", str(_LOG2_N), str(_R), str(_P), _text(salt), _text(_derive(password, salt))))


def rabbitmq_hash(exported: str) -> str:
    """The stored form of a hash that RabbitMQ exported (base64 of salt and digest; the length tells which).

    Raises:
        ValueError: it is not such a hash.

    """
    try:
        raw = base64.b64decode(exported, validate=True)
    except binascii.Error as error:
        raise ValueError("a password_hash is base64") from error
    for name, size in _SIZES.items():
        if len(raw) == _SALT_SIZE + size:
            return f"{name}:{_text(raw)}"
    raise ValueError("a password_hash is 4 bytes of salt and a SHA-256 or SHA-512 of salt + password")


def is_slow(stored: str) -> bool:
    """Whether verifying it takes long enough to keep it off the event loop."""
    return stored.startswith("scrypt:")


def verify_password(stored: str, password: bytes) -> bool:
    """Whether the password is the one that was hashed; takes the same time either way."""
    kind, _, rest = stored.partition(":")
    if kind == "scrypt":
        log2_n, r, p, salt, key = rest.split(":")
        derived = _derive(password, base64.b64decode(salt), int(log2_n), int(r), int(p))
        return hmac.compare_digest(derived, base64.b64decode(key))
    raw = base64.b64decode(rest)
    digest = hashlib.new(kind, raw[:_SALT_SIZE] + password).digest()
    return hmac.compare_digest(digest, raw[_SALT_SIZE:])


def _derive(password: bytes, salt: bytes, log2_n: int = _LOG2_N, r: int = _R, p: int = _P) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << log2_n, r=r, p=p, maxmem=_MEMORY_MAX, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


DUMMY: Final = ":".join(("scrypt", str(_LOG2_N), str(_R), str(_P), _text(b"\0" * 16), _text(b"\0" * 32)))
"""Verified against when the user is unknown, so that this takes as long; no password has it."""
