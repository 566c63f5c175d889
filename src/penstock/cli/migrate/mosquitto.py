"""`penstock migrate mosquitto`: the files and the database of a Mosquitto."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.cli.migrate.shared import RetryingClient, add_wait, listener_of, place, show, write
from penstock.cli.running.client import Client
from penstock.cli.running.nouns import add_target
from penstock.cli.terminal import progress

__all__ = ["add_mosquitto"]


def add_mosquitto(verbs: Any) -> None:
    """Add the verb."""
    text = "say what becomes of each line of mosquitto.conf and its files; with --apply, move"
    command = verbs.add_parser("mosquitto", help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("conf", metavar="CONF", type=Path, help="mosquitto.conf")
    command.add_argument(
        "--write",
        metavar="FILE",
        type=Path,
        help="write a penstock.toml, and an ACL file beside it",
    )
    command.add_argument(
        "--apply",
        action="store_true",
        help="put users, retained messages, sessions and waiting messages into the gateway at --url",
    )
    command.add_argument("--mqtt", metavar="HOST:PORT", help="its MQTT listener (default: the gateway says)")
    command.add_argument("--vhost", default="/")
    command.add_argument(
        "--anonymous", metavar="USER", default="guest", help="the user of clients without a user name (guest)"
    )
    command.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        default=Path("penstock-migrate.json"),
        help="notes how far --apply came; the same command goes on there (default: %(default)s)",
    )
    command.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_wait(command)
    add_target(command)
    command.set_defaults(run=_mosquitto)


def _mosquitto(parsed: argparse.Namespace) -> int:
    from penstock.migrate.mosquitto import apply as applying
    from penstock.migrate.mosquitto import database as databases
    from penstock.migrate.mosquitto.convert import convert
    from penstock.migrate.mosquitto.summary import summarize

    made = convert(parsed.conf)
    database = databases.read(made.database) if made.database is not None else None
    if made.database is not None and database is not None:
        summarize(made.database, database, applying.owner_in(made, parsed.anonymous), made.report)
    acl = Path(f"{parsed.write or 'penstock.toml'}.acl").absolute()
    if made.acl:
        made.report.options["mqtt.acl_file"] = str(acl)
    if not parsed.apply:
        show(made.report, parsed.output)
    if parsed.write is not None:
        write(parsed.write, made.report.toml())
        if made.acl:
            write(acl, made.acl)
    if not parsed.apply:
        return 0
    with Client(parsed.url) as client:
        api = RetryingClient(client, parsed.wait, known=parsed.state.exists())
        target = applying.Target(
            api=api,
            mqtt=place(parsed.mqtt) if parsed.mqtt else listener_of(api, "mqtt", client.address),
            vhost=parsed.vhost,
            anonymous=parsed.anonymous,
            timeout_s=parsed.wait,
        )
        with ExitStack() as stack:
            advance: Callable[[int], Any] | None = None

            def on_progress(done: int, total: int) -> None:
                nonlocal advance
                if advance is None:  # the rate is that of this run
                    left = total - done + 1
                    advance = stack.enter_context(progress(left, "moving", unit="steps"))
                advance(1)

            outcome = applying.apply(made, database, target, parsed.state, on_progress)
    if parsed.output == "json":
        print(json.dumps(asdict(outcome), indent=2))
        return 1 if outcome.refused else 0
    if outcome.resumed_at:
        print(f"went on after step {outcome.resumed_at}")
    print(f"users {outcome.users}, messages {outcome.published}, sessions {outcome.sessions}")
    for name in outcome.kept:
        print(f"penstock: user '{name}' has tags here and stays as it is", file=sys.stderr)
    for line in outcome.refused:
        print(f"penstock: refused: {line}", file=sys.stderr)
    return 1 if outcome.refused else 0
