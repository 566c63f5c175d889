"""Tables of arguments to JSON's types and back."""

from collections.abc import Callable
from typing import Any

def to_json(
    value: object, depth: int, name: Callable[[object], str], other: Callable[[object, int], object]
) -> Any:
    """The value by types that JSON has; see `router.arguments`.

    Args:
        value: int, bool, None, ASCII text, bytes, dicts and lists of these, or what `other` makes of it.
        depth: Tables and lists around it.
        name: The key for one that is no text of ASCII, or begins with a character 0.
        other: Makes it of any other value, at its depth; it raises for what is nested too deeply.

    """

def from_json(data: object, other: Callable[[object], object]) -> Any:
    """The value of decoded JSON; `other` makes it of an object that is neither {"o"} nor {"b"}, or has a
    marked key."""
