"""The form of a signed token. Apart, so that a gateway without tokens loads nothing that reads them."""

from __future__ import annotations

__all__ = ["is_token"]


def is_token(secret: bytes) -> bool:
    """Whether a password has the form of a signed token: then it is one, and nothing else."""
    # Each begins with `{"`, in base64.
    return secret.startswith(b"eyJ") and secret.count(b".") == 2
