"""`penstock rabbitmqctl VERB ...`: what operators' scripts call, answered in rabbitmqctl's words and formats.

Lines have tabs between cells, under a line of column names. -q leaves out what is said besides, -s the column
names too; --formatter json prints objects. Exit codes are rabbitmqctl's: 64 wrong usage, 67 no such user or
vhost, 69 the gateway does not answer, 70 anything else that failed.

Source: RabbitMQ's rabbitmqctl as observed (3.10).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.cli_client import DEFAULT_URL, ApiError, Client, segment
from penstock.cli_tables import lookup, tabbed

__all__ = ["run"]

Item = dict[str, Any]

_USAGE_ERROR: Final = 64
_NO_USER: Final = 67
_UNAVAILABLE: Final = 69
_FAILED: Final = 70

_SIZE: Final = re.compile(r"([0-9]{1,15})((?:[kmgt]i?b?)?)", re.IGNORECASE)
_UNITS: Final = {
    "": 1,
    **{f"{letter}{end}": 1024 ** (at + 1) for at, letter in enumerate("kmgt") for end in ("", "i", "ib")},
    **{f"{letter}b": 1000 ** (at + 1) for at, letter in enumerate("kmgt")},
}


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise _Usage(message)


def run(words: Sequence[str]) -> int:
    """Run the verb in `words`, its options before or behind it; the exit code."""
    parser = _Parser(prog="penstock rabbitmqctl", add_help=False)
    parser.add_argument("--url", default=os.environ.get("PENSTOCK_URL", DEFAULT_URL))
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-p", "--vhost", default="/")
    parser.add_argument("-n", "--node")
    parser.add_argument("-t", "--timeout")
    parser.add_argument("--no-table-headers", action="store_true")
    parser.add_argument("--formatter", choices=("table", "json", "tsv"), default="table")
    parser.add_argument("--priority", type=int, default=0)
    parser.add_argument("--apply-to", default="all")
    parser.add_argument("-e", "--if-empty", action="store_true")
    parser.add_argument("-u", "--if-unused", action="store_true")
    parser.add_argument("--tags", default=None)
    parser.add_argument("--description", default=None)
    parser.add_argument("--global", dest="everywhere", action="store_true")
    parser.add_argument("verb", nargs="?", default="help")
    parser.add_argument("words", nargs="*")
    try:
        parsed = parser.parse_intermixed_args(list(words))
        if parsed.verb == "help":
            print("\n".join(sorted(_VERBS)))
            return 0
        verb = _VERBS.get(parsed.verb)
        if verb is None:
            raise _Usage(f"Command '{parsed.verb}' not found; there are {', '.join(sorted(_VERBS))}")
        needed, action = verb
        if len(parsed.words) < needed:
            raise _Usage(f"{parsed.verb}: not enough arguments")
        with Client(parsed.url) as client:
            action(_Call(client, parsed))
    except _Usage as error:
        print(f"Error (argument validation): {error}", file=sys.stderr)
        return _USAGE_ERROR
    except ApiError as error:
        print(f"Error:\n{error}", file=sys.stderr)
        if error.status == 0:
            return _UNAVAILABLE
        return _NO_USER if error.status == 404 else _FAILED
    except OSError as error:
        print(f"Error:\n{error}", file=sys.stderr)
        return _FAILED
    return 0


class _Call:
    """One verb with its words."""

    def __init__(self, client: Client, parsed: argparse.Namespace) -> None:
        self.client = client
        self.parsed = parsed
        self.words: list[str] = parsed.words
        self.vhost = segment(parsed.vhost)

    def word(self, at: int, default: str = "") -> str:
        return self.words[at] if at < len(self.words) else default

    def path(self, at: int) -> str:
        """A word as a segment of a path."""
        return segment(self.words[at])

    def say(self, text: str) -> None:
        """What is said besides the answer."""
        if not (self.parsed.quiet or self.parsed.silent) and self.parsed.formatter == "table":
            print(text)

    def rows(
        self, items: Sequence[Item], columns: Sequence[str], names: dict[str, str] | None = None
    ) -> None:
        """Print columns of items; `names` says where a column's value is when not under its own name."""
        names = names or {}
        values = [[lookup(item, names.get(column, column)) for column in columns] for item in items]
        if self.parsed.formatter == "json":
            print(json.dumps([dict(zip(columns, row, strict=True)) for row in values]))
            return
        if not (self.parsed.silent or self.parsed.no_table_headers) and values:
            print("\t".join(columns))
        tabbed(values)


# Users and permissions


def _add_user(call: _Call) -> None:
    password = call.word(1) or sys.stdin.readline().rstrip("\n")
    path = f"users/{call.path(0)}"
    try:
        call.client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
    else:
        raise ApiError(f'User "{call.words[0]}" already exists', 409)
    call.client.request("PUT", path, {"password": password, "tags": []})
    call.say(f'Adding user "{call.words[0]}" ...\nDone. Don\'t forget to grant the user permissions.')


def _delete_user(call: _Call) -> None:
    call.say(f'Deleting user "{call.words[0]}" ...')
    _or_missing(call, "User", lambda: call.client.request("DELETE", f"users/{call.path(0)}"))


def _change_password(call: _Call) -> None:
    call.say(f'Changing password for user "{call.words[0]}" ...')
    user = _or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    body = {"password": call.words[1], "tags": user["tags"]}
    call.client.request("PUT", f"users/{call.path(0)}", body)


def _set_user_tags(call: _Call) -> None:
    tags = call.words[1:]
    call.say(f'Setting tags for user "{call.words[0]}" to [{", ".join(tags)}] ...')
    user = _or_missing(call, "User", lambda: call.client.get(f"users/{call.path(0)}"))
    kept = {name: user[name] for name in ("password_hash", "hashing_algorithm")}
    call.client.request("PUT", f"users/{call.path(0)}", {**kept, "tags": tags})


def _list_users(call: _Call) -> None:
    call.say("Listing users ...")
    call.rows(call.client.get("users"), ("user", "tags"), {"user": "name"})


def _set_permissions(call: _Call) -> None:
    call.say(f'Setting permissions for user "{call.words[0]}" in vhost "{call.parsed.vhost}" ...')
    body = dict(zip(("configure", "write", "read"), call.words[1:4], strict=True))
    call.client.request("PUT", f"permissions/{call.vhost}/{call.path(0)}", body)


def _clear_permissions(call: _Call) -> None:
    call.say(f'Clearing permissions for user "{call.words[0]}" in vhost "{call.parsed.vhost}" ...')
    call.client.request("DELETE", f"permissions/{call.vhost}/{call.path(0)}")


def _list_permissions(call: _Call) -> None:
    call.say(f'Listing permissions for vhost "{call.parsed.vhost}" ...')
    call.rows(call.client.get(f"vhosts/{call.vhost}/permissions"), ("user", "configure", "write", "read"))


def _list_user_permissions(call: _Call) -> None:
    call.say(f'Listing permissions for user "{call.words[0]}" ...')
    call.rows(call.client.get(f"users/{call.path(0)}/permissions"), ("vhost", "configure", "write", "read"))


def _set_topic_permissions(call: _Call) -> None:
    what = f'"{call.words[1]}" for user "{call.words[0]}" in vhost "{call.parsed.vhost}"'
    call.say(f"Setting topic permissions on {what} ...")
    body = dict(zip(("exchange", "write", "read"), call.words[1:4], strict=True))
    call.client.request("PUT", f"topic-permissions/{call.vhost}/{call.path(0)}", body)


def _clear_topic_permissions(call: _Call) -> None:
    call.say(f'Clearing topic permissions for user "{call.words[0]}" in vhost "{call.parsed.vhost}" ...')
    path = f"topic-permissions/{call.vhost}/{call.path(0)}"
    call.client.request("DELETE", path + (f"/{call.path(1)}" if len(call.words) > 1 else ""))


def _list_topic_permissions(call: _Call) -> None:
    call.say(f'Listing topic permissions for vhost "{call.parsed.vhost}" ...')
    items = call.client.get(f"vhosts/{call.vhost}/topic-permissions")
    call.rows(items, ("user", "exchange", "write", "read"))


# Vhosts, policies, limits


def _add_vhost(call: _Call) -> None:
    call.say(f'Adding vhost "{call.words[0]}" ...')
    body: Item = {}
    if call.parsed.description is not None:
        body["description"] = call.parsed.description
    if call.parsed.tags is not None:
        body["tags"] = call.parsed.tags
    known = {vhost["name"] for vhost in call.client.get("vhosts")}
    call.client.request("PUT", f"vhosts/{call.path(0)}", body)
    if call.words[0] not in known:
        # The API lets who makes a vhost use it; rabbitmqctl is nobody.
        user = call.client.get("whoami")["name"]
        call.client.request("DELETE", f"permissions/{call.path(0)}/{segment(user)}")


def _trace(call: _Call) -> None:
    is_on = call.parsed.verb == "trace_on"
    call.say(f'{"Starting" if is_on else "Stopping"} tracing for vhost "{call.parsed.vhost}" ...')
    call.client.get(f"vhosts/{call.vhost}")  # a PUT would make it
    call.client.request("PUT", f"vhosts/{call.vhost}", {"tracing": is_on})
    print(f"Trace {'enabled' if is_on else 'disabled'} for vhost {call.parsed.vhost}")


def _delete_vhost(call: _Call) -> None:
    call.say(f'Deleting vhost "{call.words[0]}" ...')
    _or_missing(call, "Virtual host", lambda: call.client.request("DELETE", f"vhosts/{call.path(0)}"))


def _list_vhosts(call: _Call) -> None:
    call.say("Listing vhosts ...")
    call.rows(call.client.get("vhosts"), call.words or ("name",))


def _set_policy(call: _Call, kind: str = "policies") -> None:
    name, pattern, definition = call.words[:3]
    call.say(f'Setting policy "{name}" for pattern "{pattern}" to "{definition}" ...')
    try:
        parsed = json.loads(definition)
    except ValueError as error:
        raise _Usage(f"the definition of policy {name!r} is not JSON: {error}") from error
    body = {
        "pattern": pattern,
        "definition": parsed,
        "priority": call.parsed.priority,
        "apply-to": call.parsed.apply_to,
    }
    call.client.request("PUT", f"{kind}/{call.vhost}/{segment(name)}", body)


def _clear_policy(call: _Call, kind: str = "policies") -> None:
    call.say(f'Clearing policy "{call.words[0]}" on vhost "{call.parsed.vhost}" ...')
    call.client.request("DELETE", f"{kind}/{call.vhost}/{call.path(0)}")


def _list_policies(call: _Call, kind: str = "policies") -> None:
    call.say(f'Listing policies for vhost "{call.parsed.vhost}" ...')
    items = [
        {**item, "definition": json.dumps(item["definition"], separators=(",", ":"))}
        for item in call.client.get(f"{kind}/{call.vhost}")
    ]
    call.rows(items, ("vhost", "name", "pattern", "apply-to", "definition", "priority"))


def _set_vhost_limits(call: _Call) -> None:
    for name, value in _object(call.words[0]).items():
        call.client.request("PUT", f"vhost-limits/{call.vhost}/{segment(name)}", {"value": value})


def _clear_vhost_limits(call: _Call) -> None:
    for item in call.client.get(f"vhost-limits/{call.vhost}"):
        for name in item["value"]:
            call.client.request("DELETE", f"vhost-limits/{call.vhost}/{segment(name)}")


def _set_user_limits(call: _Call) -> None:
    for name, value in _object(call.words[1]).items():
        call.client.request("PUT", f"user-limits/{call.path(0)}/{segment(name)}", {"value": value})


# Things


def _list_queues(call: _Call) -> None:
    call.say(f"Listing queues for vhost {call.parsed.vhost} ...")
    items = call.client.get(f"queues/{call.vhost}")
    call.rows(items, call.words or ("name", "messages"), {"pid": "node"})


def _list_exchanges(call: _Call) -> None:
    call.say(f"Listing exchanges for vhost {call.parsed.vhost} ...")
    call.rows(call.client.get(f"exchanges/{call.vhost}"), call.words or ("name", "type"))


def _list_bindings(call: _Call) -> None:
    call.say(f"Listing bindings for vhost {call.parsed.vhost} ...")
    items = [{**item, "source_kind": "exchange"} for item in call.client.get(f"bindings/{call.vhost}")]
    columns = (
        "source_name",
        "source_kind",
        "destination_name",
        "destination_kind",
        "routing_key",
        "arguments",
    )
    names = {
        "source_name": "source",
        "destination_name": "destination",
        "destination_kind": "destination_type",
    }
    call.rows(items, call.words or columns, names)


def _list_connections(call: _Call) -> None:
    call.say("Listing connections ...")
    columns = call.words or ("user", "peer_host", "peer_port", "state")
    call.rows(call.client.get("connections"), columns, {"pid": "name"})


def _list_channels(call: _Call) -> None:
    call.say("Listing channels ...")
    columns = call.words or ("pid", "user", "consumer_count", "messages_unacknowledged")
    call.rows(call.client.get("channels"), columns, {"pid": "name", "connection": "connection_details.name"})


def _list_consumers(call: _Call) -> None:
    call.say(f"Listing consumers in vhost {call.parsed.vhost} ...")
    columns = (
        "queue_name",
        "channel_pid",
        "consumer_tag",
        "ack_required",
        "prefetch_count",
        "active",
        "arguments",
    )
    names = {"queue_name": "queue.name", "channel_pid": "channel_details.name"}
    call.rows(call.client.get(f"consumers/{call.vhost}"), call.words or columns, names)


def _close_connection(call: _Call) -> None:
    reason = call.word(1, "closed by rabbitmqctl")
    call.say(f"Closing connection {call.words[0]}, reason: {reason}...")
    call.client.request("DELETE", f"connections/{call.path(0)}", **{"x-reason": reason})


def _close_all_connections(call: _Call) -> None:
    reason = call.word(0, "closed by rabbitmqctl")
    vhost = None if call.parsed.everywhere or call.parsed.vhost == "/" else call.parsed.vhost
    count = 0
    for item in call.client.get("connections"):
        if vhost is None or item["vhost"] == vhost:
            path = f"connections/{segment(item['name'])}"
            try:
                call.client.request("DELETE", path, **{"x-reason": reason})
            except ApiError as error:
                if error.status != 404:  # gone by itself meanwhile
                    raise
            count += 1
    call.say(f"Closed {count} connections")


def _delete_queue(call: _Call) -> None:
    call.say(f"Deleting queue '{call.words[0]}' on vhost '{call.parsed.vhost}' ...")
    query = "".join(
        f"{'&' if at else '?'}{name}=true"
        for at, name in enumerate(
            name
            for name, on in (("if-empty", call.parsed.if_empty), ("if-unused", call.parsed.if_unused))
            if on
        )
    )
    path = f"queues/{call.vhost}/{call.path(0)}"
    ready = _or_missing(call, "Queue", lambda: call.client.get(path))["messages_ready"]
    call.client.request("DELETE", path + query)
    print(f"Queue was successfully deleted with {ready} ready messages")


def _purge_queue(call: _Call) -> None:
    call.say(f"Purging queue '{call.words[0]}' in vhost '{call.parsed.vhost}' ...")
    call.client.request("DELETE", f"queues/{call.vhost}/{call.path(0)}/contents")


# The whole


def _export_definitions(call: _Call) -> None:
    text = json.dumps(call.client.get("definitions"))
    if call.words[0] == "-":
        print(text)
    else:
        Path(call.words[0]).write_text(text)
        call.say(f'Exporting definitions in JSON to a file at "{call.words[0]}" ...')


def _import_definitions(call: _Call) -> None:
    source = call.word(0, "-")
    text = sys.stdin.read() if source == "-" else Path(source).read_text()
    call.say(f"Importing definitions in JSON from {source} ...")
    call.client.request("POST", "definitions", _object(text))
    call.say("Successfully started definition import.")


def _node(call: _Call) -> Item:
    """The node that speaks for the gateway: its worker, or the first of its workers."""
    name = call.client.get("overview")["node"]
    node: Item = call.client.get(f"nodes/{segment(name)}")
    return node


def _status(call: _Call) -> None:
    overview, node = call.client.get("overview"), _node(call)
    if call.parsed.formatter == "json":
        print(json.dumps({**overview, "node_status": node}))
        return
    call.say(f"Status of node {node['name']} ...")
    print(f"Runtime\n\nOS PID: {node['os_pid']}\nUptime (seconds): {node['uptime'] // 1000}")
    print(f"{overview['product_name']} version: {overview['product_version']}")
    print(f"RabbitMQ version: {overview['rabbitmq_version']}")
    print(f"Data directory: {node['db_dir']}\n\nTotals\n")
    for name, key in (("Connection", "connections"), ("Queue", "queues")):
        print(f"{name} count: {overview['object_totals'][key]}")
    print("\nListeners\n")
    for one in overview["listeners"]:
        print(f"Interface: {one['ip_address']}, port: {one['port']}, protocol: {one['protocol']}")


def _set_memory(call: _Call) -> None:
    nodes = [node["name"] for node in call.client.get("nodes")]
    said = f"Setting memory threshold on {' '.join(nodes)} to"
    if call.words[0] == "absolute":
        text = call.word(1)
        found = _SIZE.fullmatch(text)
        if found is None:
            raise _Usage(f"{text!r} is no size; write bytes, or 512MiB")
        body: Item = {"bytes": int(found[1]) * _UNITS[found[2].lower()]}
        call.say(f"{said} {body['bytes']} bytes ...")
    else:
        try:
            body = {"fraction": float(call.words[0])}
        except ValueError:
            raise _Usage(f"{call.words[0]!r} is no fraction of the memory from 0 to 1") from None
        call.say(f"{said} {body['fraction']} ...")
    # It is the whole gateway's, and workers share it as they share what the configuration allows.
    share = {
        name: value // len(nodes) if name == "bytes" else value / len(nodes) for name, value in body.items()
    }
    for name in nodes:
        call.client.request("PUT", f"nodes/{segment(name)}/memory-high-watermark", share)


def _application(call: _Call) -> None:
    node = _node(call)
    stops = call.parsed.verb == "stop_app"
    call.say(f"{'Stopping rabbit application on' if stops else 'Starting'} node {node['name']} ...")
    body = {"state": "stopped" if stops else "running"}
    call.client.request("PUT", f"nodes/{segment(node['name'])}/application", body)


def _ping(call: _Call) -> None:
    node = _node(call)
    call.say(f"Will ping {node['name']}. This only checks if the OS process is running and registered.")
    call.say("Ping succeeded")


def _or_missing(call: _Call, kind: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except ApiError as error:
        if error.status == 404:
            raise ApiError(f'{kind} "{call.words[0]}" does not exist', 404) from error
        raise


def _object(text: str) -> Item:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _Usage(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _Usage("not a JSON object")
    return value


_VERBS: Final[dict[str, tuple[int, Callable[[_Call], None]]]] = {
    "add_user": (1, _add_user),
    "delete_user": (1, _delete_user),
    "change_password": (2, _change_password),
    "set_user_tags": (1, _set_user_tags),
    "list_users": (0, _list_users),
    "set_permissions": (4, _set_permissions),
    "clear_permissions": (1, _clear_permissions),
    "list_permissions": (0, _list_permissions),
    "list_user_permissions": (1, _list_user_permissions),
    "set_topic_permissions": (4, _set_topic_permissions),
    "clear_topic_permissions": (1, _clear_topic_permissions),
    "list_topic_permissions": (0, _list_topic_permissions),
    "add_vhost": (1, _add_vhost),
    "delete_vhost": (1, _delete_vhost),
    "list_vhosts": (0, _list_vhosts),
    "trace_on": (0, _trace),
    "trace_off": (0, _trace),
    "set_policy": (3, _set_policy),
    "clear_policy": (1, _clear_policy),
    "list_policies": (0, _list_policies),
    "set_operator_policy": (3, lambda call: _set_policy(call, "operator-policies")),
    "clear_operator_policy": (1, lambda call: _clear_policy(call, "operator-policies")),
    "list_operator_policies": (0, lambda call: _list_policies(call, "operator-policies")),
    "set_vhost_limits": (1, _set_vhost_limits),
    "clear_vhost_limits": (0, _clear_vhost_limits),
    "set_user_limits": (2, _set_user_limits),
    "list_queues": (0, _list_queues),
    "list_exchanges": (0, _list_exchanges),
    "list_bindings": (0, _list_bindings),
    "list_connections": (0, _list_connections),
    "list_channels": (0, _list_channels),
    "list_consumers": (0, _list_consumers),
    "close_connection": (1, _close_connection),
    "close_all_connections": (0, _close_all_connections),
    "delete_queue": (1, _delete_queue),
    "purge_queue": (1, _purge_queue),
    "export_definitions": (1, _export_definitions),
    "import_definitions": (0, _import_definitions),
    "status": (0, _status),
    "set_vm_memory_high_watermark": (1, _set_memory),
    "stop_app": (0, _application),
    "start_app": (0, _application),
    "ping": (0, _ping),
    "await_startup": (0, _ping),
}
"""How many words each needs at least, and what it does."""
