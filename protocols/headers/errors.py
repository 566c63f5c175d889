"""Errors about headers."""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["HeaderRefused"]


class HeaderRefused(PenstockError):
    """A header of ours has a wrong value, or stands without another one. The message says which."""
