"""The verbs of `penstock rabbitmqctl` about the whole gateway: definitions, status, memory, stop, start."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

from penstock.cli.client import segment
from penstock.cli.rabbitmqctl.call import Call, Item, Usage, Verbs, object_of

__all__ = ["VERBS"]

_SIZE: Final = re.compile(r"([0-9]{1,15})((?:[kmgt]i?b?)?)", re.IGNORECASE)
_UNITS: Final = {
    "": 1,
    **{f"{letter}{end}": 1024 ** (at + 1) for at, letter in enumerate("kmgt") for end in ("", "i", "ib")},
    **{f"{letter}b": 1000 ** (at + 1) for at, letter in enumerate("kmgt")},
}


def _export_definitions(call: Call) -> None:
    text = json.dumps(call.client.get("definitions"))
    if call.words[0] == "-":
        print(text)
    else:
        Path(call.words[0]).touch(mode=0o600)  # hashes of passwords are in it
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


VERBS: Final[Verbs] = {
    "export_definitions": (1, _export_definitions),
    "import_definitions": (0, _import_definitions),
    "status": (0, _status),
    "set_vm_memory_high_watermark": (1, _set_memory),
    "stop_app": (0, _application),
    "start_app": (0, _application),
    "ping": (0, _ping),
    "await_startup": (0, _ping),
}
