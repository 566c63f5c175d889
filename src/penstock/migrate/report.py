"""The fate of each line of another broker's files, and the options of penstock that come of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from penstock.config.kinds import inline_tables
from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass

__all__ = ["Entry", "Fate", "MigrationError", "Place", "Report", "Value"]

Value = str | bool | int | float | list[str] | list[dict[str, Any]]
"""The value of an option."""

Fate = Literal["moved", "same", "left out", "unknown", "wrong"]
"""moved     it has become an option, a user, a message of penstock
same      penstock does this anyway
left out  penstock has nothing like it
unknown   nobody knows the setting
wrong     its value cannot be read
"""


class MigrationError(PenstockError):
    """A file or a server cannot be read, or the target refused something."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int
    """From 1; 0 = the file as a whole."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Entry:
    """The fate of one line."""

    place: Place
    text: str
    """The line, without secrets."""
    fate: Fate
    note: str
    """The option that it has become, or the reason."""


@dataclass(slots=True)
class Report:
    """The fates of all lines, in their order, and the options."""

    entries: list[Entry] = field(default_factory=list)
    options: dict[str, Value] = field(default_factory=dict)
    """By `SECTION.KEY`."""

    def add(self, place: Place, text: str, fate: Fate, note: str) -> None:
        """Note the fate of a line."""
        self.entries.append(Entry(place, text, fate, note))

    def move(self, place: Place, text: str, options: Mapping[str, Value], note: str = "") -> None:
        """A line becomes options. One that another line has set otherwise stays as it is, and is said."""
        taken = [key for key, value in options.items() if self.options.get(key, value) != value]
        if taken:
            kept = ", ".join(f"{key} = {_toml(self.options[key])}" for key in taken)
            self.add(place, text, "left out", f"another line has set {kept}, and penstock has one value")
            return
        self.options.update(options)
        said = ", ".join(f"{key} = {_toml(value)}" for key, value in options.items())
        self.add(place, text, "moved", f"{said}; {note}" if note else said)

    def lines(self) -> Iterable[str]:
        """One line each for people."""
        for entry in self.entries:
            yield f"{entry.place}: {entry.text}"
            yield f"    {entry.fate}: {entry.note}"

    def shown(self) -> dict[str, Value]:
        """The options without passwords."""
        return {name: _masked(value) for name, value in self.options.items()}

    def toml(self, *, secrets: bool = True) -> str:
        """The options as a configuration file of penstock; without `secrets` it is for people."""
        options = self.options if secrets else self.shown()
        lines: list[str] = []
        section = ""
        for name in sorted(options, key=lambda name: (name.partition(".")[0], name)):
            of, _, key = name.partition(".")
            if of != section:
                section = of
                lines += ["", f"[{of}]"] if lines else [f"[{of}]"]
            lines.append(f"{key} = {_toml(options[name])}")
        return "\n".join(lines) + "\n"


def _masked(value: Value) -> Value:
    if not isinstance(value, list):
        return value
    masked: Any = [
        {key: "********" if key.endswith("password") else one for key, one in item.items()}
        if isinstance(item, dict)
        else item
        for item in value
    ]
    return masked  # type: ignore[no-any-return]


_ESCAPES: Final = {"\x7f": "\\u007f"}
"""The only character that JSON writes as it is, and that TOML does not take."""


def _toml(value: Value) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return inline_tables([one for one in value if isinstance(one, dict)])
    # Texts, numbers, booleans and lists of texts are written alike in JSON and TOML.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(_ESCAPES.get(character, character) for character in text)
