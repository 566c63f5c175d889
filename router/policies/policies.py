"""Policies and operator policies of a vhost: which one applies to a queue or an exchange, and its effect.

Of the policies whose pattern is found in the name, the one of the highest priority applies, and one
operator policy likewise; of equal priorities the first by name. An operator policy narrows the policy
(`definitions`), and the queue's own arguments narrow the result. Owns the table `policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import Arguments, encode_table
from penstock.router.authorization.patterns import compile_pattern
from penstock.router.errors import InvalidParameter, InvalidRegex
from penstock.router.names import wire
from penstock.router.policies.definitions import (
    check_definition,
    is_for_type,
    merge_operator,
    with_policy,
)
from penstock.router.rows import Tables, row_key

__all__ = ["APPLY_TO", "Policies", "Policy", "PolicyKind", "checked", "effective_definition"]

PolicyKind = Literal["policy", "operator_policy"]

APPLY_TO: Final[dict[str, frozenset[str]]] = {
    "all": frozenset({"classic", "quorum", "stream", "exchange"}),
    "queues": frozenset({"classic", "quorum", "stream"}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
    "exchanges": frozenset({"exchange"}),
}
"""The kinds of things that a policy is for, by its `apply-to`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy. Valid: `checked` or the log made it."""

    name: str
    pattern: str
    """Searched in names."""
    definition: Mapping[str, object]
    priority: int = 0
    apply_to: str = "all"

    def matches(self, name: str, kind: str) -> bool:
        """Whether it is for the thing of this name; `kind` is "exchange" or the type of the queue."""
        return (
            kind in APPLY_TO[self.apply_to]
            and (kind == "exchange" or is_for_type(self.definition, kind))
            and compile_pattern(self.pattern).search(wire(name)) is not None
        )


def effective_definition(policy: Policy | None, operator: Policy | None) -> Mapping[str, object]:
    """The rules of a policy and an operator policy together; empty when there is neither."""
    if operator is None:
        return {} if policy is None else policy.definition
    return merge_operator({} if policy is None else policy.definition, operator.definition)


class Policies:
    """See the module."""

    def __init__(self, vhost: str, tables: Tables) -> None:
        self._vhost = vhost
        self._tables = tables
        self._named: dict[PolicyKind, dict[str, Policy]] = {"policy": {}, "operator_policy": {}}
        self._ordered: dict[PolicyKind, list[Policy]] = {"policy": [], "operator_policy": []}
        self.changes = 0
        """Grows whenever a policy comes, changes or goes."""

    # Questions

    def all(self, kind: PolicyKind) -> list[Policy]:
        """The policies of a kind, those that count first first."""
        return list(self._ordered[kind])

    def any(self, kind: PolicyKind) -> bool:
        """Whether there is one of a kind."""
        return bool(self._ordered[kind])

    def get(self, kind: PolicyKind, name: str) -> Policy | None:
        """The policy of this name, if there is one."""
        return self._named[kind].get(name)

    def of(self, kind: PolicyKind, name: str, thing: str) -> Policy | None:
        """The one policy of a kind for a thing; `thing` is "exchange" or the type of the queue."""
        for policy in self._ordered[kind]:
            if policy.matches(name, thing):
                return policy
        return None

    def definition(self, name: str, thing: str) -> Mapping[str, object]:
        """The rules of policy and operator policy together for a thing; empty when neither is for it."""
        return effective_definition(self.of("policy", name, thing), self.of("operator_policy", name, thing))

    def effective(self, name: str, arguments: Arguments) -> Arguments:
        """The rules of a queue with these arguments."""
        if not any(self._ordered.values()):
            return arguments
        type_ = str(arguments.get("x-queue-type", "classic"))
        definition = self.definition(name, type_)
        return with_policy(arguments, definition, type_) if definition else arguments

    def alternate(self, name: str) -> str | None:
        """The alternate exchange that a policy gives an exchange."""
        found = self.definition(name, "exchange").get("alternate-exchange") if name else None
        return found if isinstance(found, str) else None

    # Changes

    def put(self, kind: PolicyKind, policy: Policy) -> int:
        """Make or change a policy; the LSN to wait for. The caller applies it to what it concerns."""
        self._named[kind][policy.name] = policy
        self._order(kind)
        row = {"vhost": self._vhost, "kind": kind, **asdict(policy)}
        return self._tables.put("policy", row_key(self._vhost, kind, policy.name), encode_table(row))

    def delete(self, kind: PolicyKind, name: str) -> int:
        """Take a policy out that there is; the LSN to wait for."""
        del self._named[kind][name]
        self._order(kind)
        return self._tables.delete("policy", row_key(self._vhost, kind, name))

    def clear(self) -> int:
        """Take all out, with the vhost; the LSN to wait for."""
        names = [(kind, name) for kind, named in self._named.items() for name in named]
        return max((self.delete(kind, name) for kind, name in names), default=0)

    def restore(self, kind: PolicyKind, policy: Policy) -> None:
        """Put back a policy of the last run."""
        self._named[kind][policy.name] = policy
        self._order(kind)

    def _order(self, kind: PolicyKind) -> None:
        self.changes += 1
        self._ordered[kind] = sorted(self._named[kind].values(), key=lambda p: (-p.priority, p.name))


def checked(
    name: str, pattern: object, definition: object, priority: object, apply_to: object, *, operator: bool
) -> Policy:
    """The policy of these values, when there may be such a one.

    Raises:
        InvalidParameter: in RabbitMQ's words.

    """
    if not 1 <= len(wire(name)) <= 255:
        raise InvalidParameter("a policy needs a name of 1 to 255 bytes", "give it another name")
    if not isinstance(pattern, str):
        raise InvalidParameter(f"pattern should be a binary but was {pattern!r}")
    try:
        compile_pattern(pattern)
    except InvalidRegex as error:
        raise InvalidParameter(
            f"pattern should be regular expression but is invalid: {error.reason}", error.remedy
        ) from None
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 2**31:
        raise InvalidParameter(f"priority should be a number, actually was {priority!r}")
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        raise InvalidParameter(
            f"apply-to '{apply_to}' unrecognised; should be one of: 'queues', 'classic_queues', "
            "'quorum_queues', 'streams', 'exchanges', or 'all'"
        )
    return Policy(name, pattern, check_definition(definition, operator=operator), priority, apply_to)
