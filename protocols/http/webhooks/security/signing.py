"""Signatures of webhooks: who gets a request can tell that this gateway sent it, now, and unchanged.

Signed is `webhook-id.webhook-timestamp.body`. While a secret is replaced both sign, and a receiver that knows
one of them is content:

    whsec_...   24 to 64 random bytes in base64: HMAC-SHA256      webhook-signature: v1,<base64>
    whsk_...    the 32 bytes of an ed25519 private key            webhook-signature: v1a,<base64>
                its public key, for receivers, is whpk_...

Source: Standard Webhooks 1.0 (https://www.standardwebhooks.com); RFC 8032.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["BadSecret", "Kind", "check_secret", "kind_of", "new_secret", "public_key", "signature"]

Kind = Literal["hmac", "ed25519"]

_HMAC: Final = "whsec_"
_ED25519: Final = "whsk_"
_PUBLIC: Final = "whpk_"


class BadSecret(ValueError):
    """A secret that cannot sign."""


def new_secret(kind: Kind) -> str:
    """A fresh secret."""
    raw = secrets.token_bytes(32)
    return (_HMAC if kind == "hmac" else _ED25519) + base64.b64encode(raw).decode()


def check_secret(secret: str) -> None:
    """Raises BadSecret."""
    _signer(secret)


def kind_of(secret: str) -> Kind:
    """Which kind of key a secret is."""
    return "hmac" if secret.startswith(_HMAC) else "ed25519"


def _ed25519(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ed25519  # here: few webhooks need it

    return ed25519.Ed25519PrivateKey.from_private_bytes(seed)


def public_key(secret: str) -> str | None:
    """The key that receivers verify with, when it is not the secret itself."""
    if kind_of(secret) == "hmac":
        return None
    key = _ed25519(_raw(secret, _ED25519)[:32])
    return _PUBLIC + base64.b64encode(key.public_key().public_bytes_raw()).decode()


def signature(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header webhook-signature: one signature for each key, the newest first."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return " ".join(_signer(key)(signed) for key in keys)


def _raw(secret: str, prefix: str) -> bytes:
    try:
        return base64.b64decode(secret[len(prefix) :], validate=True)
    except binascii.Error as error:
        raise BadSecret(f"what follows {prefix} is not base64") from error


@lru_cache(maxsize=1024)
def _signer(secret: str) -> Callable[[bytes], str]:
    if secret.startswith(_HMAC):
        raw = _raw(secret, _HMAC)
        if not 24 <= len(raw) <= 64:
            raise BadSecret(f"a secret of {len(raw)} bytes: 24 to 64 are needed")

        def by_hmac(signed: bytes) -> str:
            return "v1," + base64.b64encode(hmac.digest(raw, signed, hashlib.sha256)).decode()

        return by_hmac
    if secret.startswith(_ED25519):
        raw = _raw(secret, _ED25519)
        if len(raw) not in (32, 64):
            raise BadSecret(f"an ed25519 key has 32 bytes, not {len(raw)}")
        key = _ed25519(raw[:32])

        def by_ed25519(signed: bytes) -> str:
            return "v1a," + base64.b64encode(key.sign(signed)).decode()

        return by_ed25519
    raise BadSecret(f"a secret begins with {_HMAC} (HMAC) or {_ED25519} (ed25519)")
