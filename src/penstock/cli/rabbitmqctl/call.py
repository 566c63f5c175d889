"""One call of `penstock rabbitmqctl`: its words, the gateway it asks, and how answers are printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.cli.client import ApiError, Client, segment
from penstock.cli.rabbitmqctl.columns import COLUMNS
from penstock.cli.tables import lookup, tabbed

__all__ = ["USAGE_ERROR", "Call", "Item", "Missing", "Usage", "Verbs", "object_of", "or_missing"]

USAGE_ERROR: Final = 64
"""The exit code of a call whose words are wrong, or name something that is not there."""

Item = dict[str, Any]


class Missing(ApiError):
    """Something is not there, for which rabbitmqctl has another exit code than for a user."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, 404)
        self.code = code


class Usage(Exception):
    """The words of a call are wrong."""


class Call:
    """One verb with its words."""

    def __init__(self, client: Client, parsed: argparse.Namespace) -> None:
        self.client = client
        self.parsed = parsed
        self.words: list[str] = parsed.words
        self.vhost = segment(parsed.vhost)

    def word(self, at: int, default: str = "") -> str:
        return self.words[at] if at < len(self.words) else default

    def path(self, at: int) -> str:
        """A word as a segment of a path."""
        return segment(self.words[at])

    def say(self, text: str) -> None:
        """Messages besides the answer."""
        if not (self.parsed.quiet or self.parsed.silent) and self.parsed.formatter == "table":
            print(text)

    def rows(
        self,
        items: Sequence[Item],
        columns: Sequence[str],
        names: dict[str, str] | None = None,
        *,
        headers: bool = True,
    ) -> None:
        """Print columns of items; `names` says where a column's value is when not under its own name.

        Raises:
            Usage: neither rabbitmqctl's list nor the API has a column of that name.

        """
        names = names or {}
        known = COLUMNS.get(self.parsed.verb)
        if known is not None:
            unknown = [one for one in columns if one not in known and not any(one in item for item in items)]
            if unknown:
                raise Usage(f"Info key(s) {','.join(unknown)} are not supported")
        values = [[lookup(item, names.get(column, column)) for column in columns] for item in items]
        if self.parsed.formatter == "json":
            print(json.dumps([dict(zip(columns, row, strict=True)) for row in values]))
            return
        if headers and not (self.parsed.silent or self.parsed.no_table_headers) and values:
            print("\t".join(columns))
        tabbed(values)


Verbs = dict[str, tuple[int, Callable[[Call], None]]]
"""By name: how many words a verb needs at least, and what it does."""


def or_missing(call: Call, kind: str, action: Callable[[], Any]) -> Any:
    """The result of `action`; a 404 is told in rabbitmqctl's words."""
    try:
        return action()
    except ApiError as error:
        if error.status == 404:
            raise ApiError(f'{kind} "{call.words[0]}" does not exist', 404) from error
        raise


def object_of(text: str) -> Item:
    """A JSON object. Raises Usage."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Usage(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Usage("not a JSON object")
    return value
