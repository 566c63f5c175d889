"""Every request that is no GET is noted in the audit trail, or is one that was decided to need none."""

from __future__ import annotations

from unittest.mock import MagicMock

from penstock.protocols.http.audit.actions import ACTIONS, NOT_NOTED
from penstock.protocols.http.data.app import DataPlane
from penstock.protocols.http.management.app import add_management
from penstock.protocols.http.server.routes import Routes


def flat(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))


async def test_every_route_that_changes_something_is_decided_about() -> None:
    api, app = MagicMock(), MagicMock()
    api.app.routes, app.routes = Routes(), Routes()
    add_management(api)
    DataPlane(app, *(MagicMock() for _ in range(4))).add(app)
    routes = {*api.app.routes.paths(), *app.routes.paths()}
    changing = {(method, path) for method, path in routes if method != "GET"}
    noted = {(method, flat(path)) for method, path in ACTIONS}
    assert len(changing) > 60, "these are all"
    decided = noted | NOT_NOTED
    assert not changing - decided, "name these in http/audit/actions.py"
    assert not decided - changing, "there are no such routes"
    assert not noted & NOT_NOTED and len(noted) == len(ACTIONS)
