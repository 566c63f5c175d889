"""Rules: from the value of a setting elsewhere to options of penstock, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.migrate.report import Fate, Place, Report, Value

__all__ = [
    "Outcome",
    "Rule",
    "apply_rule",
    "choose",
    "count",
    "flag",
    "left",
    "number",
    "path",
    "same",
    "switch",
]

Outcome = tuple[Fate, Mapping[str, Value], str]
"""The fate, the options, and a note."""
Rule = Callable[[str], Outcome]
"""From the value to the outcome. Raises ValueError: the value is none."""


def apply_rule(report: Report, place: Place, text: str, value: str, rule: Rule) -> None:
    """Note the outcome of a rule, and set its options."""
    try:
        fate, options, note = rule(value)
    except ValueError as error:
        report.add(place, text, "wrong", str(error))
        return
    if options:
        report.move(place, text, options, note)
    else:
        report.add(place, text, fate, note)


def flag(value: str) -> bool:
    """A value that is true or false. Raises ValueError."""
    if value in ("true", "1"):
        return True
    if value in ("false", "0"):
        return False
    raise ValueError("it is true or false")


def number(value: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number. Raises ValueError."""
    try:
        found = int(value)
    except ValueError:
        raise ValueError("it is a number") from None
    if not least <= found <= most:
        raise ValueError(f"it is a number from {least} to {most}")
    return found


def same(note: str) -> Rule:
    """Penstock does this anyway."""
    return lambda _: ("same", {}, note)


def left(note: str) -> Rule:
    """Penstock has nothing like it."""
    return lambda _: ("left out", {}, note)


def choose(wanted: bool, as_wanted: str, otherwise: str) -> Rule:
    """A flag without an option: penstock does as it says when it is `wanted`."""
    return lambda value: ("same", {}, as_wanted) if flag(value) == wanted else ("left out", {}, otherwise)


def count(key: str, least: int, most: int, *, unlimited: int | None = None) -> Rule:
    """A number that becomes an option; 0, no limit at the source, is `unlimited` there."""

    def rule(value: str) -> Outcome:
        found = number(value)
        if found == 0 and unlimited is not None:
            return "moved", {key: unlimited}, ""
        fitting = min(max(found, least), most)
        return "moved", {key: fitting}, "" if fitting == found else f"penstock takes {least} to {most}"

    return rule


def path(key: str) -> Rule:
    """A text that becomes an option as it is."""
    return lambda value: ("moved", {key: value}, "")


def switch(key: str) -> Rule:
    """A flag that becomes an option."""
    return lambda value: ("moved", {key: flag(value)}, "")
