"""The table of problems is that of the refusals in the code."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.protocols.http.problems import PROBLEMS

HTTP = Path(__file__).parents[4] / "protocols/http"
_REFUSAL = re.compile(r'HttpError\(\s*\d+,\s*"(\w+)"')
_MANAGEMENTS_OWN = {"invalid_pagination_parameters", "page_out_of_range", "not_authorised"}


def test_every_code_that_a_handler_refuses_with_has_a_page() -> None:
    text = "".join(path.read_text() for path in HTTP.rglob("*.py"))
    refused = set(_REFUSAL.findall(text)) - _MANAGEMENTS_OWN
    assert len(refused) > 20
    assert refused <= PROBLEMS.keys()
    assert PROBLEMS.keys() - refused <= {"refused"}, "pages that nothing leads to"
