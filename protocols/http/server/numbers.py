"""Numbers of JSON bodies: JSON has one kind, so 12.0 is a whole number, as JSON Schema's `integer` has it."""

from __future__ import annotations

__all__ = ["whole"]


def whole(value: object) -> int | None:
    """A whole number, also one written with a fraction of 0; None: the value is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
