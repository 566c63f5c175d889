"""The tests that the AMQP page names for each feature are there, and each feature that works has one."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "amqp.md").read_text()
SECTION = PAGE[PAGE.index("## Every feature") :]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION[: SECTION.index("\n## ", 1)].splitlines()
    if line.startswith("| ") and not line.startswith("| feature ")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_feature_has_tests_or_is_not_there(row: list[str]) -> None:
    _, here, tests = row
    named = re.findall(r"`([^`]+)`", tests)
    assert bool(named) != (here == "no" or here.startswith("no:"))
    for path in named:
        assert (ROOT / "tests" / path).is_file(), path
