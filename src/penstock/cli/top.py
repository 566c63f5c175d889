"""`penstock top`: the gateway at work, anew every two seconds."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from penstock.cli.client import Client
from penstock.cli.nouns import Item, add_target, runner
from penstock.cli.parsing import Builder, Parser
from penstock.cli.tables import print_rows

__all__ = ["COMMANDS"]

_TOP_S: Final = 2.0


def _add_top(top: Parser) -> None:
    add_target(top)
    top.add_argument("--once", action="store_true", help="print it once and end")
    top.add_argument("--rows", type=int, default=15, help="queues shown (default: %(default)s)")
    top.set_defaults(run=runner(_top))


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


COMMANDS: Final[dict[str, Builder]] = {"top": _add_top}
