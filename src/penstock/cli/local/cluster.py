"""`penstock cluster ...`: the nodes over one log that Kafka keeps. It asks Kafka by the configuration."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.sources import add_sources, loaded
from penstock.cli.tables import print_rows

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.log_core.replication.kafka import KafkaJournal

__all__ = ["COMMANDS"]

_COLUMNS: Final = ("node", "role", "lag_entries", "lag_bytes", "lag_s", "seen_s", "offset", "claim")
_WAIT_S: Final = 60.0


def _add_cluster(cluster: Parser) -> None:
    cluster.description = (
        "The nodes over one log that Kafka keeps. Kafka is asked, as the configuration says; the nodes need "
        "not be reached."
    )
    verbs = cluster.add_subparsers(title="what to do", metavar="WHAT", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace, Config], int], text: str) -> Any:
        parser = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        add_sources(parser)
        parser.set_defaults(run=lambda parsed: run(parsed, loaded(parsed).config))
        return parser

    shown = verb("status", _status, "list the nodes, their roles, and how far each is behind")
    shown.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = verb("handover", _handover, "have a standby take over; clients reconnect")
    given.add_argument("--to", metavar="NODE", default="", help="the standby; default: any")
    made = verb("rebuild", _rebuild, "have a standby make its folder anew from Kafka")
    made.add_argument("node", metavar="NODE", nargs="?", default="", help="default: cluster.node")


@contextmanager
def _journal(config: Config) -> Iterator[KafkaJournal]:
    from penstock.cluster.settings import journal_options
    from penstock.log_core.replication.kafka import KafkaJournal

    journal = KafkaJournal(journal_options(config))
    try:
        yield journal
    finally:
        journal.close()


def _status(parsed: argparse.Namespace, config: Config) -> int:
    from penstock.cluster.control import status

    with _journal(config) as journal:
        found = status(journal)
    fields = found.fields()
    if parsed.output == "json":
        print(json.dumps(fields, indent=2))
    else:
        print(f"topic {found.topic}: entries {found.first} to {found.end}")
        print_rows(fields["nodes"], _COLUMNS, "text")
    return 0 if found.owner is not None else 1


def _handover(parsed: argparse.Namespace, config: Config) -> int:
    from penstock.cluster.control import HANDOVER, ask, wait_for_owner

    with _journal(config) as journal:
        before = ask(journal, HANDOVER, parsed.to).owner
        assert before is not None
        owner = wait_for_owner(journal, before.claim, _WAIT_S)
    print(f"{owner.node} is the owner, before it was {before.node}")
    return 0


def _rebuild(parsed: argparse.Namespace, config: Config) -> int:
    from penstock.cluster.control import REBUILD, ask
    from penstock.cluster.settings import node_name

    node = parsed.node or node_name(config)
    with _journal(config) as journal:
        ask(journal, REBUILD, node)
    print(f"{node} makes its folder anew; `penstock cluster status` shows how far it is")
    return 0


COMMANDS: Final[dict[str, Builder]] = {"cluster": _add_cluster}
