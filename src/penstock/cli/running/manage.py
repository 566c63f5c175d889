"""Commands about what a gateway has: `penstock queues list`, `penstock users create NAME` and so on."""

from __future__ import annotations

import argparse
import getpass
import re
import sys
from collections.abc import Callable
from typing import Final

from penstock.cli.hints import command
from penstock.cli.parsing import Builder, Parser, nearest
from penstock.cli.running.client import ApiError, Client, segment
from penstock.cli.running.nouns import (
    OUTPUT,
    Action,
    Item,
    argument,
    columns,
    filled,
    json_object,
    list_of,
    of_a_thing,
    show_of,
    verbs_of,
)
from penstock.cli.tables import print_list

__all__ = ["COMMANDS"]

_QUEUES: Final = "name,type,messages_ready,messages_unacknowledged,consumers,policy,state"


_VHOST: Final = argument("--vhost", default="/", help="the vhost (default: /)")
_NAME: Final = argument("name", metavar="NAME")


def _add_queues(parser: Parser) -> None:
    queues = verbs_of(parser)
    queues("list", list_of("queues/{vhost}"), _VHOST, columns(_QUEUES), help="list queues")
    queues("show", show_of("queues/{vhost}/{name}"), _VHOST, _NAME, OUTPUT, help="everything about a queue")
    queues(
        "create",
        _create_queue,
        _VHOST,
        _NAME,
        argument("--type", choices=("classic", "quorum", "stream"), default="classic"),
        argument("--arguments", type=json_object, default={}, metavar="JSON", help="further arguments"),
        help="make a durable queue",
    )
    queues("purge", _delete("queues/{vhost}/{name}/contents"), _VHOST, _NAME, help="drop what is ready in it")
    queues("delete", _delete("queues/{vhost}/{name}"), _VHOST, _NAME, help="delete a queue and what is in it")


def _add_exchanges(parser: Parser) -> None:
    exchanges = verbs_of(parser)
    exchanges("list", list_of("exchanges/{vhost}"), _VHOST, columns("name,type,durable,internal"))
    exchanges(
        "show",
        show_of("exchanges/{vhost}/{name}"),
        _VHOST,
        _NAME,
        OUTPUT,
        help="everything about an exchange",
    )
    exchanges(
        "create",
        _create_exchange,
        _VHOST,
        _NAME,
        argument("--type", default="direct", help="direct, fanout, topic or headers (default: %(default)s)"),
        argument("--arguments", type=json_object, default={}, metavar="JSON", help="further arguments"),
        help="make a durable exchange",
    )
    exchanges("delete", _delete_exchange, _VHOST, _NAME, help="delete an exchange, its bindings")
    exchanges(
        "bindings",
        _bindings,
        _VHOST,
        argument("name", metavar="NAME", nargs="?", help="only those of this exchange"),
        columns("source,destination_type,destination,routing_key,arguments"),
        help="list bindings",
    )
    binding = (
        argument("--routing-key", default="", help="the key, or the pattern of keys, that it takes"),
        argument("--arguments", type=json_object, default={}, metavar="JSON", help="for a headers exchange"),
    )
    queue = argument("queue", metavar="QUEUE")
    exchanges("bind", _bind, _VHOST, _NAME, queue, *binding, help="let a queue have what an exchange gets")
    exchanges("unbind", _unbind, _VHOST, _NAME, queue, *binding, help="take a binding back")


def _bindings(client: Client, parsed: argparse.Namespace) -> None:
    if parsed.name is None:
        found = client.get(filled("bindings/{vhost}", parsed))
    else:
        found = of_a_thing("GET", client, "exchanges/{vhost}/{name}/bindings/source", parsed)
    print_list(found, parsed.columns, parsed.output)


def _add_connections(parser: Parser) -> None:
    connections = verbs_of(parser)
    shown = "name,user,vhost,protocol,state,channels,recv_oct,send_oct"
    connections("list", list_of("connections"), columns(shown), help="list connections")
    connections(
        "channels",
        list_of("channels"),
        columns("name,user,consumer_count,messages_unacknowledged,prefetch_count,state"),
        help="list channels",
    )
    connections(
        "consumers",
        list_of("consumers/{vhost}"),
        _VHOST,
        columns("queue.name,consumer_tag,channel_details.name,ack_required,prefetch_count,active"),
        help="list consumers",
    )
    connections(
        "close",
        _close,
        _NAME,
        argument("--reason", default="closed by the operator"),
        help="close a connection",
    )


def _add_users(parser: Parser) -> None:
    users = verbs_of(parser)
    users("list", list_of("users"), columns("name,tags,limits"), help="list users")
    users(
        "create",
        _create_user,
        _NAME,
        argument("--tags", default="", help="with commas between them"),
        argument("--password", help="asked for when not given"),
        help="make a user, or change one",
    )
    users("delete", _delete("users/{name}"), _NAME, help="delete a user, close its connections")
    users("permissions", list_of("permissions"), columns("user,vhost,configure,write,read"), help="list them")
    users(
        "grant",
        _grant,
        _VHOST,
        _NAME,
        argument("configure", metavar="CONFIGURE"),
        argument("write", metavar="WRITE"),
        argument("read", metavar="READ"),
        help="say what a user may do in a vhost: three regular expressions on names",
    )
    users("revoke", _delete("permissions/{vhost}/{name}"), _VHOST, _NAME, help="shut a vhost to a user")
    _add_limits(users, "user")


def _add_vhosts(parser: Parser) -> None:
    vhosts = verbs_of(parser)
    vhosts("list", list_of("vhosts"), columns("name,description,messages,tags,worker"), help="list vhosts")
    vhosts(
        "create",
        _create_vhost,
        _NAME,
        argument("--description", default=""),
        argument(
            "--worker", type=int, metavar="N", help="which worker has it (default: one with the fewest)"
        ),
        help="make a vhost, or change one",
    )
    vhosts("delete", _delete("vhosts/{name}"), _NAME, help="delete a vhost with everything in it")
    _add_limits(vhosts, "vhost")


def _add_limits(verb: Callable[..., None], kind: str) -> None:
    """The verbs about limits of a user or a vhost."""
    limit = argument(
        "limit", metavar="LIMIT", help="such as max-connections: see docs/reference/management.md"
    )

    def set_limit(client: Client, parsed: argparse.Namespace) -> None:
        client.request("PUT", filled(f"{kind}-limits/{{name}}/{{limit}}", parsed), {"value": parsed.value})

    def clear_limit(client: Client, parsed: argparse.Namespace) -> None:
        client.request("DELETE", filled(f"{kind}-limits/{{name}}/{{limit}}", parsed))

    verb("limits", list_of(f"{kind}-limits"), columns(f"{kind},value"), help=f"list limits of {kind}s")
    value = argument("value", metavar="N", type=int, help="at most so many; -1: any number")
    verb("limit", set_limit, _NAME, limit, value, help=f"limit a {kind}")
    verb("unlimit", clear_limit, _NAME, limit, help=f"take a limit of a {kind} back")


def _add_policies(parser: Parser) -> None:
    policies = verbs_of(parser)
    shown = "name,pattern,apply-to,definition,priority"
    policies("list", list_of("policies/{vhost}"), _VHOST, columns(shown), help="list policies")
    policies(
        "create",
        _set_policy,
        _VHOST,
        _NAME,
        argument("pattern", metavar="PATTERN", help="a regular expression on names"),
        argument("definition", metavar="JSON", type=json_object),
        argument("--priority", type=int, default=0),
        argument("--apply-to", default="all"),
        help="make a policy, or change one",
    )
    policies(
        "delete",
        _delete("policies/{vhost}/{name}"),
        _VHOST,
        _NAME,
        help="take a policy back",
        also=("clear",),
    )


# Actions


def _delete(path: str) -> Action:
    def action(client: Client, parsed: argparse.Namespace) -> None:
        of_a_thing("DELETE", client, path, parsed)

    return action


def _create_queue(client: Client, parsed: argparse.Namespace) -> None:
    arguments = {"x-queue-type": parsed.type, **parsed.arguments}
    if arguments["x-queue-type"] == "classic":
        del arguments["x-queue-type"]
    body = {"durable": True, "arguments": arguments}
    client.request("PUT", filled("queues/{vhost}/{name}", parsed), body)


def _create_exchange(client: Client, parsed: argparse.Namespace) -> None:
    body = {"type": parsed.type, "durable": True, "arguments": parsed.arguments}
    try:
        client.request("PUT", filled("exchanges/{vhost}/{name}", parsed), body)
    except ApiError as error:
        if not error.message.startswith("unknown exchange type"):
            raise
        known = [one["name"] for one in client.get("overview")["exchange_types"]]
        hint = nearest(parsed.type, known) or f"there are {', '.join(known)}"
        raise ApiError(error.message, error.status, remedy=hint.strip()) from error


def _delete_exchange(client: Client, parsed: argparse.Namespace) -> None:
    if parsed.name.startswith("amq."):
        raise ApiError(f"exchange '{parsed.name}' is the gateway's own, and stays", 403)
    of_a_thing("DELETE", client, "exchanges/{vhost}/{name}", parsed)


def _bind(client: Client, parsed: argparse.Namespace) -> None:
    body = {"routing_key": parsed.routing_key, "arguments": parsed.arguments}
    client.request("POST", filled("bindings/{vhost}/e/{name}/q/{queue}", parsed), body)


def _unbind(client: Client, parsed: argparse.Namespace) -> None:
    path = filled("bindings/{vhost}/e/{name}/q/{queue}", parsed)
    for binding in client.get(path):
        if (binding["routing_key"], binding["arguments"]) == (parsed.routing_key, parsed.arguments):
            client.request("DELETE", f"{path}/{segment(binding['properties_key'])}")
            return
    raise ApiError(
        f"queue '{parsed.queue}' is not bound to exchange '{parsed.name}' in that way",
        404,
        remedy=f"{command('exchanges', 'bindings', vhost=parsed.vhost)} lists the bindings",
    )


def _close(client: Client, parsed: argparse.Namespace) -> None:
    of_a_thing("DELETE", client, "connections/{name}", parsed, **{"x-reason": parsed.reason})


def _create_user(client: Client, parsed: argparse.Namespace) -> None:
    password = parsed.password
    if password is None:
        asked = f"password of {parsed.name}: "
        password = getpass.getpass(asked) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise ApiError(
            f"no password for user '{parsed.name}'", 0, remedy="give one on standard input or with --password"
        )
    client.request("PUT", filled("users/{name}", parsed), {"password": password, "tags": parsed.tags})


def _grant(client: Client, parsed: argparse.Namespace) -> None:
    body = {"configure": parsed.configure, "write": parsed.write, "read": parsed.read}
    of_a_thing("PUT", client, "permissions/{vhost}/{name}", parsed, body)


def _create_vhost(client: Client, parsed: argparse.Namespace) -> None:
    body: Item = {"description": parsed.description}
    if parsed.worker is not None:
        body["worker"] = parsed.worker
    client.request("PUT", filled("vhosts/{name}", parsed), body)


def _set_policy(client: Client, parsed: argparse.Namespace) -> None:
    body = {
        "pattern": parsed.pattern,
        "definition": parsed.definition,
        "priority": parsed.priority,
        "apply-to": parsed.apply_to,
    }
    try:
        client.request("PUT", filled("policies/{vhost}/{name}", parsed), body)
    except ApiError as error:
        unknown = re.findall(r"\{'(.*?)',", error.message)
        if not unknown or not error.message.endswith("not recognised policy settings"):
            raise
        from penstock.router.policies.definitions import setting_names

        known = setting_names()
        hint = nearest(unknown[0], known) or f"there are {', '.join(known)}"
        raise ApiError(f"policies have no setting '{unknown[0]}'", 400, remedy=hint.strip()) from error


COMMANDS: Final[dict[str, Builder]] = {
    "queues": _add_queues,
    "exchanges": _add_exchanges,
    "connections": _add_connections,
    "users": _add_users,
    "vhosts": _add_vhosts,
    "policies": _add_policies,
}
