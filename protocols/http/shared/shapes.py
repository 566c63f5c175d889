"""Shapes of JSON, written in Python, as JSON Schema.

str, int, float, bool, None     a text, a whole number, a number, true or false, null
dict, object                    any object, anything
[shape]                         a list of these
(shape, shape)                  one of them
{"a": shape, "b?": shape}       an object with these keys and no others; b may be missing
{str: shape}                    an object with any keys, whose values have this shape
Choice("a", "b")                one of these texts
Named("Queue")                  the shape of this name
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Choice", "Named", "Shape", "schema_of"]

Shape = Any
_TYPES: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    dict: {"type": "object"},
    object: {},
}


class Choice:
    """See the module."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts


class Named:
    """See the module."""

    def __init__(self, name: str) -> None:
        self.name = name


def schema_of(shape: Shape) -> dict[str, Any]:
    """The JSON Schema of a shape."""
    match shape:
        case Choice():
            return {"enum": list(shape.texts)}
        case Named():
            return {"$ref": f"#/components/schemas/{shape.name}"}
        case [item]:
            return {"type": "array", "items": schema_of(item)} if isinstance(shape, list) else schema_of(item)
        case list():
            return {"type": "array", "maxItems": 0}
        case tuple():
            return {"anyOf": [schema_of(one) for one in shape]}
        case dict() if list(shape) == [str]:
            return {"type": "object", "additionalProperties": schema_of(shape[str])}
        case dict():
            required = [name for name in shape if not name.endswith("?")]
            schema: dict[str, Any] = {
                "type": "object",
                "properties": {name.removesuffix("?"): schema_of(inner) for name, inner in shape.items()},
                "additionalProperties": False,
            }
            return {**schema, "required": required} if required else schema
    return _TYPES[shape]
