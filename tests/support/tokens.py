"""An issuer of tokens: its keys as a key set, and what it signs."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER: Final = "https://issuer.test/"
AUDIENCE: Final = "broker"


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key of that name; the same one each time."""
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(name: str, kind: str = "ES256", **more: Any) -> dict[str, Any]:
    """The public key of that name, as a set has it."""
    if kind == "ES256":
        found = jwt.algorithms.ECAlgorithm.to_jwk(ec_key(name).public_key(), as_dict=True)
    else:
        found = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True)
    return {**found, "kid": name, "use": "sig", **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def token(
    scope: Any = "broker.read:*/*",
    *,
    user: str = "ann",
    key: str = "one",
    algorithm: str = "ES256",
    for_s: float = 300,
    headers: dict[str, Any] | None = None,
    **claims: Any,
) -> str:
    """A signed token; a claim that is None is left out."""
    said = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": user,
        "exp": int(time.time() + for_s),
        "scope": scope,
        **claims,
    }
    said = {name: value for name, value in said.items() if value is not None}
    signer = ec_key(key) if algorithm.startswith("ES") else rsa_key(key)
    return jwt.encode(said, signer, algorithm, headers={"kid": key, **(headers or {})})


def unsigned(claims: dict[str, Any], header: dict[str, Any], signature: bytes = b"") -> str:
    """A token that says anything, with any signature."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def write_keys(path: Path, *keys: dict[str, Any]) -> str:
    path.write_bytes(key_set(*keys))
    return str(path)
