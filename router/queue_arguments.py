"""The arguments of queues: which values each may have, which are compared at a redeclaration, which do
something.

Unknown arguments are kept and ignored, as RabbitMQ does. A known one is checked by its rule whether or not it
has an effect here yet; `without_effect` names those that do not, so that nobody is fooled.

Source: RabbitMQ's rabbit_amqqueue:declare_args/0, its observed answers, and its documentation per queue type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.router.arguments import Arguments, same_value
from penstock.router.errors import (
    Inequivalent,
    InvalidArgument,
    InvalidProperty,
    ServerNameRefused,
    UnknownType,
)

__all__ = ["check_arguments", "check_equivalent", "queue_type", "without_effect"]

Problem = InvalidArgument.Problem
Rule = Callable[[object, Arguments], "Problem | None"]

_EXPIRY_MAX: Final = 2**32 - 1
"""RabbitMQ's longest timer, in milliseconds."""

TYPES: Final = ("classic", "quorum", "stream")


def _integer(value: object, _: Arguments) -> Problem | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "expected_integer"
    return "value_negative" if value < 0 else None


def _expiry(value: object, table: Arguments) -> Problem | None:
    return _integer(value, table) or (
        "value_too_large" if isinstance(value, int) and value > _EXPIRY_MAX else None
    )


def _expires(value: object, table: Arguments) -> Problem | None:
    return _expiry(value, table) or ("value_zero" if value == 0 else None)


def _priority(value: object, table: Arguments) -> Problem | None:
    return _integer(value, table) or (
        "max_value_exceeded" if isinstance(value, int) and value > 255 else None
    )


def _text(value: object, _: Arguments) -> Problem | None:
    return None if isinstance(value, str) else "unacceptable_type"


def _exchange(value: object, _: Arguments) -> Problem | None:
    return None if isinstance(value, str) else "invalid_type"


def _dead_letter_key(value: object, table: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if "x-dead-letter-exchange" in table else "routing_key_but_no_dlx_defined"


def _overflow(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value in ("drop-head", "reject-publish", "reject-publish-dlx") else "invalid_overflow"


def _switch(value: object, _: Arguments) -> Problem | None:
    return None if isinstance(value, bool) else "unacceptable_type"


def _mode(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value in ("default", "lazy") else "invalid_value"


def _age(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value[:-1].isdigit() and value[-1:] in tuple("YMDhms") else "invalid_value"


# RabbitMQ checks in this order and answers with the first problem; `Rule`s see the whole table.
_RULES: Final[dict[str, tuple[Rule, tuple[str, ...]]]] = {
    "x-expires": (_expires, ("classic", "quorum")),
    "x-message-ttl": (_expiry, ("classic", "quorum")),
    "x-dead-letter-exchange": (_exchange, ("classic", "quorum")),
    "x-dead-letter-routing-key": (_dead_letter_key, ("classic", "quorum")),
    "x-dead-letter-strategy": (_text, ("quorum",)),
    "x-max-length": (_integer, ("classic", "quorum")),
    "x-max-length-bytes": (_integer, ("classic", "quorum", "stream")),
    "x-max-in-memory-length": (_integer, ("quorum",)),
    "x-max-in-memory-bytes": (_integer, ("quorum",)),
    "x-max-priority": (_priority, ("classic",)),
    "x-overflow": (_overflow, ("classic", "quorum")),
    "x-queue-mode": (_mode, ("classic",)),
    "x-single-active-consumer": (_switch, ("classic", "quorum")),
    "x-delivery-limit": (_integer, ("quorum",)),
    "x-max-age": (_age, ("stream",)),
    "x-stream-max-segment-size-bytes": (_integer, ("stream",)),
    "x-quorum-initial-group-size": (_integer, ("quorum",)),
    "x-initial-cluster-size": (_integer, ("stream",)),
    "x-queue-leader-locator": (_text, ("classic", "quorum", "stream")),
}

_EFFECTIVE: Final = frozenset(
    {"x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-single-active-consumer"}
)

# Only the head is dropped: what is refused instead is not told to publishers yet.
_DROPPING: Final = frozenset({"x-max-length", "x-overflow"})

# Every queue is in the log and none is replicated here, so these promise nothing that is not kept. Dead
# letters are in the log before their originals are gone, which is the stronger of the two strategies.
_KEPT: Final = frozenset(
    {
        "x-queue-type",
        "x-dead-letter-strategy",
        "x-queue-mode",
        "x-queue-leader-locator",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-quorum-initial-group-size",
        "x-initial-cluster-size",
        "x-stream-max-segment-size-bytes",
    }
)


def queue_type(table: Arguments, name: str, vhost: str) -> str:
    """ "classic", "quorum" or "stream".

    Raises:
        InvalidArgument: `x-queue-type` is no text.
        UnknownType: it is none of the three.

    """
    value = table.get("x-queue-type", "classic")
    if not isinstance(value, str):
        raise InvalidArgument("queue", name, vhost, "x-queue-type", value, "unacceptable_type")
    if value not in TYPES:
        raise UnknownType("queue", value, name, vhost)
    return value


def check_arguments(
    table: Arguments,
    name: str,
    vhost: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    server_named: bool,
) -> None:
    """Check what a new queue is declared with.

    Raises:
        InvalidArgument: a value of a known argument is impossible, or impossible for this queue type.
        InvalidProperty, ServerNameRefused: quorum queues and streams are durable, shared and named.
        UnknownType: see `queue_type`.

    """
    type_ = queue_type(table, name, vhost)
    if type_ != "classic":
        if server_named:
            raise ServerNameRefused(vhost, type_)
        for prop, wrong in (
            ("non-durable", not durable),
            ("exclusive", exclusive),
            ("auto-delete", auto_delete),
        ):
            if wrong:
                raise InvalidProperty(name, vhost, prop, type_)
    for argument, (rule, types) in _RULES.items():
        if argument not in table:
            continue
        value = table[argument]
        if type_ not in types:
            raise InvalidArgument("queue", name, vhost, argument, value, "not_for_type", type_)
        problem = rule(value, table)
        if problem is not None:
            raise InvalidArgument("queue", name, vhost, argument, value, problem)


def check_equivalent(current: Arguments, received: Arguments, name: str, vhost: str) -> None:
    """Check a redeclaration; unknown arguments are not compared.

    Raises:
        Inequivalent: a known argument is not what it is.

    """
    for argument in _RULES:
        if not same_value(current.get(argument), received.get(argument)):
            raise Inequivalent(
                "queue",
                name,
                vhost,
                argument,
                received.get(argument),
                current.get(argument),
                is_property=False,
            )
    # Naming the default type, or leaving it out, is the same.
    types = [table.get("x-queue-type", "classic") for table in (received, current)]
    if not same_value(*types):
        raise Inequivalent("queue", name, vhost, "x-queue-type", *types, is_property=False)


def without_effect(table: Arguments) -> list[str]:
    """The known arguments in `table` that change nothing in this version."""
    found = [argument for argument in _RULES if argument in table and argument not in _KEPT | _EFFECTIVE]
    if table.get("x-overflow", "drop-head") == "drop-head":
        found = [argument for argument in found if argument not in _DROPPING]
    if table.get("x-queue-type") == "stream":
        found.append("x-queue-type=stream")
    return found
