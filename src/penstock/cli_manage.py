"""Commands about a running gateway: `penstock queues list`, `penstock users add NAME` and so on.

They speak to its management API (`management.listen`) and print a table, or JSON with -o json.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.cli_client import DEFAULT_URL, ApiError, Client, segment
from penstock.cli_tables import Columns, print_list, print_rows
from penstock.errors import ConfigError

__all__ = [
    "Action",
    "Nouns",
    "add_commands",
    "add_target",
    "argument",
    "columns",
    "json_object",
    "list_of",
    "runner",
]

Item = dict[str, Any]
Action = Callable[[Client, argparse.Namespace], None]

_QUEUES: Final = "name,type,messages_ready,messages_unacknowledged,consumers,policy,state"
_TOP_S: Final = 2.0


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options that say which gateway is meant."""
    parser.add_argument(
        "--url",
        default=os.environ.get("PENSTOCK_URL", DEFAULT_URL),
        help="the management API, http://USER:PASSWORD@HOST:PORT (default: PENSTOCK_URL, or %(default)s; "
        "PENSTOCK_USER and PENSTOCK_PASSWORD overrule what is in it)",
    )


def add_commands(commands: Any) -> None:
    """Add the nouns with their verbs to the parser of `penstock`."""
    from penstock.cli_audit import add_audit  # which are made with what is declared here
    from penstock.cli_bench import add_bench
    from penstock.cli_data import add_data
    from penstock.cli_dlq import add_dlq
    from penstock.cli_topics import add_topics
    from penstock.cli_webhooks import add_webhooks

    nouns = Nouns(commands)
    vhost = argument("--vhost", default="/", help="the vhost (default: /)")
    name = argument("name", metavar="NAME")
    queues = nouns.add("queues", "look at queues, make and delete them")
    queues("list", list_of("queues/{vhost}"), vhost, columns(_QUEUES), help="list queues")
    queues("show", _show("queues/{vhost}/{name}"), vhost, name, help="everything about a queue")
    queues(
        "declare",
        _declare_queue,
        vhost,
        name,
        argument("--type", choices=("classic", "quorum", "stream"), default="classic"),
        argument("--arguments", type=json_object, default={}, metavar="JSON", help="further arguments"),
        help="make a durable queue",
    )
    queues("purge", _delete("queues/{vhost}/{name}/contents"), vhost, name, help="drop what is ready in it")
    queues("delete", _delete("queues/{vhost}/{name}"), vhost, name, help="delete a queue and what is in it")

    exchanges = nouns.add("exchanges", "look at exchanges and bindings")
    exchanges("list", list_of("exchanges/{vhost}"), vhost, columns("name,type,durable,internal"))
    exchanges(
        "bindings",
        list_of("bindings/{vhost}"),
        vhost,
        columns("source,destination_type,destination,routing_key,arguments"),
        help="list bindings",
    )

    connections = nouns.add("connections", "look at clients, close their connections")
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
        vhost,
        columns("queue.name,consumer_tag,channel_details.name,ack_required,prefetch_count,active"),
        help="list consumers",
    )
    connections(
        "close",
        _close,
        name,
        argument("--reason", default="closed by the operator"),
        help="close a connection",
    )

    users = nouns.add("users", "users, their tags and permissions")
    users("list", list_of("users"), columns("name,tags,limits"), help="list users")
    users(
        "add",
        _add_user,
        name,
        argument("--tags", default="", help="with commas between them"),
        argument("--password", help="asked for when not given"),
        help="make a user, or change one",
    )
    users("delete", _delete("users/{name}"), name, help="delete a user, close its connections")
    users("permissions", list_of("permissions"), columns("user,vhost,configure,write,read"), help="list them")
    users(
        "grant",
        _grant,
        vhost,
        name,
        argument("configure", metavar="CONFIGURE"),
        argument("write", metavar="WRITE"),
        argument("read", metavar="READ"),
        help="say what a user may do in a vhost: three regular expressions on names",
    )
    users("revoke", _delete("permissions/{vhost}/{name}"), vhost, name, help="shut a vhost to a user")

    vhosts = nouns.add("vhosts", "virtual hosts")
    vhosts("list", list_of("vhosts"), columns("name,description,messages,tags,worker"), help="list vhosts")
    vhosts(
        "add",
        _add_vhost,
        name,
        argument("--description", default=""),
        argument(
            "--worker", type=int, metavar="N", help="which worker has it (default: one with the fewest)"
        ),
        help="make a vhost, or describe it",
    )
    vhosts("delete", _delete("vhosts/{name}"), name, help="delete a vhost with everything in it")

    policies = nouns.add("policies", "policies of a vhost")
    shown = "name,pattern,apply-to,definition,priority"
    policies("list", list_of("policies/{vhost}"), vhost, columns(shown), help="list policies")
    policies(
        "set",
        _set_policy,
        vhost,
        name,
        argument("pattern", metavar="PATTERN", help="a regular expression on names"),
        argument("definition", metavar="JSON", type=json_object),
        argument("--priority", type=int, default=0),
        argument("--apply-to", default="all"),
        help="make or change a policy",
    )
    policies("clear", _delete("policies/{vhost}/{name}"), vhost, name, help="take a policy back")

    definitions = nouns.add("definitions", "everything that was declared, out and in")
    definitions(
        "export",
        _export,
        argument("file", metavar="FILE", nargs="?", help="default: standard output"),
        help="write a definitions.json, as RabbitMQ has it",
    )
    definitions(
        "import",
        _import,
        argument("file", metavar="FILE"),
        argument("--dry-run", action="store_true", help="change nothing, and say what would change"),
        argument("-o", "--output", choices=("table", "json"), default="table"),
        help="read one: RabbitMQ's or our own",
    )

    add_webhooks(nouns)
    add_audit(nouns)
    add_topics(nouns)
    add_dlq(nouns)
    add_data(commands)
    add_bench(commands)

    top = commands.add_parser("top", help="the gateway at work, anew every two seconds")
    add_target(top)
    top.add_argument("--once", action="store_true", help="print it once and end")
    top.add_argument("--rows", type=int, default=15, help="queues shown (default: %(default)s)")
    top.set_defaults(run=runner(_top))


class Nouns:
    """Adds nouns; each answers a function that adds its verbs."""

    def __init__(self, commands: Any) -> None:
        self._commands = commands

    def add(self, noun: str, text: str) -> Callable[..., None]:
        """A noun."""
        parser = self._commands.add_parser(noun, help=text, description=f"{text[0].upper()}{text[1:]}.")
        verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)

        def verb(name: str, action: Action, *arguments: _Argument, help: str = "list them") -> None:
            command = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
            add_target(command)
            for argument in arguments:
                argument(command)
            command.set_defaults(run=runner(action))

        return verb


_Argument = Callable[[argparse.ArgumentParser], None]


def argument(*names: str, **options: Any) -> _Argument:
    """An argument of a verb, as argparse has it."""
    return lambda parser: _done(parser.add_argument(*names, **options))


def _done(_: object) -> None:
    pass


def columns(default: str) -> _Argument:
    """The options of a list: its form and its columns."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
        parser.add_argument(
            "--columns",
            default=Columns(default),
            help="keys of the API, with commas (default: %(default)s)",
        )

    return add


def runner(action: Action) -> Callable[[argparse.Namespace], int]:
    """What a command of the parser runs: `action` with a client."""

    def run(parsed: argparse.Namespace) -> int:
        with Client(parsed.url) as client:
            try:
                action(client, parsed)
            except ApiError as error:
                if error.status != 404 or str(error) != "Not Found" or "vhost" not in parsed:
                    raise
                raise ApiError(f"there is no vhost '{parsed.vhost}'", 404) from error
        return 0

    return run


def json_object(text: str) -> Item:
    """The type of an argument that is a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def _filled(path: str, parsed: argparse.Namespace) -> str:
    words = {name: segment(str(value)) for name, value in vars(parsed).items()}
    return path.format(**words)


# Actions


def list_of(path: str) -> Action:
    """Prints the list at a path, whose braces are filled with arguments."""

    def action(client: Client, parsed: argparse.Namespace) -> None:
        print_list(client.get(_filled(path, parsed)), parsed.columns, parsed.output)

    return action


def _show(path: str) -> Action:
    def action(client: Client, parsed: argparse.Namespace) -> None:
        print(json.dumps(_of_a_thing("GET", client, path, parsed), indent=2))

    return action


def _delete(path: str) -> Action:
    def action(client: Client, parsed: argparse.Namespace) -> None:
        _of_a_thing("DELETE", client, path, parsed)

    return action


def _of_a_thing(method: str, client: Client, path: str, parsed: argparse.Namespace, **headers: str) -> Any:
    """The answer to a request about what is called `parsed.name`. Raises ApiError, which names it."""
    try:
        return client.request(method, _filled(path, parsed), **headers)
    except ApiError as error:
        if error.status != 404 or str(error) != "Not Found":
            raise
        noun = path.partition("/")[0].removesuffix("s")
        where = f" in vhost '{parsed.vhost}'" if "{vhost}" in path else ""
        raise ApiError(
            f"there is no {'policy' if noun == 'policie' else noun} '{parsed.name}'{where}", 404
        ) from error


def _declare_queue(client: Client, parsed: argparse.Namespace) -> None:
    arguments = {"x-queue-type": parsed.type, **parsed.arguments}
    if arguments["x-queue-type"] == "classic":
        del arguments["x-queue-type"]
    body = {"durable": True, "arguments": arguments}
    client.request("PUT", _filled("queues/{vhost}/{name}", parsed), body)


def _close(client: Client, parsed: argparse.Namespace) -> None:
    _of_a_thing("DELETE", client, "connections/{name}", parsed, **{"x-reason": parsed.reason})


def _add_user(client: Client, parsed: argparse.Namespace) -> None:
    password = parsed.password
    if password is None:
        asked = f"password of {parsed.name}: "
        password = getpass.getpass(asked) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise ApiError(
            f"no password for user '{parsed.name}'", 0, remedy="give one on standard input or with --password"
        )
    client.request("PUT", _filled("users/{name}", parsed), {"password": password, "tags": parsed.tags})


def _grant(client: Client, parsed: argparse.Namespace) -> None:
    body = {"configure": parsed.configure, "write": parsed.write, "read": parsed.read}
    client.request("PUT", _filled("permissions/{vhost}/{name}", parsed), body)


def _add_vhost(client: Client, parsed: argparse.Namespace) -> None:
    body: Item = {"description": parsed.description}
    if parsed.worker is not None:
        body["worker"] = parsed.worker
    client.request("PUT", _filled("vhosts/{name}", parsed), body)


def _set_policy(client: Client, parsed: argparse.Namespace) -> None:
    body = {
        "pattern": parsed.pattern,
        "definition": parsed.definition,
        "priority": parsed.priority,
        "apply-to": parsed.apply_to,
    }
    client.request("PUT", _filled("policies/{vhost}/{name}", parsed), body)


def _export(client: Client, parsed: argparse.Namespace) -> None:
    text = json.dumps(client.get("definitions"), indent=2)
    if parsed.file is None:
        print(text)
        return
    try:
        Path(parsed.file).write_text(text + "\n")
    except OSError as error:
        raise ApiError(f"cannot write {parsed.file}: {error.strerror}", 0) from error


def _import(client: Client, parsed: argparse.Namespace) -> None:
    try:
        definitions = json.loads(Path(parsed.file).read_text())
    except OSError as error:
        raise ConfigError(f"cannot read it: {error.strerror}", source=parsed.file) from error
    except ValueError as error:
        raise ConfigError(f"it is not JSON: {error}", source=parsed.file) from error
    if not parsed.dry_run:
        client.request("POST", "definitions", definitions)
        return
    found = client.request("POST", "definitions-dry-run", definitions)
    if parsed.output == "json":
        print(json.dumps(found, indent=2))
        return
    rows = [
        {
            "what": what,
            "list": part,
            "differs": ", ".join(thing.pop("differs", [])),
            "thing": " ".join(
                f"{name}={value}" for name, value in thing.items() if value not in ("", [], {})
            ),
        }
        for what in ("create", "change", "conflict", "kept")
        for part, things in found[what].items()
        for thing in things
    ]
    rows += [{"what": "ignore", "list": name, "thing": "", "differs": ""} for name in found["unknown"]]
    print_rows(rows, ("what", "list", "thing", "differs"), "table")


def _top(client: Client, parsed: argparse.Namespace) -> None:
    while True:
        overview = client.get("overview")
        queues = client.get("queues")
        if not parsed.once:
            print("\x1b[H\x1b[2J", end="")
        _print_top(overview, queues, parsed.rows)
        if parsed.once:
            return
        sys.stdout.flush()
        time.sleep(_TOP_S)


def _print_top(overview: Item, queues: Sequence[Item], rows: int) -> None:
    totals, counts, stats = overview["queue_totals"], overview["object_totals"], overview["message_stats"]
    print(
        f"{overview['product_name']} {overview['product_version']} {overview['node']}   "
        f"{counts['connections']} connections, {counts['consumers']} consumers, {counts['queues']} queues"
    )
    print(
        f"in {stats['publish_details']['rate']:.0f}/s, out {stats['deliver_get_details']['rate']:.0f}/s, "
        f"ready {totals['messages_ready']}, unacknowledged {totals['messages_unacknowledged']}\n"
    )
    items = [
        {
            "queue": queue["name"],
            "vhost": queue["vhost"],
            "ready": queue["messages_ready"],
            "unacked": queue["messages_unacknowledged"],
            "consumers": queue["consumers"],
            "in/s": queue["message_stats"]["publish_details"]["rate"],
            "out/s": queue["message_stats"]["deliver_get_details"]["rate"],
        }
        for queue in sorted(queues, key=_busiest, reverse=True)[:rows]
    ]
    print_rows(items, ("queue", "vhost", "ready", "unacked", "consumers", "in/s", "out/s"), "table")


def _busiest(queue: Item) -> tuple[float, int]:
    stats = queue["message_stats"]
    return stats["publish_details"]["rate"] + stats["deliver_get_details"]["rate"], queue["messages"]
