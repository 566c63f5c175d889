"""The verbs about runtime parameters, and about shovels, which are made by them."""

from __future__ import annotations

import json
from typing import Final

from penstock.cli.rabbitmqctl.call import Call, Failure, Groups, Usage, Verb, clear_parameter, or_missing
from penstock.cli.running.client import segment

__all__ = ["GROUPS", "LISTS"]

_UNAVAILABLE = 69
"""Exit code: what was named is not there."""
_FEDERATION = (
    *("vhost", "type", "exchange", "queue", "upstream", "upstream_exchange", "upstream_queue"),
    *("uri", "id", "status", "error"),
)


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
    value = _value_of(name, text)
    call.say(
        f'Setting runtime parameter "{name}" for component "{component}" to "{text}" in vhost '
        f'"{call.parsed.vhost}" ...'
    )
    call.client.request("PUT", _path(call, component, name), {"value": value})


def _value_of(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Usage(f"the value of parameter {name!r} is not JSON: {error}") from error


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


def _federation_status(call: Call) -> None:
    call.say("Listing federation links on node " + call.client.get("overview")["node"])
    rows = call.client.get("federation-links")
    if call.parsed.only_down:
        rows = [one for one in rows if one["status"] != "running"]
    call.rows(rows, _FEDERATION)


def _restart_federation_link(call: Call) -> None:
    call.say(f"Restarting federation link {call.words[0]} on node " + call.client.get("overview")["node"])
    for one in call.client.get("federation-links"):
        if one["id"] == call.words[0]:
            place = f"{segment(one['vhost'])}/{segment(one['id'])}/{segment(one['node'])}"
            call.client.request("DELETE", f"federation-links/vhost/{place}/restart")
            return
    raise Failure(f"Link {call.words[0]} does not exist", _UNAVAILABLE)


def _set_global_parameter(call: Call) -> None:
    name, text = call.words[:2]
    value = _value_of(name, text)
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
    "Federation": {
        "federation_status": Verb(
            _federation_status, "Lists links of federation and their state", "[--only-down]"
        )
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
    "Federation": {
        **LISTS["Federation"],
        "restart_federation_link": Verb(
            _restart_federation_link, "Restarts a link of federation", "<link_id>"
        ),
    },
    "Shovel": {
        **LISTS["Shovel"],
        "delete_shovel": Verb(_delete_shovel, "Removes a shovel", "[--vhost <vhost>] <name>"),
        "restart_shovel": Verb(_restart_shovel, "Restarts a shovel", "[--vhost <vhost>] <name>"),
    },
}
