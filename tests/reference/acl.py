"""The rights that an ACL file grants, rule by rule: the definition for the tests of `AclFile`."""

from __future__ import annotations

import re

from penstock.protocols.mqtt.subscriptions.filters import covers
from penstock.router.authorization.identity import Identity

__all__ = ["allow", "overlaps"]

Rule = tuple[str, str, str]
"""A user's name, or "" for a pattern; access; filter."""


def allow(rules: list[Rule], identity: Identity, operation: str, topic: str, *, by_key: bool = False) -> bool:
    """As `TopicGuard.allow`."""
    meant = [(access, rule) for user, access, rule in rules if user and user == identity.username]
    for user, access, written in rules:
        rule = _meant(written, identity)
        if user == "" and rule is not None:
            meant.append((access, rule))
    if any(access == "deny" and _meets(rule, topic, by_key) for access, rule in meant):
        return False
    return any(access in (operation, "readwrite") and covers(rule, topic) for access, rule in meant)


def _meant(pattern: str, identity: Identity) -> str | None:
    values = {"%u": identity.username, "%c": identity.client_id}
    for variable, value in values.items():
        if variable in pattern and (not value or set(value) & set("+#/")):
            return None
    return re.sub("%[uc]", lambda found: values[found[0]], pattern)


def _meets(rule: str, topic: str, by_key: bool) -> bool:
    # By a key a level in front takes the meaning from a `$`; a dot in the rule may be the slash of the key.
    return overlaps(f"/{rule.replace('.', '/')}", f"/{topic}") if by_key else overlaps(rule, topic)


def overlaps(one: str, other: str) -> bool:
    """Whether some topic is matched by both."""
    if (one[:1] in ("+", "#") and other.startswith("$")) or (other[:1] in ("+", "#") and one.startswith("$")):
        return False
    mine, theirs = one.split("/"), other.split("/")
    for i in range(max(len(mine), len(theirs))):
        a = mine[i] if i < len(mine) else None
        b = theirs[i] if i < len(theirs) else None
        if a == "#" or b == "#":
            return True
        if a is None or b is None or (a != b and "+" not in (a, b)):
            return False
    return True
