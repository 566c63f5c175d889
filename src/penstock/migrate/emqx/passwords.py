"""Users of EMQX's own database with their hashes, which penstock verifies as they are.

A password is base64 of a salt of 4 bytes and the digest of salt + password in hexadecimal digits.
Source: emqx_auth_mnesia_cli and emqx_passwd of EMQX 4.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

__all__ = ["user_of"]

_SALT: Final = 4
_ALGORITHMS: Final = {
    64: "rabbit_password_hashing_sha256",
    128: "rabbit_password_hashing_sha512",
    32: "rabbit_password_hashing_md5",
}
"""By the number of digits; SHA-1 and bcrypt have others."""


def user_of(name: str, password: str) -> dict[str, Any]:
    """A user as definitions have them.

    Raises:
        ValueError: the hash is of a kind that penstock does not verify.

    """
    try:
        raw = base64.b64decode(password, validate=True)
        algorithm = _ALGORITHMS[len(raw) - _SALT]
        digest = bytes.fromhex(raw[_SALT:].decode("ascii"))
    except (binascii.Error, KeyError, ValueError):
        raise ValueError(
            "its password is no salted SHA-256, SHA-512 or MD5; give it a new one: penstock users create"
        ) from None
    made = base64.b64encode(raw[:_SALT] + digest).decode()
    return {"name": name, "password_hash": made, "hashing_algorithm": algorithm, "tags": []}
