"""The parsers of the commands, each made from its module when it is asked for."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.cli.commands import MODULES

__all__ = ["Builder", "Parser", "parser_of"]

Builder = Callable[[argparse.ArgumentParser], None]
"""Gives the parser of a command its arguments, and sets `run`: parsed -> exit code. A module of commands has
`COMMANDS`: name -> builder."""


class Parser(argparse.ArgumentParser):
    """An interval such as "-1h" is a value, as a negative number is, and no unknown option."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._negative_number_matcher = re.compile(r"-[0-9]+(\.[0-9]+|[A-Za-z])?$")


def parser_of(name: str) -> Parser:
    """The parser of a command."""
    module, text = MODULES[name]
    parser = Parser(prog=f"penstock {name}", description=f"{text[0].upper()}{text[1:]}.")
    build: Builder = import_module(f"penstock.cli.{module}").COMMANDS[name]
    build(parser)
    return parser
