"""A definitions file as it was read: its lists, where their things are, what an import does nothing about.

Knows JSON and names, and no broker.
"""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.protocols.http.management.context import flag_of, table_of, text_of
from penstock.protocols.http.management.resources.users import tags_of
from penstock.protocols.http.server.messages import HttpError, dumps
from penstock.protocols.links.federation import UPSTREAM, UPSTREAM_SET
from penstock.protocols.links.links import SHOVEL
from penstock.protocols.listening.definitions import OF_FRONTS, OF_VHOST, Item
from penstock.router.names import RESERVED_PREFIX

__all__ = ["COMPONENTS", "IN_VHOSTS", "Defined", "exchange_of", "is_own", "is_session", "named", "queue_of"]

IN_VHOSTS: Final = OF_VHOST.union(OF_FRONTS)
"""Lists whose things are in a vhost."""
COMPONENTS: Final = ("vhost-limits", "operator_policy", SHOVEL, UPSTREAM, UPSTREAM_SET)
"""Of parameters, what is known here."""
_MQTT_QUEUE: Final = re.compile(r"mqtt-subscription-.*qos[01]", re.DOTALL)
"""The queue of a session, as RabbitMQ names it."""
_PAIRS: Final = ("definition", "limits")
"""Tables that may be lists of pairs: of operator policies, of vhosts."""
_KNOWN: Final = IN_VHOSTS | {
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "global_parameters",
    "rabbit_version",
    "rabbitmq_version",
    "product_name",
    "product_version",
    "rabbitmq_definition_format",
    "original_cluster_name",
    "original_vhost_name",
    "explanation",
    "metadata",
    "description",
    "default_queue_type",
    "limits",
    "name",
}


class Defined:
    """One file."""

    def __init__(self, body: Item, vhost: str | None = None) -> None:
        """`vhost`: everything goes into this one; None: each thing says which."""
        self._body = body
        self.vhost = vhost

    def items(self, part: str) -> list[Item]:
        """A list, which may be missing.

        Raises:
            HttpError: 400, it is none.

        """
        items = self._body.get(part, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise HttpError(400, "bad_request", f"{part} is a list of objects")
        return [_with_tables(item) for item in items]

    def vhost_of(self, item: Item) -> str:
        """Where a thing is. Raises HttpError 400: it does not say."""
        return self.vhost if self.vhost is not None else text_of(item, "vhost")

    def text(self) -> bytes:
        """The file as JSON."""
        return dumps(self._body)

    def unknown(self) -> list[str]:
        """Keys that nothing is done about."""
        return sorted(str(key) for key in self._body if key not in _KNOWN)

    def wanted(self) -> Item:
        """The parts of an import, each thing with its vhost; it is checked (`checking`)."""
        found: Item = {}
        for part in self._body:
            if part in IN_VHOSTS:
                items = [{**item, "vhost": self.vhost_of(item)} for item in self.items(part)]
                found[part] = [item for item in items if not _left_out(part, item)]
            elif part in _KNOWN and isinstance(self._body[part], list) and self.vhost is None:
                found[part] = self.items(part)
        return found


def _with_tables(item: Item) -> Item:
    """Its tables as objects: RabbitMQ 3.10 exports some as lists of pairs, which are Erlang's."""
    found = {}
    for key, value in item.items():
        if key in _PAIRS and isinstance(value, list) and value and all(map(_is_pair, value)):
            found[key] = dict(value)
        elif key == "value" and isinstance(value, dict):
            found[key] = _with_tables(value)
    return {**item, **found} if found else item


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def queue_of(item: Item) -> dict[str, Any]:
    """The arguments of a queue's declaration. Raises HttpError 400."""
    arguments, kind = table_of(item), item.get("type", "classic")
    if kind != "classic":
        arguments = {"x-queue-type": kind, **arguments}
    return {
        "durable": flag_of(item, "durable", True),
        "auto_delete": flag_of(item, "auto_delete"),
        "arguments": arguments,
    }


def exchange_of(item: Item) -> dict[str, Any]:
    """The arguments of an exchange's declaration. Raises HttpError 400."""
    return {
        "type_": text_of(item, "type"),
        "durable": flag_of(item, "durable", True),
        "auto_delete": flag_of(item, "auto_delete"),
        "internal": flag_of(item, "internal"),
        "arguments": table_of(item),
    }


def vhost_said(item: Item) -> dict[str, Any]:
    """The metadata of a vhost, its name and its limits apart; None of what is not. Raises HttpError 400."""
    said = {**table_of(item, "metadata"), **item}
    kind = said.get("default_queue_type")
    return {
        "description": text_of(said, "description") if "description" in said else None,
        "tags": tags_of(said["tags"]) if "tags" in said else None,
        "default_queue_type": kind if isinstance(kind, str) and kind != "undefined" else None,
        "worker": said.get("worker"),
    }


def limits_of(item: Item) -> Item:
    """The limits that a user or vhost names itself; RabbitMQ has [] for none. Raises HttpError 400."""
    limits = item.get("limits")
    if isinstance(limits, dict):
        return limits
    if limits in (None, []):
        return {}
    raise HttpError(400, "bad_request", "an object is wanted, of limits by name")


def is_own(name: str) -> bool:
    """Whether somebody declared it: not predeclared, and not the default exchange."""
    return name != "" and not name.startswith(RESERVED_PREFIX)


def is_session(name: str) -> bool:
    """Whether a queue is the session of an MQTT client, in a file of RabbitMQ's."""
    return _MQTT_QUEUE.fullmatch(name) is not None


def named(item: Item) -> str:
    """How a mistake names the thing."""
    for key in ("name", "client_id", "user", "destination"):
        if key in item:
            return f"'{str(item[key])[:200]}'"
    return "an entry without a name"


def _left_out(part: str, item: Item) -> bool:
    """Whether an import does nothing about it."""
    name = item.get("name")
    match part:
        case "queues":
            return isinstance(name, str) and (not is_own(name) or is_session(name))
        case "exchanges":
            return isinstance(name, str) and not is_own(name)
        case "parameters":
            return item.get("component") not in COMPONENTS
        case "bindings":
            return item.get("source") == "" or is_session(str(item.get("destination")))
    return False
