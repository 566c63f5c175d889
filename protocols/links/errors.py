"""Errors of links."""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["LinkError"]


class LinkError(PenstockError):
    """The other end refused something, or cannot be used."""
