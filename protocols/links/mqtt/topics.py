"""Which topics cross a bridge, and what they are called on its other side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from penstock.config.bridges import Topic

__all__ = ["mapping", "matches"]


def matches(pattern: str, topic: str) -> bool:
    """Whether a filter matches a topic. Source: mqtt5:4.7."""
    if topic.startswith("$") != pattern.startswith("$") and pattern[:1] in ("+", "#", "$"):
        return False
    wanted, levels = pattern.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


def mapping(topics: Sequence[Topic], direction: Literal["out", "in"]) -> Callable[[str], str | None]:
    """The function from a topic to its name on the other side; None: it does not cross.

    The first of `topics` counts that matches.
    """
    chosen = [one for one in topics if one.direction in (direction, "both")]

    def name_of(topic: str) -> str | None:
        for one in chosen:
            here, there = one.local, one.remote_prefix
            prefix = one.local_prefix
            if direction == "in":
                here, there, prefix = one.remote, one.local_prefix, one.remote_prefix
            if matches(here, topic):
                return there + topic[len(prefix) :]
        return None

    return name_of
