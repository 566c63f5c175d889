"""One call of a verb: its words, the gateway it asks, and how answers are printed."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.cli.rabbitmqctl.columns import COLUMNS
from penstock.cli.rabbitmqctl.formats import print_table
from penstock.cli.running.client import ApiError, Client, segment
from penstock.cli.tables import lookup
from penstock.lazy_dataclass import dataclass

__all__ = [
    "FAILED_CHECK",
    "USAGE_ERROR",
    "Call",
    "Failure",
    "Groups",
    "Item",
    "Usage",
    "Verb",
    "Verbs",
    "clear_parameter",
    "object_of",
    "or_missing",
]

USAGE_ERROR: Final = 64
"""The exit code of a call whose words are wrong, or name something that is not there."""
FAILED_CHECK: Final = 69
"""The exit code of a check that failed."""

Item = dict[str, Any]


class Failure(ApiError):
    """It could not be done, and rabbitmqctl has an exit code of its own for that."""

    def __init__(self, message: str, code: int, *, remedy: str = "") -> None:
        super().__init__(message, 404, remedy=remedy)
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

    def seconds(self, default: float) -> float:
        """The value of --timeout. Raises Usage."""
        text = self.parsed.timeout
        try:
            found = float("inf") if text == "infinity" else float(default if text is None else text)
        except ValueError:
            raise Usage(f"{text!r} is no number of seconds") from None
        return found

    @property
    def is_json(self) -> bool:
        return bool(self.parsed.formatter == "json")

    def say(self, text: str) -> None:
        """Messages besides the answer."""
        if not (self.parsed.quiet or self.parsed.silent) and self.parsed.formatter in (
            "table",
            "pretty_table",
        ):
            print(text)

    def node(self) -> Item:
        """The node that speaks for the gateway: its worker, or the first of its workers."""
        name = self.client.get("overview")["node"]
        node: Item = self.client.get(f"nodes/{segment(name)}")
        return node

    def answer(self, item: Item, text: str) -> None:
        """Print an answer that is no table: as JSON when that was asked for, otherwise as text."""
        print(json.dumps(item) if self.is_json else text)

    def passed(self, text: str) -> None:
        """Tell that a check passed; as there, --silent does not silence that."""
        self.answer({"result": "ok", "message": text}, text)

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
        form = self.parsed.formatter
        if form == "json":
            print(json.dumps([dict(zip(columns, row, strict=True)) for row in values]))
            return
        # As there: --silent leaves the headers of a table out, but not those of CSV.
        headers = headers and not (self.parsed.silent and form == "table")
        print_table(form, columns if headers and not self.parsed.no_table_headers else (), values)


@dataclass(frozen=True, slots=True)
class Verb:
    """The action of a verb, and its help."""

    action: Callable[[Call], None]
    text: str
    """A sentence without its full stop."""
    usage: str = ""
    """Its words as rabbitmqctl writes them: <needed>, [<optional>]."""

    @property
    def least(self) -> int:
        """How many words it needs."""
        return re.sub(r"\[[^\]]*\]", "", self.usage).count("<")


Verbs = dict[str, Verb]
"""By name."""
Groups = dict[str, Verbs]
"""By the title in the help."""


def or_missing(call: Call, kind: str, action: Callable[[], Any]) -> Any:
    """The result of `action`; a 404 is told in rabbitmqctl's words."""
    try:
        return action()
    except ApiError as error:
        if error.status == 404:
            raise ApiError(f'{kind} "{call.words[0]}" does not exist', 404) from error
        raise


def clear_parameter(call: Call, path: str) -> None:
    """Delete what rabbitmqctl calls a parameter. Raises Failure: it is not there."""
    try:
        call.client.request("DELETE", path)
    except ApiError as error:
        if error.status != 404:
            raise
        raise Failure("Parameter does not exist", 69) from error


def object_of(text: str) -> Item:
    """A JSON object. Raises Usage."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Usage(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Usage("not a JSON object")
    return value
