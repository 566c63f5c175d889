"""The oracle of the route table: every lookup resolves anew, so it is never out of date."""

from __future__ import annotations

from tests.reference.topics import dotted_matches, slashed_matches


class Truth:
    """Counts, per key, the changes of patterns that match it: what a route of the key must know."""

    def __init__(self) -> None:
        self._changes: list[tuple[str, bytes]] = []

    def change(self, syntax: str, pattern: bytes) -> None:
        """A binding with this pattern came or went; syntax is direct, dotted, slashed or all."""
        self._changes.append((syntax, pattern))

    def of(self, routing_key: bytes, topic: bytes) -> int:
        """How many changes concern a message with this key and topic."""
        return sum(_concerns(*change, routing_key, topic) for change in self._changes)


def _concerns(syntax: str, pattern: bytes, routing_key: bytes, topic: bytes) -> bool:
    match syntax:
        case "direct":
            return pattern == routing_key
        case "dotted":
            return dotted_matches(pattern, routing_key)
        case "slashed":
            return slashed_matches(pattern, topic)
    return True
