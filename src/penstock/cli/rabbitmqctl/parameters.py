"""The verbs about runtime parameters, and about shovels, which are made by them."""

from __future__ import annotations

import json
from typing import Final

from penstock.cli.client import segment
from penstock.cli.rabbitmqctl.call import Call, Groups, Usage, Verb, clear_parameter, object_of, or_missing

__all__ = ["GROUPS", "LISTS"]


def _list_global_parameters(call: Call) -> None:
    call.say("Listing global runtime parameters ...")
    items = [
        {"name": one["name"], "value": one["value"] if call.is_json else json.dumps(one["value"])}
        for one in call.client.get("global-parameters")
    ]
    call.rows(items, ("name", "value"))


def _list_parameters(call: Call) -> None:
    call.say(f'Listing runtime parameters for vhost "{call.parsed.vhost}" ...')
    items = [
        {**one, "value": one["value"] if call.is_json else json.dumps(one["value"])}
        for one in call.client.get(f"parameters/all/{call.vhost}")
    ]
    call.rows(items, ("component", "name", "value"))


def _set_parameter(call: Call) -> None:
    component, name, text = call.words[:3]
    value = object_of(text)
    call.say(
        f'Setting runtime parameter "{name}" for component "{component}" to "{text}" in vhost '
        f'"{call.parsed.vhost}" ...'
    )
    call.client.request("PUT", _path(call, component, name), {"value": value})


def _clear_parameter(call: Call) -> None:
    component, name = call.words[:2]
    call.say(
        f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{call.parsed.vhost}" ...'
    )
    clear_parameter(call, _path(call, component, name))


def _path(call: Call, component: str, name: str) -> str:
    return f"parameters/{segment(component)}/{call.vhost}/{segment(name)}"


def _shovel_status(call: Call) -> None:
    call.say("Shovel status on node " + call.client.get("overview")["node"])
    call.rows(call.client.get("shovels"), ("name", "vhost", "type", "state", "reason"))


def _restart_shovel(call: Call) -> None:
    call.say(f"Restarting dynamic Shovel {call.words[0]} in virtual host {call.parsed.vhost}")
    _shovel(call, "/restart")


def _delete_shovel(call: Call) -> None:
    call.say(f"Deleting shovel {call.words[0]} in vhost {call.parsed.vhost}")
    _shovel(call, "")


def _shovel(call: Call, rest: str) -> None:
    path = f"shovels/vhost/{call.vhost}/{call.path(0)}{rest}"
    or_missing(call, "Shovel", lambda: call.client.request("DELETE", path))


def _set_global_parameter(call: Call) -> None:
    name, text = call.words[:2]
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Usage(f"the value of parameter {name!r} is not JSON: {error}") from error
    call.say(f'Setting global runtime parameter "{name}" to "{text}" ...')
    call.client.request("PUT", f"global-parameters/{call.path(0)}", {"value": value})


def _clear_global_parameter(call: Call) -> None:
    call.say(f'Clearing global runtime parameter "{call.words[0]}" ...')
    clear_parameter(call, f"global-parameters/{call.path(0)}")


LISTS: Final[Groups] = {
    "Parameters": {
        "list_global_parameters": Verb(_list_global_parameters, "Lists global runtime parameters"),
        "list_parameters": Verb(_list_parameters, "Lists runtime parameters of a vhost", "[--vhost <vhost>]"),
    },
    "Shovel": {"shovel_status": Verb(_shovel_status, "Lists shovels and their state")},
}
"""The verbs that only look."""

GROUPS: Final[Groups] = {
    "Parameters": {
        **LISTS["Parameters"],
        "clear_parameter": Verb(
            _clear_parameter, "Removes a parameter of a vhost", "[--vhost <vhost>] <component> <name>"
        ),
        "set_parameter": Verb(
            _set_parameter,
            "Sets a parameter of a vhost, such as a shovel",
            "[--vhost <vhost>] <component> <name> <value>",
        ),
        "clear_global_parameter": Verb(_clear_global_parameter, "Removes a global parameter", "<name>"),
        "set_global_parameter": Verb(
            _set_global_parameter, "Sets a global parameter to a JSON value", "<name> <value>"
        ),
    },
    "Shovel": {
        **LISTS["Shovel"],
        "delete_shovel": Verb(_delete_shovel, "Removes a shovel", "[--vhost <vhost>] <name>"),
        "restart_shovel": Verb(_restart_shovel, "Restarts a shovel", "[--vhost <vhost>] <name>"),
    },
}
