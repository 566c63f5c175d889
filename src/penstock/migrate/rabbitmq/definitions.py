"""Compares what one side declared with the other side, and says what differs and why.

Into penstock the gateway's own dry run compares. RabbitMQ has none, so the way back is compared here, without
the things that RabbitMQ does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.migrate.rabbitmq.reasons import without_effect
from penstock.migrate.report import Fate, Place, Report
from penstock.protocols.http.management.definitions.differences import difference
from penstock.protocols.http.management.definitions.kinds import COMPONENTS, is_session
from penstock.protocols.links.federation import UPSTREAM, UPSTREAM_SET
from penstock.protocols.links.links import SHOVEL
from penstock.router.limits.limits import RETENTION_BYTES, RETENTION_SECONDS

__all__ = ["for_rabbitmq", "say_changes", "say_ineffective", "without_links"]

Item = dict[str, Any]
Changes = Mapping[str, Mapping[str, list[Item]]]

_FATES: Final[Mapping[str, tuple[Fate, str]]] = {
    "create": ("moved", "it would be made"),
    "change": ("moved", "it would become as it is at the source"),
    "kept": ("left out", "it is there and stays as it is"),
    "conflict": ("wrong", "it is there with other properties; delete one of them"),
}
_GUIDES: Final = {SHOVEL: "shovels", UPSTREAM: "federation", UPSTREAM_SET: "federation"}
"""Guides for the components of links."""
_OURS: Final = ("mqtt_sessions", "webhooks")
_OUR_HASHES: Final = ("penstock_", "mosquitto_")
_OUR_KEYS: Final = frozenset({RETENTION_SECONDS, RETENTION_BYTES, "cleanup", "consumer-timeout"})
"""Keys of policies that RabbitMQ 3.10 does not know."""
_NAMES: Final = frozenset(
    {
        *("vhost", "name", "user", "exchange", "client_id"),
        *("source", "destination", "destination_type", "routing_key"),
    }
)
"""Fields that name a thing."""


def say_changes(changes: Changes, unknown: list[str], place: Place, report: Report) -> None:
    """Note what an import would create, change, leave, or refuse."""
    for what, (fate, note) in _FATES.items():
        for part, things in changes[what].items():
            for thing in things:
                differs = ", ".join(thing.get("differs", []))
                text = f"{part}: {_named(thing)}"
                report.add(place, text, fate, f"{note}; differs in {differs}" if differs else note)
    for key in unknown:
        report.add(place, key, "left out", "penstock has no such definitions")


def say_ineffective(definitions: Item, place: Place, report: Report) -> None:
    """Note what penstock takes and does nothing with, or leaves out, with the reason."""
    for kind, item, table in _tables(definitions):
        for name, reason in without_effect(sorted(table)):
            report.add(place, f"{kind}: {_named(item)}: {name}", "left out", f"kept without effect: {reason}")
    for item in definitions.get("parameters", []):
        if item.get("component") not in COMPONENTS:
            text = f"parameters: {item.get('component')} {_named(item)}"
            report.add(place, text, "left out", "penstock has no such plug-in")
    for item in definitions.get("queues", []):
        if is_session(item["name"]):
            note = "the queue of an MQTT session; the client subscribes again when it connects"
            report.add(place, f"queues: {_named(item)}", "left out", note)


def without_links(definitions: Item, place: Place, report: Report) -> Item:
    """The definitions without shovels and upstreams, which are noted: a link that runs on both sides would
    take messages there, too, and its ends may have moved.
    """
    kept = []
    for item in definitions.get("parameters", []):
        component = item.get("component")
        if component in _GUIDES:
            note = f"put it where it is to run: docs/how-to/{_GUIDES[component]}.md"
            report.add(place, f"parameters: {component} {_named(item)}", "left out", note)
        else:
            kept.append(item)
    return {**definitions, "parameters": kept}


def _tables(definitions: Item) -> Iterator[tuple[str, Item, Mapping[str, Any]]]:
    for item in definitions.get("policies", []):
        yield "policies", item, _table(item.get("definition"))
    for item in definitions.get("parameters", []):
        if item.get("component") == "operator_policy":
            yield "operator policies", item, _table(item["value"].get("definition"))
    for item in definitions.get("queues", []):
        yield "queues", item, _table(item.get("arguments"))


def _table(value: Any) -> Mapping[str, Any]:
    # RabbitMQ writes an empty table as a list, and 3.10 some others as lists of pairs.
    return value if isinstance(value, dict) else dict(value or [])


def for_rabbitmq(definitions: Item, there: Item, place: Place, report: Report) -> Item:
    """The definitions of penstock that RabbitMQ takes; what differs there, and what is left out, is noted."""
    sent = {name: items for name, items in definitions.items() if name not in _OURS}
    for part in _OURS:
        for item in definitions.get(part, []):
            report.add(place, f"{part}: {_named(item)}", "left out", "RabbitMQ has no such thing")
    known = {user["name"] for user in there.get("users", [])}
    sent["users"] = []
    for user in definitions.get("users", []):
        if user.get("hashing_algorithm", "").startswith(_OUR_HASHES):
            note = "its password cannot be verified by RabbitMQ"
            if user["name"] not in known:
                note += "; make it there with rabbitmqctl add_user"
            report.add(place, f"users: {_named(user)}", "left out", note)
        else:
            sent["users"].append(user)
            known.add(user["name"])
    for part in ("permissions", "topic_permissions"):
        sent[part] = [item for item in definitions.get(part, []) if item["user"] in known]
    sent["policies"] = []
    for policy in definitions.get("policies", []):
        definition = _table(policy["definition"])
        for key in sorted(_OUR_KEYS & definition.keys()):
            text = f"policies: {_named(policy)}: {key}"
            report.add(place, text, "left out", "RabbitMQ 3.10 has no such key")
        rest = {key: value for key, value in definition.items() if key not in _OUR_KEYS}
        if rest:
            sent["policies"].append({**policy, "definition": rest})
    sent["queues"] = [one for one in definitions.get("queues", []) if not is_session(one["name"])]
    say_changes(difference(there, sent), [], place, report)
    return sent


def _named(thing: Mapping[str, Any]) -> str:
    words = [
        f"{name}={value}"
        for name, value in thing.items()
        if name in _NAMES and value not in ("", [], {}, None)
    ]
    return " ".join(words)
