"""Output of commands: tables for people, JSON for programs, and rabbitmqctl's lines with tabs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.cli.terminal import fits, has_width, show_table
from penstock.errors import ConfigError

__all__ = ["Columns", "cells", "erlang", "lookup", "print_list", "print_record", "print_rows", "tabbed"]

Item = Mapping[str, Any]


def lookup(item: Item, column: str) -> Any:
    """The value of a column; dots go into inner objects. None when it is not there."""
    value: Any = item
    for name in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def print_rows(items: Sequence[Item], columns: Sequence[str], form: str) -> None:
    """Print the columns of each item as a table, or as a JSON list of objects."""
    if form == "json":
        print(json.dumps([{name: lookup(item, name) for name in columns} for item in items], indent=2))
        return
    rows, numbers = cells(items, columns)
    names = [name.upper() for name in columns]
    widths = [max(len(name), *(len(row[at]) for row in rows), 0) for at, name in enumerate(columns)]
    if has_width(sys.stdout) and fits(widths):
        show_table(names, rows, numbers)
        return
    for row in (names, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_record(item: Item, form: str) -> None:
    """Print all that a thing has: a row for each value, and a table for each list of objects; or JSON.

    The key of a value in an inner object has the keys of the objects in front, with dots between. The name of
    the thing comes first.
    """
    if form == "json":
        print(json.dumps(item, indent=2))
        return
    values: dict[str, Any] = {}
    tables: dict[str, list[Item]] = {}
    named = {"name": item["name"]} if "name" in item else {}
    _flatten({**named, **item}, "", values, tables)
    print_rows([{"key": name, "value": value} for name, value in values.items()], ("key", "value"), form)
    for name, items in tables.items():
        print(f"\n{name}:")
        print_rows(items, list(dict.fromkeys(key for one in items for key in one)), form)


def _flatten(item: Item, above: str, values: dict[str, Any], tables: dict[str, list[Item]]) -> None:
    for key, value in item.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            _flatten(value, f"{name}.", values, tables)
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            tables[name] = value
        else:
            values[name] = value


def cells(items: Sequence[Item], columns: Sequence[str]) -> tuple[list[list[str]], list[bool]]:
    """The texts of the columns of each item, and for each column whether it has numbers."""
    values = [[lookup(item, name) for name in columns] for item in items]
    numbers = [_has_numbers([row[at] for row in values]) for at in range(len(columns))]
    return [[_cell(value) for value in row] for row in values], numbers


def _has_numbers(values: Sequence[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in there
    )


class Columns(str):
    """Names of columns with commas between, as a command has them when nobody asks for others."""


def print_list(items: Sequence[Item], columns: str, form: str) -> None:
    """Print the columns named in `columns`; those that somebody asked for must be there.

    Raises:
        ConfigError: no item has such a column.

    """
    names = columns.split(",")
    if items and not isinstance(columns, Columns):
        for name in names:
            if not any(_has(item, name) for item in items):
                known = ", ".join(sorted({key for item in items for key in item}))
                raise ConfigError(f"there is no column '{name}'; there are {known}", source="--columns")
    print_rows(items, names, form)


def _has(item: Item, column: str) -> bool:
    name, dot, rest = column.partition(".")
    if name not in item:
        return False
    inner = item[name]
    # An empty value may be an object that has nothing in it at the moment.
    return not dot or not inner or (isinstance(inner, Mapping) and _has(inner, rest))


def _cell(value: Any) -> str:
    match value:
        case None:
            text = "-"
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:.1f}"
        case [*texts] if texts and all(isinstance(one, str) for one in texts):
            text = ", ".join(texts)
        case dict() if value:
            text = ", ".join(f"{name}={_cell(inner)}" for name, inner in value.items())
        case dict() | list():
            text = json.dumps(value, separators=(",", ":")) if value else "-"
        case _:
            text = str(value)
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def erlang(value: Any) -> str:
    """A value as rabbitmqctl prints it: tables and lists as Erlang terms."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case dict():
            return f"[{','.join(f'{{{json.dumps(k)},{_inner(v)}}}' for k, v in value.items())}]"
        case list():
            return f"[{', '.join(erlang(item) for item in value)}]"
    return str(value)


def _inner(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else erlang(value)


def tabbed(rows: Iterable[Iterable[Any]]) -> None:
    """Print rows with tabs between their cells."""
    for row in rows:
        print("\t".join(erlang(cell).translate(_ESCAPES) for cell in row))


_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
