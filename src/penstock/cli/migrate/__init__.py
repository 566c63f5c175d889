"""`penstock migrate ...`: move from another broker. Without --apply nothing changes: it says what would."""

from __future__ import annotations

from typing import Final

from penstock.cli.migrate.conf import add_conf
from penstock.cli.migrate.emqx import add_emqx
from penstock.cli.migrate.mosquitto import add_mosquitto
from penstock.cli.migrate.rabbitmq import add_rabbitmq
from penstock.cli.parsing import Builder, Parser

__all__ = ["COMMANDS"]


def _add_migrate(parser: Parser) -> None:
    verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    add_rabbitmq(verbs)
    add_mosquitto(verbs)
    add_emqx(verbs)
    add_conf(verbs)


COMMANDS: Final[dict[str, Builder]] = {"migrate": _add_migrate}
