"""The verbs about runtime parameters: global ones are kept; those of plug-ins do not exist here."""

from __future__ import annotations

import json
from typing import Final

from penstock.cli.rabbitmqctl.call import Call, Groups, Usage, Verb, clear_parameter

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
    call.rows(call.client.get(f"parameters/all/{call.vhost}"), ("component", "name", "value"))


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
        "list_parameters": Verb(
            _list_parameters, "Lists nothing: there are no plug-ins with parameters", "[--vhost <vhost>]"
        ),
    }
}
"""The verbs that only look."""

GROUPS: Final[Groups] = {
    "Parameters": {
        **LISTS["Parameters"],
        "clear_global_parameter": Verb(_clear_global_parameter, "Removes a global parameter", "<name>"),
        "set_global_parameter": Verb(
            _set_global_parameter, "Sets a global parameter to a JSON value", "<name> <value>"
        ),
    }
}
