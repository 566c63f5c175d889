"""Arguments that are none, told at the call that has them: which one, what it is, and what it should be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

__all__ = ["FOREVER_S", "number", "pairs", "text", "whole"]

FOREVER_S: Final = 10**9
"""Longer than anything waits, in seconds."""


def number(name: str, value: object, least: float, most: float) -> float:
    """`value`, which must be a number in [least, most].

    Raises:
        TypeError: it is no number.
        ValueError: it is another one.

    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} is a number from {least:,} to {most:,}, not {value!r}")
    return value


def whole(name: str, value: object, least: int, most: int) -> int:
    """`value`, which must be a whole number in [least, most]. Raises as `number`."""
    found = number(name, value, least, most)
    if found != int(found):
        raise ValueError(f"{name} is a whole number, not {value!r}")
    return int(found)


def text(name: str, value: object) -> str:
    """`value`, which must be text that is not empty. Raises TypeError, ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} is empty")
    return value


def pairs(name: str, value: object) -> list[list[int]]:
    """`value`, which must be pairs of numbers, as lists. Raises TypeError."""
    some: list[Any] = (
        list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]
    )
    if not all(isinstance(one, list | tuple) and len(one) == 2 for one in some):
        raise TypeError(f"{name} is a list of pairs, (first, last), not {value!r}")
    return [[first, last] for first, last in some]
