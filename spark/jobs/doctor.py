"""`penstock spark doctor`: whether the jobs can run here, and the command that brings what is missing."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError
from penstock.extras import install
from penstock.spark.jobs.shared.common import INSTALL, PACKAGES, program
from penstock.spark.session import find_java

__all__ = ["main"]

_JAVA_LEAST: Final = 17
_OPTIONAL: Final = {"pyiceberg": (0, 12)}
"""Needed for some tables only."""

Finding = tuple[bool, str, str]
"""(fine, what was found, the remedy)"""


def _java() -> Finding:
    java = find_java()
    remedy = "apt-get install default-jre-headless, or set JAVA_HOME to Java 17 or newer"
    if java is None:
        return False, "no Java", remedy
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([0-9]+)', said)
    if found is None:
        return False, f"{java} does not tell its version", remedy
    return int(found[1]) >= _JAVA_LEAST, f"Java {found[1]} ({java})", remedy


def _package(name: str, least: tuple[int, int], remedy: str = INSTALL) -> Finding:
    try:
        found = version(name)
    except PackageNotFoundError:
        return False, f"no {name}", remedy
    numbers = tuple(int(part) for part in re.findall(r"[0-9]+", found)[:2])
    return numbers >= least, f"{name} {found}", remedy


def _source() -> Finding:
    found = importlib.util.find_spec("pyspark_penstock")
    if found is None:
        return (
            False,
            'format("penstock") is not found',
            "install penstock into the environment that runs Spark",
        )
    try:
        importlib.import_module("pyspark_penstock")
    except ImportError as error:
        return False, f'format("penstock") cannot be loaded: {error}', INSTALL
    return True, 'format("penstock") is found', ""


def _log(path: Path) -> Finding:
    from penstock.spark.logs.log_view import LogView

    try:
        view = LogView(path)
        view.refresh()
    except (PenstockError, OSError) as error:
        return False, str(error), "name the data folder of a penstock, readable for this user"
    return True, f"{path}: a log with positions {view.first} to {view.end()}, readable", ""


def findings(data: Path | None) -> Iterator[Finding]:
    """The findings, one by one."""
    yield _java()
    for name, least in PACKAGES.items():
        yield _package(name, least)
    for name, least in _OPTIONAL.items():
        fine, found, remedy = _package(name, least, install("iceberg"))
        yield fine or found == f"no {name}", f"{found}{'' if fine else ': no tables in Iceberg'}", remedy
    yield _source()
    if data is not None:
        yield _log(data)


def _add(parser: argparse.ArgumentParser) -> None:
    # Not `data`, which `program` refuses when no log is there: here that is a finding.
    parser.add_argument(
        "--data", dest="folder", type=Path, metavar="DIR", help="look at this data folder, too"
    )


def _run(arguments: argparse.Namespace) -> int:
    bad = 0
    for fine, found, remedy in findings(arguments.folder):
        print(f"{'ok' if fine else 'MISSING':8}{found}")
        if not fine:
            bad += 1
            print(f"{'':8}{remedy}")
    return 1 if bad else 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("doctor", "Say what is missing to run Spark jobs here.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
