"""Bodies of requests. A handler reads its own by a `Body`, and the OpenAPI document has the same as a schema.

Each field has a kind: it checks a value, and describes which values there are. Kinds are as lenient as
RabbitMQ ("true" for true, "5" for 5, [] for an empty table); the schema has the regular form only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from penstock.protocols.http.management.context import fields_of, flag_of, table_of, text_of
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.server.numbers import whole

__all__ = ["ARGUMENTS", "LIMIT", "Body", "Choice", "Flag", "Given", "Listed", "Number", "Table", "Text"]

Json = dict[str, Any]


class Kind(Protocol):
    """The values of a field."""

    @property
    def default(self) -> Any:
        """The value of a field that is not there."""

    def read(self, name: str, value: Any) -> Any:
        """The value, checked. Raises HttpError 400."""

    def schema(self) -> Json:
        """As JSON Schema."""


class Body:
    """An object with these fields; others are not looked at, as RabbitMQ does it."""

    def __init__(
        self,
        fields: Mapping[str, Kind],
        *required: str,
        description: str = "",
        optional: bool = False,
        one_of: Sequence[str] = (),
    ) -> None:
        """`optional`: a request may have no body; `one_of`: one of these is there at least, which the handler
        checks."""
        self.optional = optional
        self._fields = fields
        self._required = required
        self._description = description
        self._one_of = one_of

    def read(self, value: Any) -> Json:
        """The fields of a body; one that is not there has its default.

        Raises:
            HttpError: 400.

        """
        body = fields_of(value, self._required)
        return {
            name: kind.read(name, body[name]) if name in body else kind.default
            for name, kind in self._fields.items()
        }

    def schema(self) -> Json:
        """As JSON Schema."""
        schema: Json = {
            "type": "object",
            "properties": {name: kind.schema() for name, kind in self._fields.items()},
        }
        if self._required:
            schema["required"] = list(self._required)
        if self._one_of:
            schema["anyOf"] = [{"required": [name]} for name in self._one_of]
        return _described(schema, self._description)


class Flag(NamedTuple):
    """True or false; also as text."""

    default: bool | None = False

    def read(self, name: str, value: Any) -> bool:
        return flag_of({name: value}, name)

    def schema(self) -> Json:
        schema: Json = {"type": "boolean"}
        return schema if self.default is None else {**schema, "default": self.default}


class Text(NamedTuple):
    """Text."""

    default: str | None = None
    description: str = ""
    most: int = 0
    """The longest one, for the schema; 0: any. The part that uses the text checks it, in bytes."""
    options: Sequence[str] = ()
    """The texts there are, for the schema. The part that uses the text checks it."""

    def read(self, name: str, value: Any) -> str:
        return text_of({name: value}, name)

    def schema(self) -> Json:
        schema: Json = {"enum": list(self.options)} if self.options else {"type": "string"}
        if self.most:
            schema["maxLength"] = self.most
        if self.default:
            schema["default"] = self.default
        return _described(schema, self.description)


class Choice(NamedTuple):
    """One of these texts."""

    options: Sequence[str]
    default: str | None = None

    def read(self, name: str, value: Any) -> str:
        if value not in self.options:
            raise HttpError(400, "bad_request", f"{name} is one of {', '.join(self.options)}")
        return str(value)

    def schema(self) -> Json:
        schema: Json = {"enum": list(self.options)}
        return schema if self.default is None else {**schema, "default": self.default}


class Listed(NamedTuple):
    """A list of texts; `options`: those there are, where they are known."""

    options: Sequence[str] = ()
    description: str = ""
    default: Any = None

    def read(self, name: str, value: Any) -> list[str]:
        if not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            raise HttpError(400, "bad_request", f"{name} is a list of texts")
        if self.options and not set(value) <= set(self.options):
            raise HttpError(400, "bad_request", f"{name} is a list, of {', '.join(self.options)}")
        return value

    def schema(self) -> Json:
        item = (
            {"enum": list(self.options)} if self.options else _described({"type": "string"}, self.description)
        )
        return {"type": "array", "items": item}


class Number(NamedTuple):
    """A whole number, also as text or as 5.0."""

    least: int
    most: int | None = None
    description: str = ""
    default: int | None = None

    def read(self, name: str, value: Any) -> int:
        if (
            isinstance(value, str)
            and value.isascii()
            and value.removeprefix("-").isdigit()
            and len(value) < 20
        ):
            value = int(value)
        number = whole(value)
        if number is None or number < self.least or (self.most is not None and number > self.most):
            bounds = f"from {self.least}" + ("" if self.most is None else f" to {self.most}")
            raise HttpError(400, "bad_request", f"{name} is a whole number {bounds}")
        return number

    def schema(self) -> Json:
        schema: Json = {"type": "integer", "minimum": self.least}
        if self.most is not None:
            schema["maximum"] = self.most
        if self.default is not None:
            schema["default"] = self.default
        return _described(schema, self.description)


class Table(NamedTuple):
    """An object; an empty list stands for an empty one."""

    description: str = ""
    inner: Json | None = None
    """The schema of the object, where one is known. The part that uses the table checks it."""

    @property
    def default(self) -> Json:
        return {}

    def read(self, name: str, value: Any) -> Json:
        return table_of({name: value}, name)

    def schema(self) -> Json:
        return _described(self.inner or {"type": "object"}, self.description)


class Given(NamedTuple):
    """A value that is taken as it is: a part below the API checks it, by the rules of this schema."""

    inner: Json
    default: Any = None

    def read(self, name: str, value: Any) -> Any:
        del name
        return value

    def schema(self) -> Json:
        return self.inner


class _Bound(NamedTuple):
    """The value of a limit; 5.0 is 5. The broker checks it."""

    default: Any = None

    def read(self, name: str, value: Any) -> Any:
        del name
        number = whole(value)
        return value if number is None else number

    def schema(self) -> Json:
        return {"type": "integer", "minimum": -1, "maximum": 2**31 - 1, "description": "-1: none."}


LIMIT: Final = Body({"value": _Bound()}, "value")
"""A limit of a vhost or user."""
ARGUMENTS: Final = Table("Those of docs/reference/amqp.md, such as x-max-length.")
"""The arguments of queues, exchanges and bindings."""


def _described(schema: Json, description: str) -> Json:
    return {**schema, "description": description} if description else schema
