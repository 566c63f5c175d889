"""`penstock definitions ...`: everything that was declared, out and in."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client
from penstock.cli.running.nouns import argument, verbs_of
from penstock.cli.tables import print_rows
from penstock.errors import ConfigError

__all__ = ["COMMANDS"]


def _add_definitions(parser: Parser) -> None:
    definitions = verbs_of(parser)
    definitions(
        "export",
        _export,
        argument("file", metavar="FILE", nargs="?", default="-", help="default: standard output"),
        help="write a definitions.json, as RabbitMQ has it",
    )
    definitions(
        "import",
        _import,
        argument("file", metavar="FILE", help="-: standard input"),
        argument("--dry-run", action="store_true", help="change nothing, and say what would change"),
        argument("-o", "--output", choices=("table", "json"), default="table"),
        help="read one: RabbitMQ's or our own",
    )


def _export(client: Client, parsed: argparse.Namespace) -> None:
    text = json.dumps(client.get("definitions"), indent=2)
    if parsed.file == "-":
        print(text)
        return
    try:
        Path(parsed.file).touch(mode=0o600)  # hashes of passwords are in it
        Path(parsed.file).write_text(text + "\n")
    except OSError as error:
        raise ApiError(f"cannot write {parsed.file}: {error.strerror}", 0) from error


def _import(client: Client, parsed: argparse.Namespace) -> None:
    try:
        text = sys.stdin.read() if parsed.file == "-" else Path(parsed.file).read_text()
        definitions = json.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read it: {error.strerror}", source=parsed.file) from error
    except ValueError as error:  # also bytes that are not UTF-8
        raise ConfigError(f"it is not JSON: {error}", source=parsed.file) from error
    found = client.request("POST", "definitions-dry-run", definitions)
    if not parsed.dry_run:
        client.request("POST", "definitions", definitions)
        if found["unknown"]:
            names = ", ".join(found["unknown"])
            print(f"penstock: left out, because penstock has nothing like it: {names}", file=sys.stderr)
        return
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


COMMANDS: Final[dict[str, Builder]] = {"definitions": _add_definitions}
