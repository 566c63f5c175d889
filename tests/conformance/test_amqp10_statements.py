"""Every normative sentence of AMQP 1.0 parts 2 and 3 (`amqp10/statements.toml`) has a test, or a reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
STATEMENTS = tomllib.loads((Path(__file__).parent / "amqp10" / "statements.toml").read_text())
_SECTION = re.compile(r"[23](\.\d+)+-\d+")
_NAMED = re.compile(r"^(?:async )?def (test_([23](?:_\d+)+)_\w+)\(", re.M)
_BY_SECTION = ("test_part_2.py", "test_part_3.py", "test_resuming.py")
"""Files whose tests begin with the number of a section."""


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_statement_has_a_test_that_is_there_or_a_reason(number: str) -> None:
    statement = STATEMENTS[number]
    assert _SECTION.fullmatch(number)
    assert statement["text"]
    assert set(statement) in ({"text", "test"}, {"text", "reason"})
    if "test" in statement:
        file, _, name = statement["test"].partition("::")
        assert re.search(rf"^(?:async )?def {name}\(", (TESTS / file).read_text(), re.M), statement["test"]


@pytest.mark.parametrize("file", _BY_SECTION)
def test_a_test_that_names_a_section_belongs_to_a_statement(file: str) -> None:
    path = f"unit/protocols/amqp10/{file}"
    known = {one["test"] for one in STATEMENTS.values() if "test" in one}
    sections = {number.rpartition("-")[0].replace(".", "_") for number in STATEMENTS}
    for name, section in _NAMED.findall((TESTS / path).read_text()):
        assert f"{path}::{name}" in known or section in sections, name
