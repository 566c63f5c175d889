"""Programs in Java that the tests run (`tests/e2e/java`), with the jars of Maven Central that they need."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

import pytest

from bench.kafka import fetched
from tests.support.brokers import ROOT, BrokerMissing

__all__ = ["Program", "jars"]

_FOLDER = ROOT / "tests" / "e2e" / "java"


def jars(artifact: str) -> Path:
    """A folder with an artifact (group:name:version) and what it needs; skips when they cannot be had."""
    try:
        return fetched(ROOT / "build" / "jars" / artifact.split(":")[1], (artifact,))
    except BrokerMissing as missing:
        pytest.skip(str(missing))


class Program:
    """The program of one source file, which answers each line of its input with a line."""

    def __init__(self, jars: Path, name: str) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile("w+")
        # Short programs: the time that the second compiler takes does not come back.
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        self._process = subprocess.Popen(
            [*command, str(_FOLDER / f"{name}.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def answer(self, line: str) -> str:
        """The answer to a line; an error has with it all that the program wrote to standard error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().rstrip("\n")
        if said and not said.startswith("failed"):
            return said
        self._errors.seek(0)
        return f"{said}\n{self._errors.read()}"

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
