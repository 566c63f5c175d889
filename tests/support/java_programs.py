"""Programs in Java that the tests run (`tests/e2e/java`), with the jars of Maven Central that they need."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.kafka import fetched
from tests.support.brokers import BrokerMissing

__all__ = ["jars", "start"]

_FOLDER = Path(__file__).parents[1] / "e2e" / "java"


def jars(folder: Path, *artifacts: str) -> Path:
    """A folder with artifacts (group:name:version) and what they need; skips when they cannot be had."""
    try:
        return fetched(folder, artifacts)
    except BrokerMissing as missing:
        pytest.skip(str(missing))


def start(jars: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """The program of one source file, running; its pipes are text."""
    command = ["java", "-Xmx256m", "-cp", f"{jars}/*", str(_FOLDER / f"{program}.java"), *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
