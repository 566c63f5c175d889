"""Docstrings, comments and names of tests have no sentence that begins with "What" or "Who" as a noun."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.docs.readability import ROOT

FOLDERS = [
    "bench",
    "demo",
    "log_core",
    "protocols",
    "router",
    "spark",
    "src/penstock",
    "subscriptions",
    "tests",
]
KINDS = (".py", ".pyi", ".pyx", ".pxd", ".js")
NOUN = "(what|who|whatever|whoever)"
RIDDLE = re.compile(
    rf"""^\s*(\"""|# ?|/?\*+ )?{NOUN.title()} |[.:;] {NOUN.title()} (?![^.]*\?)|"""
    rf"""^\s*(async )?def test_{NOUN}_"""
)


def riddles(text: str) -> list[int]:
    """Numbers of the lines with such a sentence; questions are allowed."""
    return [number for number, line in enumerate(text.splitlines(), 1) if RIDDLE.search(line)]


def sources() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and path.is_file() and not {"node_modules", "vendor"} & {*path.parts}:
                yield str(path.relative_to(ROOT))


def test_texts_begin_with_their_subject() -> None:
    found = [f"{name}:{line}" for name in sources() for line in riddles((ROOT / name).read_text())]
    assert not found, "name the thing that the sentence is about: " + ", ".join(found)


def test_a_text_that_begins_with_a_riddle_is_found() -> None:
    text = '"""What it is.\n\nWho asks.\n# What\nThe thing that...\n    # Whatever comes.\n"""'
    assert riddles(text) == [1, 3, 6]


def test_a_riddle_later_in_a_line_is_found() -> None:
    text = "A thing. {0} it is.\n    user: {0} asks.\nA thing. {0} is it?\n"
    assert riddles(text.format("What")) == riddles(text.format("Who")) == [1, 2]


def test_the_name_of_a_test_is_a_text() -> None:
    assert riddles("def test_a_thing():\n    async def test_who_asks():\n") == [2]
