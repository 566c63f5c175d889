"""The oracle of routing: a topology as plain sets, searched in full for every message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.reference.topics import dotted_matches, slashed_matches


@dataclass(frozen=True)
class Bound:
    """A binding; `kind` is what the destination is: q a queue, x an exchange, s a session."""

    source: str
    kind: str
    destination: str
    pattern: str
    header: str | None = None
    """In a headers exchange: the value that header `h` must have."""


@dataclass
class Topology:
    """Exchanges as name -> (type, alternate exchange), queue names, session ids, bindings."""

    exchanges: dict[str, tuple[str, str | None]]
    queues: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    bindings: set[Bound] = field(default_factory=set)

    def route(
        self, exchange: str, key: str, topic: str, headers: Mapping[str, object]
    ) -> set[tuple[str, str]] | None:
        """("q" or "s", name) of everybody who gets the message; None when there is no such exchange."""
        if exchange not in self.exchanges:
            return None
        found: set[tuple[str, str]] = set()
        seen: set[str] = set()
        ahead = [exchange]
        while ahead:
            name = ahead.pop()
            if name in seen or name not in self.exchanges:
                continue
            seen.add(name)
            type_, alternate = self.exchanges[name]
            if name == "":
                matched = [Bound("", "q", key, key)] if key in self.queues else []
            else:
                matched = [
                    bound
                    for bound in self.bindings
                    if bound.source == name and _matches(type_, bound, key, topic, headers)
                ]
            for bound in matched:
                if bound.kind == "x":
                    ahead.append(bound.destination)
                else:
                    found.add((bound.kind, bound.destination))
            if not matched and alternate is not None:
                ahead.append(alternate)
        return found

    def delete_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self.bindings = {
            b for b in self.bindings if b.source != name and (b.kind, b.destination) != ("x", name)
        }

    def delete(self, kind: str, name: str) -> None:
        (self.queues if kind == "q" else self.sessions).discard(name)
        self.bindings = {b for b in self.bindings if (b.kind, b.destination) != (kind, name)}


def _matches(type_: str, bound: Bound, key: str, topic: str, headers: Mapping[str, object]) -> bool:
    if bound.kind == "s":
        return slashed_matches(bound.pattern.encode(), topic.encode())
    match type_:
        case "direct":
            return bound.pattern == key
        case "topic":
            return dotted_matches(bound.pattern.encode(), key.encode())
        case "headers":
            return headers.get("h") == bound.header
    return True
