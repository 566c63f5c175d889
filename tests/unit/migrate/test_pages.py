"""Each `penstock migrate` line of the pages about moves is one that the command takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from penstock.cli.parsing import parser_of
from tests.docs.pages import commands

PAGE = Path("docs/how-to/move-from-rabbitmq.md")
MOVES = [line for line in commands(PAGE, "penstock") if " migrate rabbitmq " in line]
"""The line of `migrate conf` is a checked one: it is run with the page."""


@pytest.mark.parametrize("line", MOVES)
def test_the_command_takes_a_line_of_the_page(line: str) -> None:
    _, command, *words = shlex.split(line)
    parsed = parser_of(command).parse_args(words)
    assert parsed.source.startswith("http://")


def test_the_page_has_lines() -> None:
    assert len(MOVES) == 5
