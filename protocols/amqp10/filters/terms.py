"""A part of a filter in two forms: a function of a message, and a tree that the kernel takes.

| tree | is |
|---|---|
| `("constant", value)` | a bool, int, float, text or bytes |
| `("listed", code, index, default)` | a field of the section with that descriptor, a list |
| `("mapped", code, name)` | an entry of the section, a map |
| `("persistent",)` | what JMS calls the delivery mode |
| `("compared", sign, one, other)` | their comparison, one of `SIGNS` |
| `("null", one, negated)` | whether it has no value |
| `("all", [...])`, `("any", [...])`, `("not", one)` | conditions |
| `("between", one, low, high)`, `("in", one, [...])` | |
| `("like", one, [part, ...])` | the parts between `%`, each a list of characters, None for any one |
| `("same", one, wanted)` | a property filter: whether it is that constant, whatever it is; never unknown |
| `("begins", one, text)`, `("ends", one, text)` | |
| `("there", one)` | a property filter: whether it is there, with any value |

A part without a tree, such as arithmetic, is left to the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.protocols.amqp10.filters.view import View
from penstock.protocols.amqp10.messages.sections import Message

__all__ = ["SIGNS", "Looked", "Term", "Tree", "Value", "tree_of"]

Looked: TypeAlias = Message | View
"""A message, or a view of one: its sections by name."""
Value: TypeAlias = Callable[[Looked], Any]
Tree: TypeAlias = tuple[Any, ...]

SIGNS: Final = ("=", "<>", "!=", "<", "<=", ">", ">=")
"""Their indexes are those that the kernel knows."""


class Term(NamedTuple):
    """See the module."""

    value: Value
    tree: Tree | None = None


def tree_of(kind: str, *parts: Any) -> Tree | None:
    """A tree of parts; None: one of them has none."""
    flat = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return None if any(one is None for one in flat) else (kind, *parts)
