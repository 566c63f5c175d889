"""Values of parameters of links: checks of their terms, and URIs without passwords, as RabbitMQ has them.

Source: RabbitMQ's rabbit_parameter_validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.protocols.links.amqp.uri import MASK, UriError, masked, parse_uri

__all__ = [
    "SCHEMAS",
    "Check",
    "any_of",
    "flag",
    "is_whole",
    "listed",
    "mistakes_of",
    "number",
    "prefetch",
    "shown",
    "table",
    "text",
    "unmasked",
    "uris",
]

Check = Callable[[Any], str]
"""From the value of a term to a mistake in it; "" = there is none."""

SCHEMAS: Final[dict[Check, dict[str, Any]]] = {}
"""The values that a check takes, as JSON Schema."""
_URIS: Final = ("uri", "src-uri", "dest-uri")


def any_of(*words: str) -> Check:
    """One of these."""

    def check(value: Any) -> str:
        return "" if value in words else f"should be one of {', '.join(words)}"

    SCHEMAS[check] = {"enum": list(words)}
    return check


def text(value: Any) -> str:
    """Any text."""
    return "" if isinstance(value, str) else "should be a string"


def flag(value: Any) -> str:
    """true or false."""
    return "" if isinstance(value, bool) else "should be boolean"


def table(value: Any) -> str:
    """A table; RabbitMQ has [] for an empty one."""
    return "" if isinstance(value, dict) or value == [] else "should be an object"


def number(value: Any) -> str:
    """A number of seconds, milliseconds or hops."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**31
    return "" if is_number else "should be a number, 0 or more"


def is_whole(value: Any) -> bool:
    """Whether it is an integer, as JSON Schema has it: 5.0 is one."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


def prefetch(value: Any) -> str:
    """Messages under way."""
    return "" if is_whole(value) and 1 <= value <= 65535 else "should be a number from 1 to 65535"


def _uri(value: Any) -> str:
    if not isinstance(value, str):
        return "should be a URI"
    if f":{MASK}@" in value:
        return "has a password that was hidden: give the password"
    try:
        parse_uri(value)
    except UriError as error:
        return f"not a valid URI: {error}"
    return ""


def uris(value: Any) -> str:
    """A URI, or a list of some."""
    if isinstance(value, list) and value:
        return next(filter(None, map(_uri, value)), "")
    return _uri(value)


def mistakes_of(value: Any, terms: Mapping[str, Check], needed: Iterable[str], component: str) -> list[str]:
    """A line for each mistake in a value; no password is in it."""
    if not isinstance(value, Mapping):
        return [f"the value of a {component} should be an object"]
    mistakes = []
    if unknown := sorted(set(value) - set(terms)):
        mistakes.append(f'Unrecognised terms [{", ".join(unknown)}] in <<"{component}">>')
    for name, check in terms.items():
        if name in value and (problem := check(value[name])):
            mistakes.append(f"{name} {problem}")
    mistakes += [f'Key "{name}" not found in <<"{component}">>' for name in needed if name not in value]
    return mistakes


def listed(found: str | list[str]) -> tuple[str, ...]:
    """The URIs of a term."""
    return (found,) if isinstance(found, str) else tuple(found)


def shown(value: Any) -> Any:
    """A value as it may be shown: without passwords."""
    if not isinstance(value, Mapping):
        return value
    return {name: _masked(one) if name in _URIS else one for name, one in value.items()}


def _masked(found: Any) -> Any:
    return [masked(str(uri)) for uri in found] if isinstance(found, list) else masked(str(found))


def unmasked(value: Any, known: Any) -> Any:
    """A value with the passwords that it was shown without; `known` is what was shown."""
    if not isinstance(value, Mapping) or not isinstance(known, Mapping):
        return value
    found = dict(value)
    for name in _URIS:
        if name in known and found.get(name) == _masked(known[name]):
            found[name] = known[name]
    return found


_URI: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": "^amqps?://",
    "description": "A URI of AMQP, such as amqp://.",
}
SCHEMAS.update(
    {
        text: {"type": "string"},
        flag: {"type": "boolean"},
        table: {"type": "object"},
        number: {"type": "number", "minimum": 0, "exclusiveMaximum": 2**31},
        prefetch: {"type": "integer", "minimum": 1, "maximum": 65535},
        uris: {"anyOf": [_URI, {"type": "array", "items": _URI, "minItems": 1}]},
    }
)
