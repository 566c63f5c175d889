"""SCRAM-SHA-256: a login that proves a password without sending it, and proves the server to the client.

    client first   n,,n=USER,r=NONCE
    server first   r=NONCE + ours,s=SALT,i=ITERATIONS
    client final   c=GS2 HEADER,r=NONCE + ours,p=PROOF
    server final   v=SIGNATURE

Without channel binding. The stored form of a password is a verifier (`passwords`): who has it cannot log
in with it. A user without one, or one that does not exist, gets a salt that does not tell.

Source: RFC 5802, RFC 7677. Names are compared as they come, without SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from typing import Final

from penstock.lazy_dataclass import dataclass

__all__ = ["ITERATIONS", "METHOD", "ScramError", "ScramExchange", "Verifier", "make_verifier", "new_nonce"]

METHOD: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 16384
"""Of new verifiers: about 6 ms, for the client at each login. RFC 7677 asks for 4,096 at least."""
_MESSAGE_MAX: Final = 2048


class ScramError(Exception):
    """The exchange failed: a message that is none, or a proof that is wrong."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The verifier of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def encode(self) -> str:
        """As text without spaces or `;`: iterations, salt, stored key, server key."""
        parts = (self.salt, self.stored_key, self.server_key)
        return ":".join((str(self.iterations), *(base64.b64encode(part).decode() for part in parts)))

    @classmethod
    def decode(cls, text: str) -> Verifier:
        """The verifier that `encode` wrote."""
        iterations, *parts = text.split(":")
        salt, stored_key, server_key = (base64.b64decode(part) for part in parts)
        return cls(int(iterations), salt, stored_key, server_key)

    def matches(self, password: bytes) -> bool:
        """Whether it is of this password. Slow."""
        made = make_verifier(password, self.salt, self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


def make_verifier(password: bytes, salt: bytes | None = None, iterations: int = ITERATIONS) -> Verifier:
    """A verifier of a password, with a new salt. Slow."""
    if salt is None:
        salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = _hmac(salted, b"Client Key")
    return Verifier(iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))


def new_nonce() -> str:
    """A nonce of ours; no two exchanges have the same."""
    return secrets.token_urlsafe(18)


class ScramExchange:
    """The server's side of one login. `first`, look up `name`, `challenge`, `final`."""

    def __init__(self, nonce: str) -> None:
        """`nonce` is ours."""
        self.name = ""
        """The user who wants to log in; set after `first`."""
        self._nonce = nonce
        self._header = self._bare = self._server_first = ""
        self._verifier: Verifier | None = None

    def first(self, message: bytes) -> None:
        """The client's first message.

        Raises:
            ScramError: it is none, or asks for what is not there (channel binding, another identity).

        """
        text = _text(message)
        binding, comma, rest = text.partition(",")
        identity, second, bare = rest.partition(",")
        if not comma or not second or binding not in ("n", "y") or identity:
            raise ScramError("no first message, or with channel binding or another identity")
        fields = bare.split(",")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
            raise ScramError("no name and nonce")
        nonce = fields[1][2:]
        if not nonce or not nonce.isprintable():
            raise ScramError("no nonce")
        self.name = _unescaped(fields[0][2:])
        self._header = f"{binding},{identity},"
        self._bare = bare
        self._nonce = nonce + self._nonce

    def challenge(self, verifier: Verifier) -> bytes:
        """The server's first message, for the user with this verifier."""
        self._verifier = verifier
        salt = base64.b64encode(verifier.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={verifier.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """The client's last message; the server's last one.

        Raises:
            ScramError: it is none, or the proof is wrong.

        """
        verifier = self._verifier
        assert verifier is not None, "challenge comes before final"
        without_proof, found, proof_text = _text(message).rpartition(",p=")
        fields = without_proof.split(",")
        binding = "c=" + base64.b64encode(self._header.encode()).decode()
        if not found or len(fields) < 2 or fields[0] != binding or fields[1] != f"r={self._nonce}":
            raise ScramError("no last message, or for another exchange")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except binascii.Error:
            raise ScramError("no proof") from None
        signed = f"{self._bare},{self._server_first},{without_proof}".encode()
        signature = _hmac(verifier.stored_key, signed)
        if len(proof) != len(signature):
            raise ScramError("no proof")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key):
            raise ScramError("a wrong proof")
        return b"v=" + base64.b64encode(_hmac(verifier.server_key, signed))


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_MAX:
        raise ScramError("a message that is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is no UTF-8") from None


def _unescaped(name: str) -> str:
    """`=2C` is a comma, `=3D` an equals sign, and no other `=` may be there."""
    plain = name.replace("=2C", ",")
    if "=" in plain.replace("=3D", "") or not plain:
        raise ScramError("no name")
    return plain.replace("=3D", "=")
