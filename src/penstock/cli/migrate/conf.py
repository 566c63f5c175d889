"""`penstock migrate conf`: a rabbitmq.conf, line by line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from penstock.cli.migrate.shared import show, write

__all__ = ["add_conf"]


def add_conf(verbs: Any) -> None:
    """Add the verb."""
    text = "say what becomes of each line of a rabbitmq.conf"
    command = verbs.add_parser("conf", help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("conf", metavar="CONF", type=Path, help="rabbitmq.conf")
    command.add_argument("--write", metavar="FILE", type=Path, help="write a penstock.toml")
    command.add_argument("-o", "--output", choices=("table", "json"), default="table")
    command.set_defaults(run=_conf)


def _conf(parsed: argparse.Namespace) -> int:
    from penstock.migrate.rabbitmq.conf import convert

    report = convert(parsed.conf)
    show(report, parsed.output)
    if parsed.write is not None:
        write(parsed.write, report.toml())
    return 0
