"""The modules that sending and receiving import: the cost of `import penstock` in a short program.

Names, not times: these are what took long when it was measured, and bench.compare_sdk has the figures.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

OWN = {"asyncio", "typing", "json", "dataclasses", "datetime", "re"}
"""Too much for the bare package, of which Spark's executors and the command line load other parts."""
LATE = {
    "dataclasses",
    "datetime",
    "ipaddress",
    "multiprocessing",
    "penstock.protocols.native.codec.packing",
    "penstock.protocols.properties.properties",
    "penstock.sdk.admin",
    "penstock.sdk.producing.half",
    "penstock.sdk.producing.outbox",
    "penstock.sdk.consuming.retrying",
    "penstock.sdk.tables.table",
    "penstock.sdk.tracing",
    "penstock.sdk.transaction",
    "pydantic",
    "random",
    "urllib.parse",
}
"""Modules that few programs need, or none before they connect; asyncio loads none of them."""


@pytest.mark.parametrize(
    ("program", "late"),
    [
        ("import penstock", OWN | LATE),
        ("import penstock; penstock.connect, penstock.Producer, penstock.Consumer", LATE),
    ],
)
def test_importing_the_client_loads_nothing_that_is_needed_later(program: str, late: set[str]) -> None:
    # Without site, which may load anything; the path is this process's.
    start = f"import sys; sys.path[:] = {sys.path!r}; before = set(sys.modules)"
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{start}; {program}; print(*set(sys.modules) - before)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "penstock" in told
    assert set(told) & late == set()


def test_the_list_names_modules_that_there_are() -> None:
    program = f"import importlib; [importlib.import_module(name) for name in {sorted(OWN | LATE)!r}]"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
