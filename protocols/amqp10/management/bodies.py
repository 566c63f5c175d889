"""The bodies of requests, checked field by field, and arguments in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.management.requests import Refused, checked
from penstock.protocols.amqp10.messages.tables import from_field, to_table
from penstock.router.arguments import Arguments

__all__ = ["arguments_shown", "read_body"]


def read_body(body: Any, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a map, with the types of their defaults in `fields`, which count for those it leaves out.

    Raises Refused: it is no map, or has an unknown field, or one of the wrong type or length.
    """
    if not isinstance(body, dict):
        raise Refused(400, f"the body of this request is a map with the fields of the {kind}")
    found = dict(fields)
    for name, value in body.items():
        default = fields.get(name)
        if default is None or not isinstance(value, type(default)):
            raise Refused(400, f"bad {kind} field {name!r}: {value!r}; known are {', '.join(fields)}")
        found[name] = _table(kind, value) if isinstance(value, dict) else value
    return {name: checked(str(value)) if isinstance(value, str) else value for name, value in found.items()}


def _table(kind: str, arguments: dict[Any, Any]) -> Arguments:
    try:
        return to_table(arguments)
    except ValueError:
        raise Refused(400, f"unsupported argument of the {kind}: a name is text of 255 bytes") from None


def arguments_shown(arguments: Arguments) -> dict[str, Any]:
    """Arguments as a map. Integers are ints, which clients compare with theirs, or longs if they must be."""
    return {name: _shown(value) for name, value in arguments.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return v.Int(value) if -(2**31) <= value < 2**31 else int(value)
    if isinstance(value, datetime):
        return v.Timestamp(value.timestamp() * 1000)
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    if isinstance(value, Mapping):
        return arguments_shown(value)
    return from_field(value)
