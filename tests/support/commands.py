"""Runs the command `penstock` in the process of the tests: a new interpreter takes 0.2 s of CPU."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import pytest

from penstock.cli import main

__all__ = ["Run", "run_here"]


def run_here(
    *words: str, text: str = "", environment: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Run a command with this standard input and further variables; what a process would leave."""
    typed, out, err = (io.TextIOWrapper(io.BytesIO(data), "utf-8") for data in (text.encode(), b"", b""))
    with patch.dict(os.environ, environment or {}), patch("sys.stdin", typed):
        with redirect_stdout(out), redirect_stderr(err):
            code = _main(words)
    said = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        said.append(stream.read())
    return CompletedProcess(words, code, *said)


def _main(words: tuple[str, ...]) -> int:
    try:
        return main(words)
    except SystemExit as ended:  # argparse, behind its help
        return ended.code if isinstance(ended.code, int) else 1


class Run:
    """A call runs a command, which must end with `code`; the answer is its output, `errors` what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.errors = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        found = _main(words)
        said = self._capsys.readouterr()
        assert found == code, (words, said)
        self.errors = said.err
        return said.out

    def json(self, *words: str) -> Any:
        """The JSON that a command prints with -o json."""
        return json.loads(self(*words, "-o", "json"))
