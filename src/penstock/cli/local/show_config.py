"""`penstock config ...`: the options, and their values in force."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.sources import add_sources, loaded

__all__ = ["COMMANDS"]


def _add_config(config: Parser) -> None:
    topics = config.add_subparsers(title="what to show", metavar="WHAT", required=True)
    show = topics.add_parser("show", help="the values in force, as a TOML file with secrets masked")
    add_sources(show)
    show.add_argument("--origin", action="store_true", help="say where each value came from")
    show.set_defaults(run=_show)
    topics.add_parser("schema", help="a JSON schema of the TOML file").set_defaults(run=_schema)
    topics.add_parser("reference", help="the reference page, as Markdown").set_defaults(run=_reference)


def _show(parsed: argparse.Namespace) -> int:
    from penstock.config import render

    print(render.show(loaded(parsed), origin=parsed.origin), end="")
    return 0


def _schema(parsed: argparse.Namespace) -> int:
    from penstock.config import render

    print(render.schema(), end="")
    return 0


def _reference(parsed: argparse.Namespace) -> int:
    from penstock.config import render

    print(render.reference(), end="")
    return 0


COMMANDS: Final[dict[str, Builder]] = {"config": _add_config}
