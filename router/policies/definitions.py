"""Definitions of policies: their keys, value types, the kinds of queue that know each, and how definitions
merge.

Keys are those of arguments without `x-`. Texts are RabbitMQ's, with values as Erlang prints them.

Source: RabbitMQ's rabbit_policies (validators), rabbit_policy (merge), and the lists of policies that each
queue type does not support.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import Arguments
from penstock.router.authorization.patterns import compile_pattern
from penstock.router.errors import InvalidParameter, InvalidRegex
from penstock.router.limits.limits import RETENTION_BYTES, RETENTION_SECONDS

__all__ = [
    "EFFECTLESS",
    "FEDERATION",
    "check_definition",
    "definition_schema",
    "is_for_type",
    "merge_operator",
    "setting_names",
    "with_policy",
]

Definition = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule for the value of a key: as a function, and as a JSON Schema for documents."""

    accepts: Callable[[object], bool]
    schema: Mapping[str, object]


def _number(least: int) -> _Rule:
    return _Rule(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63,
        {"type": "integer", "minimum": least, "maximum": 2**63 - 1},
    )


def _one_of(*values: object) -> _Rule:
    return _Rule(
        lambda value: not isinstance(value, bool) and value in values,
        {"type": ["string", "integer"], "enum": list(values)},
    )


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and compile_pattern(value) is not None
    except InvalidRegex:
        return False


def _is_age(value: object) -> bool:
    return isinstance(value, str) and value[:-1].isdecimal() and value[-1:] in _SECONDS


_text: Final = _Rule(lambda value: isinstance(value, str), {"type": "string"})
_age: Final = _Rule(_is_age, {"type": "string", "pattern": "^[0-9]{1,9}[YMDhms]$"})
_regex: Final = _Rule(_is_pattern, {"type": "string", "format": "regex"})
_any: Final = _Rule(lambda _: True, {})

_SECONDS: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}

FEDERATION: Final = frozenset(
    {"federation-upstream", "federation-upstream-set", "federation-upstream-pattern"}
)
"""Keys that name upstreams, of which a definition may have one."""

_LOCATOR: Final = (
    _one_of("client-local", "balanced", "random", "least-leaders", "min-masters"),
    "queue leader locator value",
)

_KEYS: Final[dict[str, tuple[_Rule, str]]] = {
    "alternate-exchange": (_text, "alternate exchange name"),
    "dead-letter-exchange": (_text, "dead letter exchange name"),
    "dead-letter-routing-key": (_text, "dead letter routing key"),
    "dead-letter-strategy": (_one_of("at-most-once", "at-least-once"), "dead letter strategy"),
    "message-ttl": (_number(0), "message TTL"),
    "expires": (_number(1), "queue expiry"),
    "max-length": (_number(0), "maximum length"),
    "max-length-bytes": (_number(0), "maximum length in bytes"),
    "max-in-memory-length": (_number(0), "maximum memory in bytes"),
    "max-in-memory-bytes": (_number(0), "maximum memory in bytes"),
    "overflow": (_one_of("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value"),
    "delivery-limit": (_number(-1), "delivery limit"),
    "max-age": (_age, "max age"),
    "cleanup": (_one_of("delete", "compact"), "cleanup"),
    "stream-max-segment-size-bytes": (_number(0), "segment size"),
    "stream-filter-size-bytes": (_number(16), "filter size"),
    "queue-mode": (_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": (_one_of(1, 2), "queue-version value"),
    "queue-leader-locator": _LOCATOR,
    "queue-master-locator": _LOCATOR,
    "initial-cluster-size": (_number(0), "cluster size"),
    "target-group-size": (_number(1), "target group size"),
    "consumer-timeout": (_number(0), "consumer timeout"),
    "federation-upstream": (_text, "federation upstream name"),
    "federation-upstream-set": (_text, "federation upstream set name"),
    "federation-upstream-pattern": (_regex, "regular expression"),
    # Our own, for exchanges and queues: see `retentions`.
    RETENTION_SECONDS: (_number(0), "number of seconds"),
    RETENTION_BYTES: (_number(0), "number of bytes"),
    # Of features that are not here, as definitions of older servers and of plug-ins have them.
    "ha-mode": (_any, ""),
    "ha-params": (_any, ""),
    "ha-sync-mode": (_any, ""),
    "ha-sync-batch-size": (_any, ""),
    "ha-promote-on-shutdown": (_any, ""),
    "ha-promote-on-failure": (_any, ""),
}

EFFECTLESS: Final = frozenset(_KEYS) - {
    "alternate-exchange",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "overflow",
    "delivery-limit",
    "max-age",
    "cleanup",
    "consumer-timeout",
    RETENTION_SECONDS,
    RETENTION_BYTES,
    *FEDERATION,
}
"""Keys that are accepted and kept and change nothing: they are about clusters, memory, and other servers."""


_MIRRORS: Final = frozenset(key for key in _KEYS if key.startswith("ha-")) | {"queue-master-locator"}
_OF_STREAMS: Final = frozenset(
    {"max-age", "cleanup", "stream-max-segment-size-bytes", "initial-cluster-size"}
)
_OF_QUORUM: Final = frozenset({"dead-letter-strategy", "target-group-size"})

_UNSUPPORTED: Final[dict[str, frozenset[str]]] = {
    "classic": _OF_STREAMS | _OF_QUORUM | {"queue-leader-locator", "delivery-limit"},
    "quorum": _OF_STREAMS | _MIRRORS | {"queue-mode"},
    "stream": _OF_QUORUM
    | _MIRRORS
    | {
        "expires",
        "message-ttl",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "max-length",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "overflow",
        "queue-mode",
        "delivery-limit",
    },
}

_LOWEST: Final = frozenset(
    {
        "expires",
        "message-ttl",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
        "consumer-timeout",
        RETENTION_SECONDS,
        RETENTION_BYTES,
    }
)
"""Where two say something the lower number counts."""
_OPERATOR_KEYS: Final = _LOWEST | {"overflow", "target-group-size"}


def setting_names() -> list[str]:
    """The keys that the definition of a policy may have, sorted."""
    return sorted(_KEYS)


def definition_schema(*, operator: bool) -> dict[str, object]:
    """A JSON Schema of what `check_definition` takes."""
    keys = sorted(_OPERATOR_KEYS if operator else _KEYS)
    schema: dict[str, object] = {
        "type": "object",
        "properties": {key: dict(_KEYS[key][0].schema) for key in keys},
        "additionalProperties": False,
        "minProperties": 1,
    }
    if pairs := [list(two) for two in combinations(sorted(FEDERATION & {*keys}), 2)]:
        schema["not"] = {"anyOf": [{"required": two} for two in pairs]}
    return schema


_NOT_OF_QUEUES: Final = FEDERATION | {"alternate-exchange", RETENTION_SECONDS, RETENTION_BYTES}
"""Keys that do not become arguments."""


def check_definition(definition: object, *, operator: bool) -> dict[str, object]:
    """The definition, when a policy (or an operator policy) may have it.

    Raises:
        InvalidParameter: in RabbitMQ's words.

    """
    if not isinstance(definition, Mapping):
        raise InvalidParameter(f"definition must be a dictionary: {_erlang(definition)}")
    if not definition:
        raise InvalidParameter("no policy provided", "give at least one key")
    # JSON has one kind of number: 5.0 is a whole one.
    definition = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value
        for key, value in definition.items()
    }
    known = _OPERATOR_KEYS if operator else _KEYS.keys()
    unknown = sorted((key, value) for key, value in definition.items() if key not in known)
    for key, value in definition.items():
        if key in known:
            rule, what = _KEYS[key]
            if not rule.accepts(value):
                raise InvalidParameter(f"{_erlang(value)} is not a valid {what}")
    if unknown:
        settings = ",".join(f"{{{_erlang(key)},{_erlang(value)}}}" for key, value in unknown)
        raise InvalidParameter(f"[{settings}] are not recognised policy settings")
    if len(FEDERATION & definition.keys()) > 1:
        raise InvalidParameter(
            f"cannot specify {' and '.join(sorted(FEDERATION & definition.keys()))} together"
        )
    return definition


def is_for_type(definition: Definition, queue_type: str) -> bool:
    """Whether a queue of this type ("classic", "quorum", "stream") knows all that the definition says.

    As in RabbitMQ a policy that says one thing more is not for the queue at all.
    """
    return _UNSUPPORTED[queue_type].isdisjoint(definition)


def merge_operator(policy: Definition, operator: Definition) -> dict[str, object]:
    """A policy narrowed by an operator policy: the lower number, and else the operator's value."""
    merged = {**policy, **operator}
    for key in policy.keys() & operator.keys() & _LOWEST:
        merged[key] = _lower(key, policy[key], operator[key])
    return merged


def with_policy(arguments: Arguments, definition: Definition, queue_type: str) -> Arguments:
    """The arguments of a queue with what its policy adds: the lower number, and else the queue's own value.

    A stream takes the policy's max-length-bytes, and the lower max-age.
    """
    merged = dict(arguments)
    for key, value in definition.items():
        if key in _NOT_OF_QUEUES:
            continue
        argument = f"x-{key}"
        own = merged.get(argument)
        if own is None or (queue_type == "stream" and key == "max-length-bytes"):
            merged[argument] = value
        elif key in _LOWEST or key == "max-age":
            merged[argument] = _lower(key, own, value)
    if "x-dead-letter-exchange" not in merged:
        merged.pop("x-dead-letter-routing-key", None)
    return merged


def _lower(key: str, one: object, other: object) -> object:
    def size(value: object) -> float:
        if key == "max-age":
            assert isinstance(value, str)
            return int(value[:-1]) * _SECONDS[value[-1]]
        assert isinstance(value, int)
        # A delivery limit of -1 is none.
        return value if value >= 0 else float("inf")

    return min(one, other, key=size)


def _erlang(value: object) -> str:
    """A value as Erlang prints it."""
    match value:
        case str():
            return f'<<"{value}">>'
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case Mapping():
            return f"#{{{','.join(f'{_erlang(k)} => {_erlang(v)}' for k, v in value.items())}}}"
        case list() | tuple():
            return f"[{','.join(map(_erlang, value))}]"
    return str(value)
