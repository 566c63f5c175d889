"""`penstock top`: the gateway at work, anew every two seconds."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.client import ApiError, Client
from penstock.cli.nouns import Item, add_target, runner
from penstock.cli.parsing import Builder, Parser
from penstock.cli.tables import cells, print_rows
from penstock.cli.terminal import live, table, takes_styles

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["COMMANDS"]

_TOP_S: Final = 2.0
_ROWS: Final = 15
_LINES_AROUND: Final = 6
"""Lines of a terminal that have no queue."""
_COLUMNS: Final = ("queue", "vhost", "ready", "unacked", "consumers", "in/s", "out/s")
_ALARMS: Final = {
    "mem_alarm": "MEMORY ALARM: publishers wait",
    "disk_free_alarm": "DISK ALARM: publishers wait",
}


def _add_top(top: Parser) -> None:
    top.epilog = "Ctrl-C ends it. Into a pipe it prints plain text."
    add_target(top)
    top.add_argument("--once", action="store_true", help="print it once and end")
    top.add_argument(
        "--rows", type=int, help=f"queues shown (default: as many as fit, {_ROWS} without a terminal)"
    )
    top.set_defaults(run=runner(_top))


def _top(client: Client, parsed: argparse.Namespace) -> None:
    try:
        if parsed.once or not takes_styles(sys.stdout):
            _print_all(client, parsed)
        else:
            with live() as show:
                while True:
                    show(_page(client, parsed.rows or shutil.get_terminal_size().lines - _LINES_AROUND))
                    time.sleep(_TOP_S)
    except KeyboardInterrupt:
        pass  # the way to end it


def _print_all(client: Client, parsed: argparse.Namespace) -> None:
    while True:
        print("\n".join(_summary(client)), end="\n\n")
        print_rows(_busiest(client, parsed.rows or _ROWS), _COLUMNS, "table")
        if parsed.once:
            return
        print(flush=True)
        time.sleep(_TOP_S)


def _page(client: Client, rows: int) -> RenderableType:
    """One page of the terminal."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(line, style="bold red" if "ALARM" in line else "") for line in _summary(client)]
    lines[0].stylize("bold")
    names = [name.upper() for name in _COLUMNS]
    texts, numbers = cells(_busiest(client, max(rows, 1)), _COLUMNS)
    return Group(*lines, Text(), table(names, texts, numbers))


def _summary(client: Client) -> list[str]:
    """The whole of the gateway in a few lines."""
    overview = client.get("overview")
    totals, counts, stats = overview["queue_totals"], overview["object_totals"], overview["message_stats"]
    lines = [
        f"{overview['product_name']} {overview['product_version']} {overview['node']}   "
        f"{counts['connections']} connections, {counts['consumers']} consumers, {counts['queues']} queues",
        f"in {stats['publish_details']['rate']:.0f}/s, out {stats['deliver_get_details']['rate']:.0f}/s, "
        f"ready {totals['messages_ready']}, unacknowledged {totals['messages_unacknowledged']}",
    ]
    try:
        nodes = client.get("nodes")
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        return lines  # a user without the tag monitoring may not see them
    memory, most = (sum(node[key] for node in nodes) / 2**20 for key in ("mem_used", "mem_limit"))
    free = min(node["disk_free"] for node in nodes) / 2**30
    limit = f" of {most:.0f}" if most else ""
    lines.append(f"memory {memory:.0f}{limit} MiB, disk {free:.1f} GiB free")
    return lines + [text for key, text in _ALARMS.items() if any(node[key] for node in nodes)]


def _busiest(client: Client, rows: int) -> Sequence[Item]:
    """The busiest queues, by `_COLUMNS`."""
    found = sorted(client.get("queues"), key=_work, reverse=True)[:rows]
    return [
        {
            "queue": queue["name"],
            "vhost": queue["vhost"],
            "ready": queue["messages_ready"],
            "unacked": queue["messages_unacknowledged"],
            "consumers": queue["consumers"],
            "in/s": queue["message_stats"]["publish_details"]["rate"],
            "out/s": queue["message_stats"]["deliver_get_details"]["rate"],
        }
        for queue in found
    ]


def _work(queue: Item) -> tuple[float, int]:
    stats = queue["message_stats"]
    return stats["publish_details"]["rate"] + stats["deliver_get_details"]["rate"], queue["messages"]


COMMANDS: Final[dict[str, Builder]] = {"top": _add_top}
