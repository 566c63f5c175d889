"""Declares commands about a running gateway: nouns with verbs, their arguments, and what they share.

Such a command speaks to the management API (`management.listen`) and prints a table, or JSON with -o json.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.cli.hints import missing
from penstock.cli.parsing import SYNONYMS, Parser
from penstock.cli.running.client import DEFAULT_URL, ApiError, Client, segment
from penstock.cli.tables import Columns, print_list, print_record

__all__ = [
    "OUTPUT",
    "Action",
    "Item",
    "add_target",
    "argument",
    "columns",
    "filled",
    "json_object",
    "json_settings",
    "list_of",
    "of_a_thing",
    "runner",
    "show_of",
    "verbs_of",
]

Item = dict[str, Any]
Action = Callable[[Client, argparse.Namespace], None]


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options that say which gateway is meant."""
    parser.add_argument(
        "--url",
        default=os.environ.get("PENSTOCK_URL") or DEFAULT_URL,
        # Not %(default)s: the variable may have a password.
        help=f"the management API, http://USER:PASSWORD@HOST:PORT (default: PENSTOCK_URL, or {DEFAULT_URL}; "
        "PENSTOCK_USER and PENSTOCK_PASSWORD overrule what is in it)",
    )


def verbs_of(parser: Parser) -> Callable[..., None]:
    """The function that adds a verb to the parser of a noun; `also` are other names of the verb."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(
        name: str,
        action: Action,
        *arguments: _Argument,
        help: str = "list them",
        also: Sequence[str] = (),
    ) -> None:
        command = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        add_target(command)
        for argument in arguments:
            argument(command)
        command.set_defaults(run=runner(action))
        parser.synonyms |= dict.fromkeys((*SYNONYMS.get(name, ()), *also), name)

    return verb


_Argument = Callable[[argparse.ArgumentParser], None]


def argument(*names: str, **options: Any) -> _Argument:
    """An argument of a verb, as argparse has it."""
    return lambda parser: _done(parser.add_argument(*names, **options))


def _done(_: object) -> None:
    pass


OUTPUT: Final = argument("-o", "--output", choices=("table", "json"), default="table")
"""The form in which a verb prints what it has."""


def columns(default: str) -> _Argument:
    """The options of a list: its form and its columns."""

    def add(parser: argparse.ArgumentParser) -> None:
        OUTPUT(parser)
        parser.add_argument(
            "--columns",
            default=Columns(default),
            help="keys of the API, with commas (default: %(default)s)",
        )

    return add


def runner(action: Action) -> Callable[[argparse.Namespace], int]:
    """The function that a command of the parser runs: `action` with a client."""

    def run(parsed: argparse.Namespace) -> int:
        with Client(parsed.url) as client:
            try:
                action(client, parsed)
            except ApiError as error:
                if error.status != 404 or error.message not in _VHOST_MISSING or "vhost" not in parsed:
                    raise
                raise _missing("vhost", parsed.vhost) from error
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


def json_settings(text: str) -> Item:
    """The type of an argument that is a JSON object, or @FILE with one."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot read {text[1:]}: {error.strerror}") from error
    return json_object(text)


def filled(path: str, parsed: argparse.Namespace) -> str:
    words = {name: segment(str(value)) for name, value in vars(parsed).items()}
    return path.format(**words)


def list_of(path: str) -> Action:
    """Prints the list at a path, whose braces are filled with arguments."""

    def action(client: Client, parsed: argparse.Namespace) -> None:
        print_list(client.get(filled(path, parsed)), parsed.columns, parsed.output)

    return action


def show_of(path: str) -> Action:
    """Prints the thing at a path, whose braces are filled with arguments."""

    def action(client: Client, parsed: argparse.Namespace) -> None:
        print_record(of_a_thing("GET", client, path, parsed), parsed.output)

    return action


def of_a_thing(
    method: str,
    client: Client,
    path: str,
    parsed: argparse.Namespace,
    body: object = None,
    **headers: str,
) -> Any:
    """The answer to a request about what is called `parsed.name`. Raises ApiError, which names it."""
    try:
        return client.request(method, filled(path, parsed), body, **headers)
    except ApiError as error:
        if error.status != 404 or error.message not in ("Not Found", "user_not_found"):
            raise
        kind = _KINDS[path.partition("/")[0]]
        raise _missing(kind, parsed.name, parsed.vhost if "{vhost}" in path else "/", method) from error


_VHOST_MISSING = ("Not Found", "vhost_not_found")
_KINDS = {
    "bridges": "bridge",
    "connections": "connection",
    "exchanges": "exchange",
    "permissions": "user",
    "policies": "policy",
    "queues": "queue",
    "shovels": "shovel",
    "users": "user",
    "vhosts": "vhost",
}
"""The first word of a path -> the kind of thing that `parsed.name` is."""


def _missing(kind: str, name: str, vhost: str = "/", method: str = "GET") -> ApiError:
    message, remedy = missing(kind, name, vhost, wanted=method == "PUT")
    return ApiError(message, 404, remedy=remedy)
