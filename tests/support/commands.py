"""Runs the command `penstock` in the process of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli import main

__all__ = ["Run"]


class Run:
    """A call runs a command, which must end with `code`; the answer is its output, `errors` what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.errors = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        try:
            found = main(words)
        except SystemExit as ended:  # argparse, behind its help
            found = ended.code if isinstance(ended.code, int) else 1
        said = self._capsys.readouterr()
        assert found == code, (words, said)
        self.errors = said.err
        return said.out

    def json(self, *words: str) -> Any:
        """The JSON that a command prints with -o json."""
        return json.loads(self(*words, "-o", "json"))
