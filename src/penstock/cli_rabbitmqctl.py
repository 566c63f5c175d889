"""`penstock rabbitmqctl VERB ...`: what operators' scripts call, answered in rabbitmqctl's words and formats.

Lines have tabs between cells, under a line of column names. -q leaves out what is said besides, -s the column
names too; --formatter json prints objects. Exit codes are rabbitmqctl's: 64 wrong usage, 65 a wrong password,
67 no such user or vhost, 69 the gateway does not answer, 70 anything else that failed.

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
from penstock.cli_rabbitmqctl_admin import VERBS as ADMIN_VERBS
from penstock.cli_rabbitmqctl_call import Call, Item, Missing, Usage, object_of

__all__ = ["VERBS", "run"]

_USAGE_ERROR: Final = 64
_NOT_LOGGED_IN: Final = 65
_NO_USER: Final = 67
_UNAVAILABLE: Final = 69
_FAILED: Final = 70

_SIZE: Final = re.compile(r"([0-9]{1,15})((?:[kmgt]i?b?)?)", re.IGNORECASE)
_UNITS: Final = {
    "": 1,
    **{f"{letter}{end}": 1024 ** (at + 1) for at, letter in enumerate("kmgt") for end in ("", "i", "ib")},
    **{f"{letter}b": 1000 ** (at + 1) for at, letter in enumerate("kmgt")},
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Usage(message)


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
    parser.add_argument("--user", default=None)
    parser.add_argument("--global", dest="everywhere", action="store_true")
    parser.add_argument("verb", nargs="?", default="help")
    parser.add_argument("words", nargs="*")
    try:
        parsed = parser.parse_intermixed_args(list(words))
        if parsed.verb == "help":
            print("\n".join(sorted(VERBS)))
            return 0
        verb = VERBS.get(parsed.verb)
        if verb is None:
            raise Usage(f"Command '{parsed.verb}' not found; there are {', '.join(sorted(VERBS))}")
        needed, action = verb
        if len(parsed.words) < needed:
            raise Usage(f"{parsed.verb}: not enough arguments")
        with Client(parsed.url) as client:
            action(Call(client, parsed))
    except Usage as error:
        print(f"Error (argument validation): {error}", file=sys.stderr)
        return _USAGE_ERROR
    except ApiError as error:
        print(f"Error:\n{error}", file=sys.stderr)
        if error.status == 0:
            return _UNAVAILABLE
        if isinstance(error, Missing):
            return error.code
        if error.status == 401 and parsed.verb == "authenticate_user":
            return _NOT_LOGGED_IN
        return _NO_USER if error.status == 404 else _FAILED
    except OSError as error:
        print(f"Error:\n{error}", file=sys.stderr)
        return _FAILED
    return 0


# Things


_PROTOCOLS: Final = {"AMQP 0-9-1": "{0,9,1}"}
"""As rabbitmqctl prints them."""


def _list_queues(call: Call) -> None:
    call.say(f"Timeout: 60.0 seconds ...\nListing queues for vhost {call.parsed.vhost} ...")
    items = call.client.get(f"queues/{call.vhost}")
    call.rows(items, call.words or ("name", "messages"), {"pid": "node"})


def _list_exchanges(call: Call) -> None:
    call.say(f"Listing exchanges for vhost {call.parsed.vhost} ...")
    call.rows(call.client.get(f"exchanges/{call.vhost}"), call.words or ("name", "type"))


def _list_bindings(call: Call) -> None:
    call.say(f"Listing bindings for vhost {call.parsed.vhost}...")
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


def _list_connections(call: Call) -> None:
    call.say("Listing connections ...")
    columns = call.words or ("user", "peer_host", "peer_port", "state")
    items = call.client.get("connections")
    if call.parsed.formatter != "json":
        items = [{**item, "protocol": _PROTOCOLS.get(item["protocol"], item["protocol"])} for item in items]
    call.rows(items, columns, {"pid": "name"})


def _list_channels(call: Call) -> None:
    call.say("Listing channels ...")
    columns = call.words or ("pid", "user", "consumer_count", "messages_unacknowledged")
    call.rows(call.client.get("channels"), columns, {"pid": "name", "connection": "connection_details.name"})


def _list_consumers(call: Call) -> None:
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


def _close_connection(call: Call) -> None:
    reason = call.word(1, "closed by rabbitmqctl")
    call.say(f"Closing connection {call.words[0]}, reason: {reason}...")
    call.client.request("DELETE", f"connections/{call.path(0)}", **{"x-reason": reason})


def _close_all_connections(call: Call) -> None:
    reason = call.word(0, "closed by rabbitmqctl")
    vhost = None if call.parsed.everywhere or call.parsed.vhost == "/" else call.parsed.vhost
    where = "" if call.parsed.everywhere else f" in vhost {call.parsed.vhost}"
    call.say(f"Closing all connections{where}, reason: {reason}...")
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


def _delete_queue(call: Call) -> None:
    only = [
        text
        for text, on in (("queue is empty", call.parsed.if_empty), ("queue is unused", call.parsed.if_unused))
        if on
    ]
    when = f" if {' and '.join(only)}" if only else ""
    call.say(f"Deleting queue '{call.words[0]}' on vhost '{call.parsed.vhost}'{when} ...")
    query = "".join(
        f"{'&' if at else '?'}{name}=true"
        for at, name in enumerate(
            name
            for name, on in (("if-empty", call.parsed.if_empty), ("if-unused", call.parsed.if_unused))
            if on
        )
    )
    path = f"queues/{call.vhost}/{call.path(0)}"
    try:
        ready = call.client.get(path)["messages_ready"]
    except ApiError as error:
        if error.status != 404:
            raise
        raise Missing("Queue not found", _USAGE_ERROR) from error
    call.client.request("DELETE", path + query)
    print(f"Queue was successfully deleted with {ready} ready messages")


def _purge_queue(call: Call) -> None:
    call.say(f"Purging queue '{call.words[0]}' in vhost '{call.parsed.vhost}' ...")
    call.client.request("DELETE", f"queues/{call.vhost}/{call.path(0)}/contents")


# The whole


def _export_definitions(call: Call) -> None:
    text = json.dumps(call.client.get("definitions"))
    if call.words[0] == "-":
        print(text)
    else:
        Path(call.words[0]).write_text(text)
        call.say(f'Exporting definitions in JSON to a file at "{call.words[0]}" ...')


def _import_definitions(call: Call) -> None:
    source = call.word(0, "-")
    text = sys.stdin.read() if source == "-" else Path(source).read_text()
    call.say(f"Importing definitions in JSON from {source} ...")
    call.client.request("POST", "definitions", object_of(text))
    call.say("Successfully started definition import.")


def _node(call: Call) -> Item:
    """The node that speaks for the gateway: its worker, or the first of its workers."""
    name = call.client.get("overview")["node"]
    node: Item = call.client.get(f"nodes/{segment(name)}")
    return node


def _status(call: Call) -> None:
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


def _set_memory(call: Call) -> None:
    nodes = [node["name"] for node in call.client.get("nodes")]
    said = f"Setting memory threshold on {' '.join(nodes)} to"
    if call.words[0] == "absolute":
        text = call.word(1)
        found = _SIZE.fullmatch(text)
        if found is None:
            raise Usage(f"{text!r} is no size; write bytes, or 512MiB")
        body: Item = {"bytes": int(found[1]) * _UNITS[found[2].lower()]}
        call.say(f"{said} {body['bytes']} bytes ...")
    else:
        try:
            body = {"fraction": float(call.words[0])}
        except ValueError:
            raise Usage(f"{call.words[0]!r} is no fraction of the memory from 0 to 1") from None
        call.say(f"{said} {body['fraction']} ...")
    # It is the whole gateway's, and workers share it as they share what the configuration allows.
    share = {
        name: value // len(nodes) if name == "bytes" else value / len(nodes) for name, value in body.items()
    }
    for name in nodes:
        call.client.request("PUT", f"nodes/{segment(name)}/memory-high-watermark", share)


def _application(call: Call) -> None:
    node = _node(call)
    stops = call.parsed.verb == "stop_app"
    call.say(f"{'Stopping rabbit application on' if stops else 'Starting'} node {node['name']} ...")
    body = {"state": "stopped" if stops else "running"}
    call.client.request("PUT", f"nodes/{segment(node['name'])}/application", body)


def _ping(call: Call) -> None:
    node = _node(call)
    call.say(f"Will ping {node['name']}. This only checks if the OS process is running and registered.")
    call.say("Ping succeeded")


VERBS: Final[dict[str, tuple[int, Callable[[Call], None]]]] = {
    **ADMIN_VERBS,
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
