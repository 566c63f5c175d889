"""Hashes of passwords: made with scrypt; those of RabbitMQ and Mosquitto are taken as they are.

Stored as text, one line per form:

    scrypt:LOG2N:R:P:SALT:KEY    base64 of 16 random bytes and of 32 derived bytes
    sha256:SALTED                base64 of a 4-byte salt and SHA-256(salt + password), as RabbitMQ exports it
    sha512:SALTED                the same with SHA-512
    md5:SALTED                   the same with MD5, from very old RabbitMQ
    mosquitto-sha512:SALT$HASH   base64 of a salt and of SHA-512(password + salt), Mosquitto's `$6$`
    mosquitto-pbkdf2:N$SALT$HASH N rounds of PBKDF2-HMAC-SHA-512, 64 bytes, Mosquitto's `$7$`

A new hash has a verifier for SCRAM-SHA-256 behind it, `;scram:` and what `scram.Verifier` writes. It
costs less to try passwords against than scrypt does; the file that holds both is readable for the gateway
only. So a right password is known by the verifier, in some 6 ms.

A scrypt hash takes some 50 ms and 16 MiB: never verify on the event loop. A wrong password takes both, with
and without a verifier. Source: RFC 7914; RabbitMQ's rabbit_password; Mosquitto's mosquitto_passwd(1).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import Final

from penstock.router.authentication.scram import ITERATIONS, Verifier, make_verifier

__all__ = [
    "DUMMY",
    "MOSQUITTO_ALGORITHMS",
    "exported_hash",
    "has_verifier",
    "hash_password",
    "imported_hash",
    "is_own",
    "is_slow",
    "rabbitmq_hash",
    "verifier_of",
    "verify_password",
]

_LOG2_N: Final = 14
_R: Final = 8
_P: Final = 1
_SCRAM: Final = ";scram:"
_MEMORY_MAX: Final = 64 << 20
_SALT_SIZE: Final = 4
_SIZES: Final = {"sha256": 32, "sha512": 64, "md5": 16}
_ALGORITHM: Final = "rabbit_password_hashing_"
_OWN_ALGORITHM: Final = "penstock_password_hashing_scrypt"
_OWN_HASH: Final = re.compile(
    r"(1[0-6]):(8):([1-4]):[A-Za-z0-9+/]{22}==:[A-Za-z0-9+/]{43}="
    r"(;scram:[1-9][0-9]{3,5}:[A-Za-z0-9+/]{22}==(:[A-Za-z0-9+/]{43}=){2})?"
)
"""The text that `hash_password` writes behind its kind; the parameters bound the cost of a login."""

MOSQUITTO_ALGORITHMS: Final = {
    "6": "mosquitto_password_hashing_sha512",
    "7": "mosquitto_password_hashing_pbkdf2",
}
"""`hashing_algorithm` of a line `NAME:$KIND$REST` of a password file; `password_hash` is REST."""
_MOSQUITTO_HASH: Final = re.compile(r"(?:([1-9][0-9]{0,6})\$)?([A-Za-z0-9+/=]{4,128})\$([A-Za-z0-9+/]{86}==)")
"""Rounds (of PBKDF2), salt, hash. The rounds bound the cost of a login."""


def hash_password(password: bytes) -> str:
    """A new hash of a password. Slow."""
    salt = os.urandom(16)
    stored = ":".join(("scrypt", str(_LOG2_N), str(_R), str(_P), _text(salt), _text(_derive(password, salt))))
    return f"{stored}{_SCRAM}{make_verifier(password).encode()}"


def has_verifier(stored: str) -> bool:
    """Whether a stored password has keys for SCRAM."""
    return _SCRAM in stored


def verifier_of(stored: str) -> Verifier | None:
    """The keys for SCRAM of a stored password; None: it was not made here (or before there was SCRAM)."""
    _, found, verifier = stored.partition(_SCRAM)
    return Verifier.decode(verifier) if found else None


def rabbitmq_hash(exported: str, algorithm: str = "") -> str:
    """The stored form of a hash that RabbitMQ exported: base64 of salt and digest.

    `algorithm` is what the export calls `hashing_algorithm`; "" = the length tells.

    Raises:
        ValueError: it is not such a hash.

    """
    wanted = algorithm.removeprefix(_ALGORITHM)
    if algorithm and (wanted == algorithm or wanted not in _SIZES):
        raise ValueError(f"no hashing_algorithm is called {algorithm!r}")
    try:
        raw = base64.b64decode(exported, validate=True)
    except binascii.Error as error:
        raise ValueError("a password_hash is base64") from error
    for name, size in _SIZES.items():
        if len(raw) == _SALT_SIZE + size and wanted in ("", name):
            return f"{name}:{_text(raw)}"
    raise ValueError("a password_hash is 4 bytes of salt and a SHA-256, SHA-512 or MD5 of salt + password")


def exported_hash(stored: str) -> tuple[str, str]:
    """(password_hash, hashing_algorithm) as RabbitMQ's definitions have them; ours has a name of its own."""
    kind, _, rest = stored.partition(":")
    if kind in ("mosquitto-sha512", "mosquitto-pbkdf2"):
        return rest, f"mosquitto_password_hashing_{kind.removeprefix('mosquitto-')}"
    return rest, _OWN_ALGORITHM if kind == "scrypt" else _ALGORITHM + (kind or "sha256")


def imported_hash(exported: str, algorithm: str = "") -> str:
    """The stored form of a hash of RabbitMQ's, Mosquitto's or ours, as `exported_hash` gives them.

    Raises:
        ValueError: it is not such a hash.

    """
    if algorithm in MOSQUITTO_ALGORITHMS.values():
        return _mosquitto_hash(exported, algorithm)
    if algorithm != _OWN_ALGORITHM:
        return rabbitmq_hash(exported, algorithm)
    if _OWN_HASH.fullmatch(exported) is None:
        raise ValueError(f"it is none of {_OWN_ALGORITHM}")
    return f"scrypt:{exported}"


def _mosquitto_hash(exported: str, algorithm: str) -> str:
    kind = algorithm.removeprefix("mosquitto_password_hashing_")
    found = _MOSQUITTO_HASH.fullmatch(exported)
    if found is None or (found[1] is not None) != (kind == "pbkdf2"):
        raise ValueError(f"it is none of {algorithm}")
    try:
        base64.b64decode(found[2], validate=True)
    except binascii.Error as error:
        raise ValueError("the salt of a password_hash is base64") from error
    return f"mosquitto-{kind}:{exported}"


def is_own(stored: str) -> bool:
    """Whether it was made here: verifying it takes as long as verifying `DUMMY`."""
    return stored.startswith("scrypt:")


def is_slow(stored: str) -> bool:
    """Whether verifying it takes long enough to keep it off the event loop."""
    return stored.startswith(("scrypt:", "mosquitto-pbkdf2:"))


def verify_password(stored: str, password: bytes) -> bool:
    """Whether the password is the one that was hashed; a wrong one takes the same time for any user."""
    kind, _, rest = stored.partition(_SCRAM)[0].partition(":")
    if kind == "scrypt":
        if (verifier_of(stored) or _NOBODY).matches(password):
            return True
        log2_n, r, p, salt, key = rest.split(":")
        derived = _derive(password, base64.b64decode(salt), int(log2_n), int(r), int(p))
        return hmac.compare_digest(derived, base64.b64decode(key))
    if kind.startswith("mosquitto-"):
        *rounds, salt, key = rest.split("$")
        return hmac.compare_digest(
            _mosquitto(password, base64.b64decode(salt), rounds), base64.b64decode(key)
        )
    raw = base64.b64decode(rest)
    digest = hashlib.new(kind, raw[:_SALT_SIZE] + password).digest()
    return hmac.compare_digest(digest, raw[_SALT_SIZE:])


def _derive(password: bytes, salt: bytes, log2_n: int = _LOG2_N, r: int = _R, p: int = _P) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << log2_n, r=r, p=p, maxmem=_MEMORY_MAX, dklen=32)


def _mosquitto(password: bytes, salt: bytes, rounds: list[str]) -> bytes:
    if not rounds:
        return hashlib.sha512(password + salt).digest()
    return hashlib.pbkdf2_hmac("sha512", password, salt, int(rounds[0]))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_NOBODY: Final = Verifier(ITERATIONS, b"\0" * 16, b"\0" * 32, b"\0" * 32)
DUMMY: Final = ":".join(("scrypt", str(_LOG2_N), str(_R), str(_P), _text(b"\0" * 16), _text(b"\0" * 32)))
"""Verified against when the user is unknown, so that this takes as long; no password has it."""
