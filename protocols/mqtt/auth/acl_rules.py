"""Many topic filters, asked at once whether one of them covers, or meets, a filter: a tree of their levels.

It costs the depth of the filter, not how many there are; where a filter with `+` or `#` is asked
whether it meets one, the number of those that begin like it.

A pattern's level may have variables, `%u` and `%c`. It stands in the tree as it is written, and means what
they say of whoever asks: one literal level, or nothing, which none of the pattern's meanings survive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["Meaning", "Rules"]

Meaning = Callable[[str], str | None]
"""The text of a level with variables for somebody; None: nothing."""

_VARIABLE: Final = re.compile(r"%[uc]")


def _has_variable(level: str) -> bool:
    """Whether a level, or a filter, of a pattern has a variable in it."""
    return _VARIABLE.search(level) is not None


class _Node:
    """The rules behind the same first levels."""

    __slots__ = ("children", "ends", "every", "plus", "variables")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.plus: _Node | None = None
        self.variables: dict[str, _Node] = {}
        self.every = False
        """One goes on with `#`."""
        self.ends = False
        """One ends here."""


class Rules:
    """Filters as MQTT's, or with `by_key` as routing keys see them: see `TopicGuard.allow`."""

    def __init__(self, *, by_key: bool = False) -> None:
        self._root = _Node()
        self._by_key = by_key

    def add(self, topic_filter: str, *, is_pattern: bool = False) -> None:
        """One more; in a pattern's, `%u` and `%c` are variables."""
        node = self._root
        for level in self._levels(topic_filter):
            if level == "#":
                node.every = True
                return
            if level == "+":
                node.plus = node.plus or _Node()
                node = node.plus
            else:
                kind = node.variables if is_pattern and _has_variable(level) else node.children
                node = kind.setdefault(level, _Node())
        node.ends = True

    def _levels(self, text: str) -> list[str]:
        # By a key, a dot in a rule may be the slash of the key.
        return (text.replace(".", "/") if self._by_key else text).split("/")

    def covers(self, topic: str, meaning: Meaning) -> bool:
        """Whether one of them matches whatever this topic, or filter, matches. Not `by_key`."""
        return _covers(self._root, topic.split("/"), 0, topic.startswith("$"), meaning)

    def meets(self, topic: str, meaning: Meaning) -> bool:
        """Whether some topic is matched by this topic, or filter, and by one of them."""
        levels = topic.split("/")
        node, level = self._root, levels[0]
        if self._by_key or not (level in ("+", "#") or level.startswith("$")):
            return self._meets(node, levels, 0, meaning)
        # mqtt5:4.7.2-1: a wildcard in front matches nothing that begins with `$`.
        seen = _Node()
        if level.startswith("$"):
            seen.children, seen.variables = node.children, node.variables
        else:
            seen.plus, seen.every = node.plus, node.every
            seen.children = {name: child for name, child in node.children.items() if not name.startswith("$")}
            seen.variables = {
                written: child
                for written, child in node.variables.items()
                if not (meaning(written) or "").startswith("$")
            }
        return self._meets(seen, levels, 0, meaning)

    def _meets(self, node: _Node, levels: list[str], i: int, meaning: Meaning) -> bool:
        if node.every:
            return True
        if i == len(levels):
            return node.ends
        level = levels[i]
        if level == "#":
            return _has_any(node, meaning)
        if level == "+":
            following = list(node.children.values())
        else:
            child = node.children.get(level)
            following = [] if child is None else [child]
        if node.plus is not None:
            following.append(node.plus)
        return any(self._meets(child, levels, i + 1, meaning) for child in following) or any(
            self._meets_meant(meaning(written), child, levels, i, meaning)
            for written, child in node.variables.items()
        )

    def _meets_meant(
        self, meant: str | None, node: _Node, levels: list[str], i: int, meaning: Meaning
    ) -> bool:
        if meant is None:
            return False
        for literal in self._levels(meant):
            if i == len(levels):
                return False
            if levels[i] == "#":
                return _has_any(node, meaning)
            if levels[i] not in ("+", literal):
                return False
            i += 1
        return self._meets(node, levels, i, meaning)


def _covers(node: _Node, levels: list[str], i: int, hidden: bool, meaning: Meaning) -> bool:
    if node.every and not hidden:
        return True
    if i == len(levels):
        return node.ends
    level = levels[i]
    if level == "#":
        return False
    child = node.children.get(level)
    if child is not None and _covers(child, levels, i + 1, False, meaning):
        return True
    if node.plus is not None and not hidden and _covers(node.plus, levels, i + 1, False, meaning):
        return True
    return any(
        meaning(written) == level and _covers(child, levels, i + 1, False, meaning)
        for written, child in node.variables.items()
    )


def _has_any(node: _Node, meaning: Meaning) -> bool:
    """Whether a filter ends here or below, and means something."""
    return (
        node.ends
        or node.every
        or (node.plus is not None and _has_any(node.plus, meaning))
        or any(_has_any(child, meaning) for child in node.children.values())
        or any(
            meaning(written) is not None and _has_any(child, meaning)
            for written, child in node.variables.items()
        )
    )
