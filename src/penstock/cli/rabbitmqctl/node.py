"""The verbs that change the whole gateway: start, stop, log level, memory, definitions, feature flags."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

from penstock.cli.rabbitmqctl.call import USAGE_ERROR, Call, Failure, Groups, Item, Usage, Verb, object_of
from penstock.cli.running.client import ApiError, segment

__all__ = ["GROUPS"]

_SIZE: Final = re.compile(r"([0-9]{1,15})((?:[kmgt]i?b?)?)", re.IGNORECASE)
_UNITS: Final = {
    "": 1,
    **{f"{letter}{end}": 1024 ** (at + 1) for at, letter in enumerate("kmgt") for end in ("", "i", "ib")},
    **{f"{letter}b": 1000 ** (at + 1) for at, letter in enumerate("kmgt")},
}
_REFUSED: Final = 69
_LEVELS: Final = {
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warning": "warning",
    "error": "error",
    "critical": "error",
}
"""RabbitMQ's levels -> ours."""


def _names(call: Call) -> list[str]:
    """The nodes of all workers."""
    return [node["name"] for node in call.client.get("nodes")]


# Start and stop


def _application(call: Call) -> None:
    node = call.node()
    stops = call.parsed.verb == "stop_app"
    call.say(f"{'Stopping rabbit application on' if stops else 'Starting'} node {node['name']} ...")
    body = {"state": "stopped" if stops else "running"}
    call.client.request("PUT", f"nodes/{segment(node['name'])}/application", body)


def _stop(call: Call) -> None:
    """A management API that ends its process would end it for whoever reaches the port."""
    pids = [str(node["os_pid"]) for node in call.client.get("nodes")]
    how = f"`kill {pids[0]}` on its machine" if len(pids) == 1 else "SIGTERM to the process that was started"
    raise Failure(
        "a gateway is not stopped by its management API",
        _REFUSED,
        remedy=f"stop its service (systemctl stop penstock), or use {how}; `stop_app` ends clients only",
    )


def _rotate_logs(call: Call) -> None:
    print("Nothing to rotate: log lines go to standard error, and who started the gateway keeps them")


def _not_here(remedy: str) -> Verb:
    def refuse(call: Call) -> None:
        raise Failure(f"{call.parsed.verb} does not exist here", _REFUSED, remedy=remedy)

    return Verb(refuse, f"Refused: {remedy}")


# Settings


def _set_log_level(call: Call) -> None:
    level = _LEVELS.get(call.words[0])
    if level is None:
        known = ", ".join(_LEVELS)
        raise Failure(f"level {call.words[0]} is not supported. Try one of {known}", _REFUSED)
    call.say(f'Setting log level to "{call.words[0]}" ...')
    for name in _names(call):
        call.client.request("PUT", f"nodes/{segment(name)}/log-level", {"level": level})


def _set_memory(call: Call) -> None:
    nodes = _names(call)
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


# Definitions


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


# Feature flags


def _list_feature_flags(call: Call) -> None:
    call.say("Listing feature flags ...")
    call.rows(call.client.get("feature-flags"), call.words or ("name", "state"))


def _enable_feature_flag(call: Call) -> None:
    name = call.words[0]
    if name == "all":
        call.say("Enabling all feature flags ...")
        names = [one["name"] for one in call.client.get("feature-flags")]
    else:
        call.say(f'Enabling feature flag "{name}" ...')
        names = [name]
    for one in names:
        try:
            call.client.request("PUT", f"feature-flags/{segment(one)}/enable", {})
        except ApiError as error:
            if error.status != 400:
                raise
            raise Failure("This feature flag is not supported by this gateway", USAGE_ERROR) from error


LIST_FEATURE_FLAGS: Final = Verb(_list_feature_flags, "Lists feature flags", "[<column> ...]")

_SERVICE: Final = "a node is what its configuration says; see docs/how-to/cluster.md"

GROUPS: Final[Groups] = {
    "Nodes": {
        "rotate_logs": Verb(_rotate_logs, "Does nothing: log lines go to standard error"),
        "shutdown": Verb(_stop, "Says how to stop the gateway"),
        "start_app": Verb(_application, "Opens the listeners of clients again"),
        "stop": Verb(_stop, "Says how to stop the gateway", "[<pidfile>]"),
        "stop_app": Verb(_application, "Closes the listeners of clients, and ends their connections"),
        "reset": _not_here("stop the gateway and remove its data folder"),
    },
    "Cluster": {
        "join_cluster": _not_here(_SERVICE),
        "forget_cluster_node": _not_here(_SERVICE),
    },
    "Configuration and Environment": {
        "set_cluster_name": _not_here("set server.name in the configuration"),
        "set_disk_free_limit": _not_here("set log.min_free_bytes in the configuration"),
        "set_log_level": Verb(
            _set_log_level, "Sets the log level, until a restart or a reload", "<log_level>"
        ),
        "set_vm_memory_high_watermark": Verb(
            _set_memory,
            "Sets the memory above which publishers wait, until a restart",
            "<fraction> [<bytes>]",
        ),
    },
    "Definitions": {
        "export_definitions": Verb(
            _export_definitions, "Writes everything that was declared, as JSON", "<file | ->"
        ),
        "import_definitions": Verb(_import_definitions, "Reads such a file", "[<file | ->]"),
    },
    "Feature flags": {
        "enable_feature_flag": Verb(
            _enable_feature_flag, "Does nothing: all feature flags are enabled", "<all | feature_flag>"
        ),
        "list_feature_flags": LIST_FEATURE_FLAGS,
    },
    "Operations": {
        "eval": _not_here("ask the management API (docs/reference/management.md)"),
        "force_gc": _not_here("memory is given back by itself"),
        "resume_listeners": _not_here("use start_app"),
        "suspend_listeners": _not_here("use stop_app, which also ends connections"),
    },
}
