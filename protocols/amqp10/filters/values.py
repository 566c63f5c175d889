"""Values and conditions of selectors, in three-valued logic: None is a value that is not there, or unknown.

Numbers of all types compare with one another, and texts with the bytes that they are in UTF-8. Values of
different kinds are not equal, and none is the greater one: each comparison of them is false. An operation
that has no result, such as a division by zero, is unknown.

Source: JMS 2.0 section 3.8.1; AMQP Filter Expressions 1.0 (working draft), section 6; RabbitMQ 4.2.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.filters.errors import SelectorError

__all__ = ["COMPARISONS", "OPERATIONS", "Like", "compared", "condition", "simple"]

_LIKE_MAX: Final = 65536
"""Characters of a text that LIKE looks at; a longer one is unknown."""

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def simple(value: Any) -> Any:
    """A value of a message as a selector sees it: bool, int, float, str, bytes; None: it has none."""
    if isinstance(value, v.Decimal):
        return None
    if isinstance(value, bool | int | float | str | bytes):
        return value
    return str(value) if isinstance(value, UUID) else None


def condition(value: Any) -> bool | None:
    """A value where a condition stands: only a boolean is one."""
    return value if isinstance(value, bool) else None


def compared(compare: Callable[[Any, Any], bool], one: Any, other: Any) -> bool | None:
    """The comparison of two values."""
    if one is None or other is None:
        return None
    if isinstance(one, bytes) != isinstance(other, bytes):
        one, other = (side.encode() if isinstance(side, str) else side for side in (one, other))
    if _kind(one) is not _kind(other):
        return False
    if isinstance(one, bool) and compare not in (operator.eq, operator.ne):
        return False
    return compare(one, other)


def _kind(value: Any) -> type:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else str if isinstance(value, str) else bytes


# Arithmetic


def _divided(one: Any, other: Any) -> Any:
    """Integers without a remainder, as in Java."""
    if isinstance(one, int) and isinstance(other, int):
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient
    return one / other


def _remainder(one: Any, other: Any) -> Any:
    """With the sign of the first."""
    if not (isinstance(one, int) and isinstance(other, int)):
        return None
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operation(one: Any, other: Any) -> Any:
        if _no_number(one) or _no_number(other):
            return None
        try:
            return function(one, other)
        except (ZeroDivisionError, OverflowError):
            return None

    return operation


def _no_number(value: Any) -> bool:
    return not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value)


OPERATIONS: Final = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _arithmetic(_divided),
    "%": _arithmetic(_remainder),
}


# LIKE


class Like:
    """A pattern: `%` stands for any text, `_` for any character, and both for themselves behind `escape`.

    The parts between `%` are looked for one behind the other, each as early as it can be: no text makes
    that longer than its length times the pattern's.
    """

    def __init__(self, pattern: str, escape: str | None) -> None:
        """Raises SelectorError."""
        if escape is not None and len(escape) != 1:
            raise SelectorError("ESCAPE has one character")
        parts: list[list[str | None]] = [[]]
        characters = iter(pattern)
        for one in characters:
            if one == escape:
                one = next(characters, "")
                if not one:
                    raise SelectorError(f"the pattern {pattern!r} ends with its escape")
                parts[-1].append(one)
            elif one == "%":
                parts.append([])
            else:
                parts[-1].append(None if one == "_" else one)
        self.parts = parts
        """The characters of each part; None: any one."""
        self._last_size = len(parts[-1])
        texts = ["".join("." if one is None else re.escape(one) for one in part) for part in parts]
        self._parts = [re.compile(text, re.DOTALL) for text in texts]

    def matches(self, text: Any) -> bool | None:
        """Whether it fits the whole text."""
        if text is None or (isinstance(text, str) and len(text) > _LIKE_MAX):
            return None
        if not isinstance(text, str):
            return False
        first, *middle = self._parts
        if not middle:
            return first.fullmatch(text) is not None
        found = first.match(text)
        for part in middle[:-1]:
            if found is None:
                return False
            found = part.search(text, found.end())
        at = len(text) - self._last_size
        return found is not None and at >= found.end() and middle[-1].match(text, at) is not None
