"""`penstock top`: the gateway at work, and its links to other brokers, anew every two seconds."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client
from penstock.cli.running.nouns import Item, add_target, runner
from penstock.cli.tables import cells, print_rows
from penstock.cli.terminal import live, table, takes_styles, until_interrupted

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["COMMANDS"]

_TOP_S: Final = 2.0
_ROWS: Final = 15
_LINES_AROUND: Final = 6
"""Lines of a terminal that have no queue."""
_COLUMNS: Final = ("queue", "vhost", "ready", "unacked", "consumers", "in/s", "out/s")
_LINKS: Final = ("link", "kind", "vhost", "state", "lag", "forwarded", "faults", "why")
_LINKS_MOST: Final = 8
"""Links shown, those that are down first."""
_KINDS: Final = {
    "shovels": ("shovel", "state", "reason"),
    "federation-links": ("federation", "status", "error"),
    "bridges": ("bridge", "state", "reason"),
}
"""By the path of a list of links: their kind, and the keys of their state and of why they do not run."""
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
    with until_interrupted() as goes_on:
        if parsed.once or not takes_styles(sys.stdout):
            _print_all(client, parsed, goes_on)
            return
        with live() as show:
            while goes_on():
                show(_page(client, parsed.rows or shutil.get_terminal_size().lines - _LINES_AROUND))
                time.sleep(_TOP_S)


def _print_all(client: Client, parsed: argparse.Namespace, goes_on: Callable[[], bool]) -> None:
    while goes_on():
        print("\n".join(_summary(client)), end="\n\n")
        print_rows(_busiest(client, parsed.rows or _ROWS), _COLUMNS, "table")
        if links := _links(client):
            print()
            print_rows(links, _LINKS, "table")
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
    links = _links(client)
    if links:
        rows -= len(links) + 2
    parts: list[RenderableType] = [*lines, Text(), _table(_busiest(client, max(rows, 1)), _COLUMNS)]
    if links:
        parts += [Text(), _table(links, _LINKS)]
    return Group(*parts)


def _table(rows: Sequence[Item], columns: Sequence[str]) -> RenderableType:
    texts, numbers = cells(rows, columns)
    return table([name.upper() for name in columns], texts, numbers)


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


def _links(client: Client) -> Sequence[Item]:
    """Links to other brokers, by `_LINKS`; those that are down, and that moved most, first."""
    found: list[Item] = []
    for path, (kind, state, why) in _KINDS.items():
        try:
            links = client.get(path)
        except ApiError as error:
            if error.status not in (401, 403):
                raise
            return []  # a user without the tag monitoring may not see them
        for one in links:
            name = one.get("name") or f"{one['type']} {one[one['type']]} from {one['upstream']}"
            shown = {"link": name, "kind": kind, "vhost": one["vhost"], "state": one[state]}
            shown |= {"lag": one["messages_ready"], "forwarded": one["forwarded"], "faults": one["faults"]}
            found.append({**shown, "why": one.get(why)})
    found.sort(key=lambda one: (one["state"] == "running", -one["forwarded"]))
    return found[:_LINKS_MOST]


def _work(queue: Item) -> tuple[float, int]:
    stats = queue["message_stats"]
    return stats["publish_details"]["rate"] + stats["deliver_get_details"]["rate"], queue["messages"]


COMMANDS: Final[dict[str, Builder]] = {"top": _add_top}
