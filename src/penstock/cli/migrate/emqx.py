"""`penstock migrate emqx`: users and rules of an EMQX 4, from its export."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from penstock.cli.migrate.shared import RetryingClient, add_wait, show, write
from penstock.cli.running.client import Client
from penstock.cli.running.nouns import add_target

__all__ = ["add_emqx"]


def add_emqx(verbs: Any) -> None:
    """Add the verb."""
    text = "say what becomes of each entry of an export of EMQX 4; with --apply, move its users"
    command = verbs.add_parser("emqx", help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("export", metavar="EXPORT", type=Path, help="the JSON of `emqx_ctl data export`")
    command.add_argument("--write", metavar="FILE", type=Path, help="write an ACL file for mqtt.acl_file")
    command.add_argument("--apply", action="store_true", help="put users into the gateway at --url")
    command.add_argument("--vhost", default="/")
    command.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_wait(command)
    add_target(command)
    command.set_defaults(run=_emqx)


def _emqx(parsed: argparse.Namespace) -> int:
    from penstock.migrate.emqx.export import convert
    from penstock.migrate.users import put_users

    made = convert(parsed.export)
    if not parsed.apply:
        show(made.report, parsed.output)
    if parsed.write is not None:
        write(parsed.write, made.acl)
    if not parsed.apply:
        return 0
    with Client(parsed.url) as client:
        count, kept = put_users(RetryingClient(client, parsed.wait), parsed.vhost, made.users)
    if parsed.output == "json":
        print(json.dumps({"users": count, "kept": kept}, indent=2))
        return 0
    print(f"users {count}")
    for name in kept:
        print(f"penstock: user '{name}' has tags here and stays as it is", file=sys.stderr)
    return 0
