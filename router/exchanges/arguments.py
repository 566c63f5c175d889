"""Arguments of exchanges: which are valid, and when a declaration equals an existing exchange. Pure."""

from __future__ import annotations

from penstock.router.arguments import Arguments, same_value
from penstock.router.errors import Inequivalent, InvalidArgument, UnknownType
from penstock.router.exchanges.deduplication import DEDUPLICATING_TYPE, check_cache
from penstock.router.exchanges.distribution import check_choosing
from penstock.router.exchanges.exchanges import DELAYED_TYPE, INNER_TYPES, RECENT_TYPE, TYPES, Exchange
from penstock.router.exchanges.recent_history import check_length

__all__ = ["check_exchange", "check_exchange_type", "check_same_exchange"]


def check_exchange_type(type_: str, arguments: Arguments, name: str, vhost: str) -> None:
    """Check the type of an exchange, and the one inside of a delayed one.

    Raises:
        UnknownType: it is none.
        InvalidArgument: `x-delayed-type` is no text.

    """
    if type_ == DELAYED_TYPE:
        inner = arguments.get("x-delayed-type")
        if not isinstance(inner, str):
            raise InvalidArgument("exchange", name, vhost, "x-delayed-type", inner, "no_exchange_type")
        if inner not in INNER_TYPES:
            raise UnknownType("exchange", inner, name, vhost)
    elif type_ not in TYPES:
        raise UnknownType("exchange", type_, name, vhost)


def check_exchange(type_: str, arguments: Arguments, name: str, vhost: str) -> None:
    """Check what a new exchange is declared with; its type is fine.

    Raises:
        InvalidArgument: `alternate-exchange` is no name.
        InvalidHash, InvalidLength, InvalidParameter: its type cannot have these arguments.

    """
    if type_ == DEDUPLICATING_TYPE:
        check_cache(arguments)
    if type_ == RECENT_TYPE:
        check_length(arguments)
    check_choosing(str(arguments["x-delayed-type"]) if type_ == DELAYED_TYPE else type_, arguments)
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        raise InvalidArgument("exchange", name, vhost, "alternate-exchange", alternate, "invalid_type")


def check_same_exchange(
    found: Exchange,
    type_: str,
    arguments: Arguments,
    vhost: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
) -> None:
    """Check a redeclaration.

    Raises:
        Inequivalent: it is there otherwise.

    """
    for prop, received, current in (
        ("type", type_, found.type),
        ("durable", durable, found.durable),
        ("auto_delete", auto_delete, found.auto_delete),
        ("internal", internal, found.internal),
    ):
        if received != current:
            raise Inequivalent("exchange", found.name, vhost, prop, received, current)
    # The delayed type too: RabbitMQ's plugin lets it pass, and keeps the old one without a word.
    for argument in ("alternate-exchange", "x-delayed-type") if found.delays else ("alternate-exchange",):
        values = arguments.get(argument), found.arguments.get(argument)
        if not same_value(*values):
            raise Inequivalent("exchange", found.name, vhost, argument, *values)
