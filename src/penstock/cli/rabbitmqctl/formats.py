"""The formats of rabbitmqctl's tables: lines with tabs, CSV, and frames for people."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Any, Final

from penstock.cli.tables import erlang, tabbed

__all__ = ["FORMATS", "print_table"]

FORMATS: Final = ("table", "csv", "pretty_table", "json", "tsv")


def print_table(form: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under their headers, which may be left out (empty). Of no rows nothing is printed."""
    if not rows:
        return
    if form == "csv":
        # Every cell is quoted, as there.
        writer = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([headers] if headers else [])
        writer.writerows([erlang(cell) for cell in row] for row in rows)
    elif form == "pretty_table":
        _print_frames(headers, [[_one_line(cell) for cell in row] for row in rows])
    else:
        if headers:
            print("\t".join(headers))
        tabbed(rows)


def _one_line(cell: Any) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in erlang(cell))


def _print_frames(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [*([headers] if headers else []), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    print(rule("┌", "┬", "┐"))
    for at, line in enumerate(lines):
        if at:
            print(rule("├", "┼", "┤"))
        print("│" + "│".join(f" {cell:<{width}} " for cell, width in zip(line, widths, strict=True)) + "│")
    print(rule("└", "┴", "┘"))
