"""Every request that is no GET is noted in the audit trail, or is one that was decided to need none."""

from __future__ import annotations

from penstock.protocols.http.audit.actions import ACTIONS, NOT_NOTED
from tests.support.http_routes import http_routes


def flat(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))


def test_every_route_that_changes_something_is_decided_about() -> None:
    routes = http_routes()
    changing = {(method, path) for method, path in routes if method != "GET"}
    noted = {(method, flat(path)) for method, path in ACTIONS}
    assert len(changing) > 60, "these are all"
    decided = noted | NOT_NOTED
    assert not changing - decided, "name these in http/audit/actions.py"
    assert not decided - changing, "there are no such routes"
    assert not noted & NOT_NOTED and len(noted) == len(ACTIONS)
