"""Words that the OpenAPI document (`openapi`) is put together of: parameters and operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.protocols.http.data.openapi.schemas import TEXT, Json, answer, object_, ref
from penstock.protocols.http.shared.pages import MAX

__all__ = ["HANDLES", "listed", "operation", "query"]

HANDLES: Final[Json] = {
    "type": "array",
    "maxItems": 10000,
    "items": {"type": "string"},
    "description": "As a pull gave them.",
}


def query(name: str, schema: Json, text: str, *, required: bool = False) -> Json:
    query = {"name": name, "in": "query", "schema": schema, "description": text}
    return {**query, "required": True} if required else query


def operation(
    summary: str,
    answers: Mapping[int, Json | None],
    *,
    body: Json | None = None,
    kinds: dict[str, Json] | None = None,
    optional: bool = False,
    parameters: list[Json] | None = None,
    media: str = "application/json",
) -> Json:
    """`answers`: the schema of the body for each status; None: there is none."""
    problem = {"application/problem+json": {"schema": ref("Problem")}}
    responses: Json = {"default": {"description": "It was refused.", "content": problem}}
    for status, schema in answers.items():
        content = {media: {"schema": answer(schema)}} if schema is not None else None
        responses[str(status)] = {"description": "Done.", **({"content": content} if content else {})}
    operation: Json = {"summary": summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None or kinds is not None:
        content = {name: {"schema": schema} for name, schema in (kinds or {}).items()}
        if body is not None:
            content["application/json"] = {"schema": body}
        operation["requestBody"] = {"required": not optional, "content": content}
    return operation


def listed(summary: str, name: str, item: Json, *parameters: Json) -> Json:
    """A list that is read page by page."""
    page = object_({name: {"type": "array", "items": item}, "next_page_token": TEXT}, name)
    paging = [
        query("max", MAX.schema(), "So many at most."),
        query("page_token", {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"}, "As the page before gave it."),
    ]
    return operation(summary, {200: page}, parameters=[*paging, *parameters])
