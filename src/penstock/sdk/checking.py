"""Arguments that are none, told at the call that has them: which one, what it is, and what it should be."""

from __future__ import annotations

__all__ = ["number"]


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
