"""The parameters of requests: names in paths, and those of the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.protocols.http.management.openapi.answers import LISTS
from penstock.protocols.http.management.resources.may import OPERATIONS

__all__ = ["in_path", "in_query"]

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string", "pattern": r"^[^\x00]*$"}
_FLAG: Final[Json] = {"enum": ["true", "false"]}


def _query(name: str, schema: Json, text: str, *, required: bool = False) -> Json:
    found = {"name": name, "in": "query", "schema": schema, "description": text}
    return {**found, "required": True} if required else found


_OF_LISTS: Final = (
    _query("name", _TEXT, "Only those whose name has this in it."),
    _query("use_regex", _FLAG, "`name` is a regular expression."),
    _query("sort", _TEXT, "The field to sort by, such as messages or message_stats.publish."),
    _query("sort_reverse", _FLAG, "The largest first."),
    _query("page", {"type": "integer", "minimum": 1}, "A page that there is; without it, the whole list."),
    _query("page_size", {"type": "integer", "minimum": 1, "maximum": 500}, "Of a page."),
)


def _plots(*groups: str) -> tuple[Json, ...]:
    return tuple(
        _query(
            f"{group}_{name}",
            {"type": "integer", "minimum": 1, "maximum": 86_400},
            f"Samples for a plot. Both {group}_age and {group}_incr, in seconds: 1 to 1000 steps.",
        )
        for group in groups
        for name in ("age", "incr")
    )


_IF_UNUSED: Final = _query("if-unused", _FLAG, "Not while it is used.")
_DOWNLOAD: Final = (_query("download", _TEXT, "The name of the file, for a browser."),)
_OF_ROUTES: Final[dict[tuple[str, str], Sequence[Json]]] = {
    ("GET", "/api/overview"): _plots("msg_rates", "lengths"),
    ("GET", "/api/nodes/{node}"): _plots("node_stats"),
    ("GET", "/api/queues/{vhost}/{name}"): _plots("msg_rates", "lengths"),
    ("GET", "/api/vhosts/{vhost}"): _plots("msg_rates", "data_rates", "lengths"),
    ("GET", "/api/connections/{name}"): _plots("data_rates"),
    ("GET", "/api/channels/{name}"): _plots("msg_rates"),
    ("DELETE", "/api/queues/{vhost}/{name}"): (
        _IF_UNUSED,
        _query("if-empty", _FLAG, "Not with messages in it."),
    ),
    ("DELETE", "/api/exchanges/{vhost}/{name}"): (_IF_UNUSED,),
    ("GET", "/api/definitions"): _DOWNLOAD,
    ("GET", "/api/all-configuration"): _DOWNLOAD,
    ("GET", "/api/definitions/{vhost}"): _DOWNLOAD,
    ("GET", "/api/may"): (
        _query("user", _TEXT, "Whose rights.", required=True),
        _query("vhost", _TEXT, "Where.", required=True),
        _query("operation", {"enum": list(OPERATIONS)}, "Of a permission.", required=True),
        _query("name", _TEXT, "Of a queue or exchange."),
        _query("routing_key", _TEXT, "For the rules about topics."),
    ),
    ("GET", "/api/retained/{vhost}"): (_query("topic", _TEXT, "A topic filter of MQTT."),),
    ("GET", "/api/topics/{vhost}"): (_query("under", _TEXT, "The level below this topic."),),
    ("GET", "/api/audit"): (
        _query("from", _TEXT, 'A time with its zone, or an interval such as "-1h".'),
        _query("user", _TEXT, "Of this user."),
        _query("result", _TEXT, "With this result, such as ok."),
        _query("action", _TEXT, "An action, or the first words of some, such as queue."),
    ),
}


def in_path(path: str) -> list[Json]:
    """The names in a path."""
    names = [part.partition("}")[0] for part in path.split("{")[1:]]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]


def in_query(method: str, path: str) -> list[Json]:
    """The parameters of a query."""
    of_lists = _OF_LISTS if method == "GET" and path in LISTS else ()
    return [*of_lists, *_OF_ROUTES.get((method, path), ())]
