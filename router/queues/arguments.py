"""The arguments of queues: which values each may have, which are compared at a redeclaration, what they mean.

Unknown arguments are kept and ignored, as RabbitMQ does. Some known ones are checked and mean nothing more
here: every queue is in the log and none is replicated, so they promise nothing that is not kept
(`x-queue-mode`, `x-queue-version`, `x-queue-leader-locator`, `x-max-in-memory-*`, sizes of groups, clusters,
segments and filters).

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
from penstock.router.queues.start_position import interval_s
from penstock.subscriptions.queue.limits import NO_RULES, Bury, Overflow, Rules

__all__ = ["check_arguments", "check_equivalent", "queue_type", "retention_of", "rules_of"]

Problem = InvalidArgument.Problem
Rule = Callable[[object, Arguments], "Problem | None"]

_EXPIRY_MAX: Final = 315_360_000_000
"""RabbitMQ's longest time, ten years in milliseconds."""

_QUORUM_DELIVERY_LIMIT: Final = 20

TYPES: Final = ("classic", "quorum", "stream")


def _any_integer(value: object, _: Arguments) -> Problem | None:
    return "expected_integer" if isinstance(value, bool) or not isinstance(value, int) else None


def _integer(value: object, table: Arguments) -> Problem | None:
    return _any_integer(value, table) or ("value_negative" if isinstance(value, int) and value < 0 else None)


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


def _strategy(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value in ("at-most-once", "at-least-once") else "invalid_dlx_strategy"


def _positive(value: object, table: Arguments) -> Problem | None:
    return _integer(value, table) or ("value_zero" if value == 0 else None)


def _retry_type(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value in ("disabled", "failed", "returned", "all") else "invalid_value"


def _switch(value: object, _: Arguments) -> Problem | None:
    return None if isinstance(value, bool) else "unacceptable_type"


def _mode(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value in ("default", "lazy") else "unsupported_mode"


def _version(value: object, table: Arguments) -> Problem | None:
    return _integer(value, table) or (None if value in (1, 2) else "unsupported_version")


def _locator(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    known = ("client-local", "balanced", "random", "least-leaders")
    return None if value in known else "invalid_queue_locator_arg"


def _age(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return "invalid_max_age" if interval_s(value) is None else None


def _cleanup(value: object, _: Arguments) -> Problem | None:
    if not isinstance(value, str):
        return "unacceptable_type"
    return None if value in ("delete", "compact") else "invalid_value"


# RabbitMQ checks in this order and answers with the first problem; `Rule`s see the whole table.
_RULES: Final[dict[str, tuple[Rule, tuple[str, ...]]]] = {
    "x-expires": (_expires, ("classic", "quorum")),
    "x-message-ttl": (_expiry, ("classic", "quorum")),
    "x-dead-letter-exchange": (_exchange, ("classic", "quorum")),
    "x-dead-letter-routing-key": (_dead_letter_key, ("classic", "quorum")),
    "x-dead-letter-strategy": (_strategy, ("quorum",)),
    "x-max-length": (_integer, ("classic", "quorum")),
    "x-max-length-bytes": (_integer, ("classic", "quorum", "stream")),
    "x-max-in-memory-length": (_integer, ("quorum",)),
    "x-max-in-memory-bytes": (_integer, ("quorum",)),
    "x-max-priority": (_priority, ("classic", "quorum")),
    "x-overflow": (_overflow, ("classic", "quorum")),
    "x-queue-mode": (_mode, ("classic",)),
    "x-queue-version": (_version, ("classic",)),
    "x-single-active-consumer": (_switch, ("classic", "quorum")),
    "x-delivery-limit": (_any_integer, ("classic", "quorum")),
    "x-delayed-retry-type": (_retry_type, ("classic", "quorum")),
    "x-delayed-retry-min": (_positive, ("classic", "quorum")),
    "x-delayed-retry-max": (_positive, ("classic", "quorum")),
    "x-delayed-retry-multiplier": (_positive, ("classic", "quorum")),
    "x-consumer-timeout": (_integer, ("classic", "quorum")),
    "x-max-age": (_age, ("stream",)),
    "x-cleanup": (_cleanup, ("stream",)),
    "x-stream-max-segment-size-bytes": (_integer, ("stream",)),
    "x-stream-filter-size-bytes": (_integer, ("stream",)),
    "x-quorum-initial-group-size": (_positive, ("quorum",)),
    "x-initial-cluster-size": (_positive, ("stream",)),
    "x-queue-leader-locator": (_locator, ("classic", "quorum", "stream")),
}


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
            ("auto-delete", auto_delete),
            ("exclusive-owner", exclusive),
            ("non-durable", not durable),
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
    """Check a redeclaration; arguments that the queue's type does not know are not compared.

    Raises:
        Inequivalent: a known argument is not what it is.

    """
    type_ = current.get("x-queue-type", "classic")
    for argument, (_, types) in _RULES.items():
        if type_ in types and not same_value(current.get(argument), received.get(argument)):
            values = received.get(argument), current.get(argument)
            raise Inequivalent("queue", name, vhost, argument, *values)
    # Naming the default type, or leaving it out, is the same.
    if not same_value(type_, received.get("x-queue-type", "classic")):
        values = received.get("x-queue-type"), current.get("x-queue-type")
        raise Inequivalent("queue", name, vhost, "x-queue-type", *values)


def rules_of(effective: Arguments, bury: Bury | None) -> Rules:
    """The rules of a queue with these (valid) arguments; `bury` handles its dead letters."""
    if not effective:
        return NO_RULES

    def number(argument: str) -> int | None:
        value = effective.get(argument)
        assert value is None or isinstance(value, int)
        return value

    is_quorum = effective.get("x-queue-type") == "quorum"
    # RabbitMQ 4 drops what was given back 20 times from every quorum queue; nothing is lost silently here.
    delivery_limit = number("x-delivery-limit")
    if delivery_limit is None and is_quorum and bury is not None:
        delivery_limit = _QUORUM_DELIVERY_LIMIT
    return Rules(
        bury=bury,
        ttl_ms=number("x-message-ttl"),
        max_length=number("x-max-length"),
        max_bytes=number("x-max-length-bytes"),
        overflow=Overflow(effective.get("x-overflow", "drop-head")),
        delivery_limit=None if delivery_limit is None or delivery_limit < 0 else delivery_limit,
        tells_count=is_quorum or delivery_limit is not None,
        expires_ms=number("x-expires"),
    )


def retention_of(effective: Arguments) -> tuple[float | None, int | None]:
    """How long, in seconds, and how many bytes of its messages a stream keeps; None: no limit."""
    age, size = effective.get("x-max-age"), effective.get("x-max-length-bytes")
    return interval_s(age) if isinstance(age, str) else None, size if isinstance(size, int) else None
