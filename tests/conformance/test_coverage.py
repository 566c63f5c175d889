"""Every normative statement has a test or a reason, and docs/reference/mqtt.md says so."""

from __future__ import annotations

import pytest

from tests.conformance.coverage import PAGE, VERSIONS, covered, page

each_version = pytest.mark.parametrize("folder", VERSIONS)


@each_version
def test_every_statement_has_a_test_or_a_reason(folder: str) -> None:
    found, _ = covered(folder)
    assert [s.number for s in found.values() if not s.files and not s.reason] == []
    assert [s.number for s in found.values() if s.files and s.reason] == [], "a test and a reason for none"


@each_version
def test_every_conformance_test_names_a_statement(folder: str) -> None:
    _, strangers = covered(folder)
    assert strangers == []


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: make docs"
