"""Grants: what an OAuth 2 token allows. They are scopes in RabbitMQ's form, used instead of stored
permissions.

    OPERATION:VHOST/NAME            configure, read or write on exchanges and queues
    OPERATION:VHOST/NAME/KEY        and on a topic exchange only with such routing keys (without: with all)
    tag:TAG                         what the user may administer

Each part may have `*`, which stands for any text, and is percent-encoded: `read:%2F/orders-*/eu.*`. Other
scopes are ignored.

Source: RabbitMQ's rabbit_oauth2_scope and its OAuth 2 guide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote

from penstock.lazy_dataclass import dataclass
from penstock.router.names import text

__all__ = ["Grants", "Scope", "matches"]

_OPERATIONS: Final = frozenset({"configure", "write", "read"})
_TAG: Final = "tag:"


class Scope(NamedTuple):
    """One scope that is about things of a vhost; patterns are decoded."""

    operation: str
    vhost: str
    name: str
    key: str

    @classmethod
    def parse(cls, scope: str) -> Self | None:
        """None: it is about something else."""
        operation, colon, rest = scope.partition(":")
        parts = rest.split("/")
        if not colon or operation not in _OPERATIONS or not 2 <= len(parts) <= 3:
            return None
        vhost, name, key = (unquote(part) for part in (*parts, "*")[:3])
        return cls(operation, vhost, name, key)

    def __str__(self) -> str:
        return f"{self.operation}:" + "/".join(quote(part, safe="*") for part in self[1:])


@dataclass(frozen=True, slots=True)
class Grants:
    """The rights of one login by token; equal grants allow the same."""

    scopes: frozenset[Scope]
    ends_at: float = field(compare=False)
    """When the login ends, in seconds since the epoch."""

    @classmethod
    def parse(cls, scopes: Iterable[str], ends_at: float) -> tuple[Self, frozenset[str]]:
        """The rights that scopes give, and the tags among them."""
        known, tags = set(), set()
        for scope in scopes:
            if scope.startswith(_TAG):
                tags.add(scope[len(_TAG) :])
            elif (one := Scope.parse(scope)) is not None:
                known.add(one)
        return cls(frozenset(known), ends_at), frozenset(tags)

    def texts(self) -> list[str]:
        """The scopes as `parse` reads them."""
        return sorted(map(str, self.scopes))

    def enter(self, vhost: str) -> bool:
        """Whether any scope is about the vhost."""
        return any(matches(one.vhost, vhost) for one in self.scopes)

    def allow(self, vhost: str, operation: str, name: str) -> bool:
        """Whether the operation is allowed on the exchange or queue of this name."""
        return any(
            one.operation == operation and matches(one.vhost, vhost) and matches(one.name, name)
            for one in self.scopes
        )

    def allow_topic(self, vhost: str, operation: str, exchange: str, key: bytes) -> bool:
        """Whether the operation is allowed with this routing key on a topic exchange."""
        return any(
            one.operation == operation
            and matches(one.vhost, vhost)
            and matches(one.name, exchange)
            and matches(one.key, text(key))
            for one in self.scopes
        )


def matches(pattern: str, name: str) -> bool:
    """Whether the name is of the pattern, in which `*` stands for any text. In linear steps."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    *middle, last = rest
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
