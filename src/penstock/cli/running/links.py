"""`penstock shovels ...` makes, shows and restarts shovels; `penstock bridges ...` shows bridges, and
`penstock federation ...` links of federation."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import Client
from penstock.cli.running.nouns import (
    OUTPUT,
    argument,
    columns,
    filled,
    json_settings,
    list_of,
    of_a_thing,
    show_of,
    verbs_of,
)

__all__ = ["COMMANDS"]

_SHOWN = "name,state,src_queue,src_exchange,dest_queue,dest_exchange,messages_ready,pending,forwarded,reason"
_BRIDGES = "name,state,address,messages_ready,forwarded,refused,reason"
_FEDERATION = "type,exchange,queue,upstream,status,messages_ready,pending,forwarded,error"
_ONE = "shovels/vhost/{vhost}/{name}"
_PARAMETER = "parameters/shovel/{vhost}/{name}"


def _add_shovels(parser: Parser) -> None:
    vhost = argument("--vhost", default="/", help="the vhost (default: /)")
    name = argument("name", metavar="NAME")
    shovels = verbs_of(parser)
    shovels("list", list_of("shovels/{vhost}"), vhost, columns(_SHOWN), help="list shovels and their state")
    shovels("show", show_of(_ONE), vhost, name, OUTPUT, help="a shovel's ends, state and figures")
    shovels(
        "create",
        _create,
        vhost,
        name,
        argument(
            "settings",
            metavar="JSON",
            type=json_settings,
            help='as RabbitMQ has them, {"src-uri": "amqp://", "src-queue": ..., ...}, or @FILE',
        ),
        help="make a shovel, or change one",
    )
    shovels("delete", _delete, vhost, name, help="end a shovel; its queues stay")
    shovels("restart", _restart, vhost, name, help="connect both ends anew, at once")


def _add_bridges(parser: Parser) -> None:
    vhost = argument("--vhost", default="/", help="the vhost (default: /)")
    name = argument("name", metavar="NAME")
    bridges = verbs_of(parser)
    bridges("list", list_of("bridges/{vhost}"), vhost, columns(_BRIDGES), help="list bridges and their state")
    bridges(
        "show",
        show_of("bridges/{vhost}/{name}"),
        vhost,
        name,
        OUTPUT,
        help="a bridge's topics, state and figures",
    )


def _add_federation(parser: Parser) -> None:
    vhost = argument("--vhost", default="/", help="the vhost (default: /)")
    federation = verbs_of(parser)
    federation(
        "list",
        list_of("federation-links/{vhost}"),
        vhost,
        columns(_FEDERATION),
        help="list links of federation and their state",
    )


def _create(client: Client, parsed: argparse.Namespace) -> None:
    client.request("PUT", filled(_PARAMETER, parsed), {"value": parsed.settings})


def _delete(client: Client, parsed: argparse.Namespace) -> None:
    of_a_thing("DELETE", client, _ONE, parsed)


def _restart(client: Client, parsed: argparse.Namespace) -> None:
    of_a_thing("DELETE", client, f"{_ONE}/restart", parsed)


COMMANDS: Final[dict[str, Builder]] = {
    "bridges": _add_bridges,
    "federation": _add_federation,
    "shovels": _add_shovels,
}
