"""Computes what importing definitions would change: pure, from the present state and the file.

create     it is not there
change     it is there, and would become what the file says
conflict   it is there with other properties, which cannot change: the import would be refused
kept       it is there with other properties, and would stay as it is
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.protocols.listening.definitions import Item

__all__ = ["difference"]

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("vhost", "user"),
    "global_parameters": ("name",),
    "parameters": ("vhost", "component", "name"),
    "policies": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
    "mqtt_sessions": ("vhost", "client_id"),
    "webhooks": ("vhost", "name"),
}
"""The keys that tell the things of each list apart, in the order in which they are imported."""
_FIXED: Final = ("queues", "exchanges")
_KEPT: Final = ("mqtt_sessions", "webhooks")


def difference(there: Item, file: Item) -> dict[str, dict[str, list[Item]]]:
    """By what would happen and list: the keys of each thing, with the fields that differ as `differs`.

    Args:
        there: Definitions of the gateway.
        file: Those to import, checked; each thing in a vhost says which.

    """
    found: dict[str, dict[str, list[Item]]] = {"create": {}, "change": {}, "conflict": {}, "kept": {}}
    for part, names in _KEYS.items():
        known = {_key(item, names): item for item in there.get(part, [])}
        for item in file.get(part, []):
            shown = {name: item.get(name) for name in names if name in item}
            old = known.get(_key(item, names))
            if old is None:
                found["create"].setdefault(part, []).append(shown)
                continue
            differs = sorted(
                name for name, value in item.items() if name in old and _plain(value) != _plain(old[name])
            )
            if differs:
                what = "conflict" if part in _FIXED else "kept" if part in _KEPT else "change"
                found[what].setdefault(part, []).append({**shown, "differs": differs})
    return found


def _key(item: Item, names: tuple[str, ...]) -> str:
    return repr([_plain(item.get(name, "queue" if name == "destination_type" else "")) for name in names])


def _plain(value: Any) -> Any:
    """One form of what may be written in several: an empty table may be a list, tags may be a text."""
    match value:
        case dict():
            return sorted((str(name), repr(_plain(inner))) for name, inner in value.items())
        case list():
            return sorted(map(repr, value)) if all(isinstance(one, str) for one in value) else value
        case str() if "," in value:
            return sorted(map(repr, value.split(",")))
        case "" | None:
            return []
    return value
