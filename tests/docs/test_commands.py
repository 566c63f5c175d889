"""Every command that pages, docstrings, errors and help name is one that there is, and so are its options."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

from penstock.cli.commands import FOREIGN, MODULES
from penstock.cli.parsing import Parser, parser_of
from tests.docs.pages import PAGES, ROOT

SOURCES = ("src/penstock", "protocols", "router", "subscriptions", "log_core", "spark")
IN_PAGE = re.compile(r"^(?:\$ )?(penstock .*)$|`(penstock [^`]*)`", re.MULTILINE)
IN_SOURCE = re.compile(r"\bpenstock ([a-z][a-z-]*(?: [a-z_-]+)?)")


def commands() -> Iterator[tuple[str, str]]:
    """(place, words behind `penstock`) of every command that a page shows as code."""
    for page in PAGES:
        text = (ROOT / page).read_text().replace("\\\n", " ")
        for found in IN_PAGE.finditer(text):
            yield str(page), re.split(r"[|;>#&]", found[1] or found[2])[0].partition(" ")[2].strip()


def named() -> Iterator[tuple[str, str]]:
    """(place, command and the next word) of every command that a source names."""
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for found in IN_SOURCE.finditer(file.read_text()):
                if found[1].split()[0] in MODULES:
                    yield str(file.relative_to(ROOT)), found[1]


def verbs_of(command: str) -> dict[str, object]:
    """The verbs of a command; empty when it has none."""
    if command in FOREIGN:
        return dict(importlib.import_module(f"penstock.cli.{MODULES[command][0]}").VERBS)
    return dict(parser_of(command).verbs())


def mistake(words: list[str]) -> str:
    """The first word that there is not."""
    command, *rest = words
    if command.startswith("-"):
        return "" if command in ("--help", "--version") else command
    if command not in MODULES:
        return command
    verbs, verb = verbs_of(command), rest[0] if rest else ""
    if verbs and re.fullmatch(r"[a-z_-]+", verb) and verb not in verbs and verb not in ("--help", "help"):
        return verb
    if command in FOREIGN:
        return ""
    parser = verbs.get(verb, parser_of(command)) if verbs else parser_of(command)
    assert isinstance(parser, Parser)
    known = [option for action in parser._actions for option in action.option_strings]
    options = (word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word))
    return next((option for option in options if option not in known), "")


def mistakes(found: list[tuple[str, str]]) -> list[str]:
    """Where there is one, and which."""
    return [
        f"{place}: penstock {words}: {word}" for place, words in found if (word := mistake(words.split()))
    ]


def test_pages_show_commands_that_there_are() -> None:
    found = [(place, words) for place, words in commands() if words]
    assert len(found) > 100
    assert not mistakes(found)


def test_sources_name_commands_that_there_are() -> None:
    found = list(named())
    assert len(found) > 30
    assert not mistakes(found)
