"""Fields of JSON bodies, checked: the mistake is named, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.protocols.http.server.messages import HttpError, Request, parsed
from penstock.protocols.http.server.numbers import whole

__all__ = ["Whole", "check_fields", "destination", "number_in", "number_of", "object_of", "optional_object"]


class Whole(NamedTuple):
    """The bounds of a whole number. Handlers check by it, and the OpenAPI document has it (`schema`)."""

    default: int | None
    """None: it has none."""
    least: int
    most: int

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        schema: dict[str, Any] = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return schema if self.default is None else {**schema, "default": self.default}


def object_of(body: Any) -> dict[str, Any]:
    """A body that is an object. Raises HttpError 400."""
    if not isinstance(body, dict):
        raise HttpError(400, "malformed", "the body is a JSON object")
    return body


async def optional_object(request: Request) -> dict[str, Any]:
    """The body as an object; without a body an empty one. Raises HttpError 400."""
    body = await request.body()
    return object_of(parsed(body)) if body else {}


def check_fields(body: dict[str, Any], known: Iterable[str]) -> None:
    """That no other fields are there than those `known`. Raises HttpError 400."""
    known = tuple(known)
    if unknown := sorted(set(body) - set(known)):
        raise HttpError(
            400, "bad_field", f"{unknown[0]}: there is no such field; there are {', '.join(known) or 'none'}"
        )


def destination(item: dict[str, Any], where: str = "") -> tuple[str, str | None]:
    """Take out where a message goes: an exchange, "" for the default one, and the queue or stream it names.

    Raises HttpError 400; `where` is what it calls the message.
    """
    named = {name: item.pop(name) for name in ("exchange", "queue", "stream") if name in item}
    if len(named) != 1 or not isinstance(value := next(iter(named.values())), str):
        raise HttpError(
            400,
            "bad_field",
            f"{where + ': ' if where else ''}one of exchange, queue and stream is needed, as text",
        )
    if "exchange" in named:
        return "" if value == "amq.default" else value, None
    return "", value


def number_of(body: dict[str, Any], name: str, bounds: Whole) -> int:
    """A whole number of a body. Raises HttpError 400."""
    default, least, most = bounds
    value = whole(body.get(name, default))
    if value is None or not least <= value <= most:
        raise HttpError(400, "bad_field", f"{name} is a whole number from {least} to {most}")
    return value


def number_in(request: Request, name: str, bounds: Whole) -> int:
    """The same, of the query."""
    default, least, most = bounds
    text = request.parameter(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise HttpError(400, "bad_field", f"{name} is a whole number from {least} to {most}")
    return int(text)
