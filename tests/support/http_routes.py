"""All routes of the HTTP front end, as the gateway adds them."""

from __future__ import annotations

from unittest.mock import MagicMock

from penstock.protocols.http.data.app import DataPlane
from penstock.protocols.http.management.app import add_management
from penstock.protocols.http.server.routes import Routes

__all__ = ["http_routes"]


def http_routes() -> list[tuple[str, str]]:
    """(method, path) of each route of the management API and the data plane; names in paths are "{}"."""
    api, app = MagicMock(), MagicMock()
    api.app.routes, app.routes = Routes(), Routes()
    add_management(api)
    DataPlane(app, *(MagicMock() for _ in range(5))).add(app)
    return sorted({*api.app.routes.paths(), *app.routes.paths()})
