"""Callbacks of several listeners: one that fails is logged, and the others are called all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

__all__ = ["tell_all"]

_LOG: Final = logging.getLogger("penstock.log")


def tell_all(callbacks: Iterable[Callable[..., object]], *arguments: Any) -> None:
    """Call each of them with `arguments`, in order."""
    for callback in list(callbacks):
        try:
            callback(*arguments)
        except Exception:
            _LOG.exception("a callback of the log failed; the others go on")
