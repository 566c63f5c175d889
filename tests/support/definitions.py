"""Comparison of the definitions that two brokers export."""

from __future__ import annotations

from typing import Any

__all__ = ["lost"]


def lost(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The definitions of `before` that `after` lacks, one entry each."""
    identities = {
        "users": ("name",),
        "vhosts": ("name",),
        "permissions": ("user", "vhost"),
        "topic_permissions": ("user", "vhost", "exchange"),
        "policies": ("vhost", "name"),
        "queues": ("vhost", "name"),
        "exchanges": ("vhost", "name"),
        "bindings": ("vhost", "source", "destination", "destination_type", "routing_key"),
        "global_parameters": ("name",),
    }
    found = []
    for part, keys in identities.items():
        there = _keyed(after.get(part, []), *keys)
        for identity, item in _keyed(before.get(part, []), *keys).items():
            other = there.get(identity)
            if other is None:
                found.append(f"{part}: {identity} is missing")
                continue
            found += [
                f"{part}: {identity}: {key} was {value!r} and is {other.get(key)!r}"
                for key, value in item.items()
                if not _same(value, other.get(key))
            ]
    return found


def _keyed(items: list[dict[str, Any]], *keys: str) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(str(item.get(key)) for key in keys): item for item in items}


def _same(before: Any, after: Any) -> bool:
    """Whether a value says the same; RabbitMQ has several ways to write nothing, and tags have no order."""
    if not before and not after and before is not False:
        return True
    if isinstance(before, dict) and isinstance(after, dict):
        return all(_same(value, after.get(key)) for key, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return sorted(map(repr, before)) == sorted(map(repr, after))
    return bool(before == after)
