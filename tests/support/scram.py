"""The client's side of SCRAM-SHA-256, by the text of RFC 5802 and 7677."""

from __future__ import annotations

import base64
import hashlib
import hmac

METHOD = "SCRAM-SHA-256"


class ScramClient:
    """One exchange of one client."""

    def __init__(self, name: str, password: bytes, nonce: str = "c1ient") -> None:
        self.bare = f"n={name},r={nonce}"
        self.password = password
        self.signature = b""
        """The signature that must prove the server, after `final`."""

    def first(self) -> bytes:
        """The first message."""
        return b"n,," + self.bare.encode()

    def final(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.signature = b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha256"))
        return f"{without_proof},p={proof}".encode()
