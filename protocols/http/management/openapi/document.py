"""The document, made of the routes that there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock import __version__
from penstock.protocols.http.management.openapi.answers import ANSWERS, HEALTH, LISTS, SHAPES
from penstock.protocols.http.management.openapi.bodies import bodies
from penstock.protocols.http.management.openapi.parameters import in_path, in_query
from penstock.protocols.http.shared.shapes import Named, Shape, schema_of

__all__ = ["document"]

Json = dict[str, Any]

_COLUMNS: Final = "With `columns=a,b.c` only these fields of each, which this document does not show."


def document(routes: Iterable[tuple[str, str]]) -> Json:
    """The whole document, of the routes (method, path) of the API."""
    paths: dict[str, Json] = {}
    taken = bodies()
    for method, path in routes:
        if path.startswith("/api/"):
            operation: Json = {"responses": _responses(method, path)}
            if parameters := in_query(method, path):
                operation["parameters"] = parameters
            if (method, path) in taken:
                operation["requestBody"] = taken[method, path]
            item = paths.setdefault(path, {"parameters": names} if (names := in_path(path)) else {})
            item[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock management API",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "RabbitMQ's management API; see docs/reference/management.md.",
        },
        "security": [{"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {name: schema_of(shape) for name, shape in SHAPES.items()},
        },
    }


def _responses(method: str, path: str) -> Json:
    """The answers of a route, by status."""
    refused = {
        "4XX": _json("It was refused.", Named("Error")),
        "503": _json("The log has failed, or another worker did not answer.", Named("Error")),
    }
    if method == "GET" and path.startswith(HEALTH):
        # An unknown vhost or node is an error; a check that finds something is not.
        found = {"200": _json("It is well.", Named("Healthy")), "503": _json("It is not.", _UNWELL)}
        return {**found, "4XX": refused["4XX"]}
    if method == "GET" and path in LISTS:
        return {
            "200": _json(_COLUMNS, _listed(LISTS[path])),
            "304": {"description": "The client has it (If-None-Match)."},
            **refused,
        }
    if (method, path) in ANSWERS:
        return {"200": _json("As it is.", ANSWERS[method, path]), **refused}
    if method == "PUT" and path not in _NEVER_NEW:
        return {"201": {"description": "It is new."}, "204": {"description": "It was there."}, **refused}
    if method == "POST" and path.startswith("/api/bindings/"):
        return {"201": {"description": "It is bound; Location has its path."}, **refused}
    return {"204": {"description": "Done."}, **refused}


_NEVER_NEW: Final = (
    "/api/cluster-name",
    "/api/feature-flags/{name}/enable",
    "/api/user-limits/{user}/{limit}",
    "/api/vhost-limits/{vhost}/{limit}",
)
"""Paths at which a PUT does not say whether it is new."""
_UNWELL: Final = (Named("Unhealthy"), Named("Error"))


def _listed(shape: Shape) -> Shape:
    page = {
        "items": [shape],
        **dict.fromkeys(
            ("page", "page_count", "page_size", "item_count", "filtered_count", "total_count"), int
        ),
    }
    return ([shape], page)


def _json(description: str, shape: Shape) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema_of(shape)}}}
