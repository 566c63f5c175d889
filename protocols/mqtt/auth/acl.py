"""Access rights per topic from a file in Mosquitto's syntax (`mqtt.acl_file`).

    topic [read|write|readwrite|deny] FILTER     of clients without a user name, or of the user named above
    user NAME                                    the following `topic` lines are this user's
    pattern [read|write|readwrite|deny] FILTER   of everybody; %u is the user name, %c the client id
    # ...                                        a comment, at the beginning of a line

Without a word of access a line means readwrite. Access without a line is denied, so an empty file denies
everything; `deny` goes before what other lines allow. A subscription is granted when the user may read some
of what it matches. When it may not read all of it, each delivery is looked at, as in Mosquitto; a
subscription that could bring nothing is refused (Mosquitto accepts it, and delivers nothing). Rights on the
MQTT exchange and topic permissions hold besides.

The lines hold for the topics, by whichever protocol they are reached: a routing key of `amq.topic` is the
topic with `/` for `.`, and a binding key the filter. Messages in a queue that somebody bound
belong to the queue, so a binding needs a line that covers all that it matches, and none that denies a part.

%u and %c stand for the name as one literal level or part of one: a name with `+`, `#` or `/` in it matches no
pattern that uses it. Clients without a user name are the default user, and have that user's lines as well.

Source: mosquitto.conf(5), `acl_file`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.auth.acl_rules import Meaning, Rules

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.authorization.permissions import TopicOperation

__all__ = ["AclFile"]

_PARTS: Final = re.compile("(%[uc])")
_ACCESS: Final = {
    "read": ("read",),
    "write": ("write",),
    "readwrite": ("read", "write"),
    "deny": ("deny",),
}


@dataclass(frozen=True, slots=True)
class _Rule:
    access: tuple[str, ...]
    topic: str


class _RulesOf:
    """Of one user, or the patterns."""

    def __init__(self, *, are_patterns: bool = False) -> None:
        self._are_patterns = are_patterns
        self.allowing: dict[str, Rules] = {"read": Rules(), "write": Rules()}
        self._denying, self._denying_by_key = Rules(), Rules(by_key=True)

    def add(self, rule: _Rule) -> None:
        for access in rule.access:
            kept = (self._denying, self._denying_by_key) if access == "deny" else (self.allowing[access],)
            for rules in kept:
                rules.add(rule.topic, is_pattern=self._are_patterns)

    def deny(self, topic: str, by_key: bool, meaning: Meaning) -> bool:
        return (self._denying_by_key if by_key else self._denying).meets(topic, meaning)

    def deny_all(self, topic_filter: str, meaning: Meaning) -> bool:
        return self._denying.covers(topic_filter, meaning)


class AclFile:
    """The rules of one file; a `TopicGuard` of the router."""

    slow = False
    filters = True

    def __init__(self, text: str, name: str, default_user: str) -> None:
        """Read the text of the file called `name`, for errors.

        Raises:
            StartError: a line is none of those above.

        """
        self._users = {default_user: _RulesOf()}
        self._patterns = _RulesOf(are_patterns=True)
        self.individual = False
        """Whether clients of one user may have different rights."""
        user = default_user
        for number, line in enumerate(text.splitlines(), 1):
            words = line.strip()
            if not words or words.startswith("#"):
                continue
            keyword, _, rest = words.partition(" ")
            rest = rest.strip()
            if keyword == "user" and rest:
                user = rest
                self._users.setdefault(user, _RulesOf())
            elif keyword in ("topic", "pattern") and rest:
                rule = _rule(rest)
                if rule is None:
                    raise _wrong(name, number, f"{rest!r} is no access and topic filter")
                (self._users[user] if keyword == "topic" else self._patterns).add(rule)
                self.individual |= keyword == "pattern" and "%c" in rule.topic
            else:
                raise _wrong(name, number, f"{line.strip()!r} is no line of an ACL file")

    @classmethod
    def read(cls, path: str, default_user: str) -> AclFile:
        """The rules of the file at `path`.

        Raises:
            StartError: it cannot be read, or a line of it is wrong.

        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(
                f"mqtt.acl_file: {path} cannot be read: {error}", remedy="correct mqtt.acl_file"
            ) from None
        return cls(text, path, default_user)

    def allow(
        self,
        identity: Identity,
        operation: TopicOperation,
        topic: str,
        *,
        by_key: bool = False,
        vhost: str = "",
    ) -> bool:
        """Whether the identity may publish to this topic ("write") or read all that this filter matches
        ("read"); `by_key`: see `TopicGuard`.
        """
        all_rules, meaning = self._rules_of(identity), _meaning(identity)
        if any(rules.deny(topic, by_key, meaning) for rules in all_rules):
            return False
        return any(rules.allowing[operation].covers(topic, meaning) for rules in all_rules)

    def may_subscribe(self, identity: Identity, topic_filter: str, *, vhost: str = "") -> bool:
        """Whether the identity may read something of what a session's filter matches."""
        all_rules, meaning = self._rules_of(identity), _meaning(identity)
        if any(rules.deny_all(topic_filter, meaning) for rules in all_rules):
            return False
        return any(rules.allowing["read"].meets(topic_filter, meaning) for rules in all_rules)

    def _rules_of(self, identity: Identity) -> tuple[_RulesOf, ...]:
        own = self._users.get(identity.username)
        return (self._patterns,) if own is None else (own, self._patterns)


def _wrong(name: str, number: int, what: str) -> StartError:
    return StartError(
        f"mqtt.acl_file: {name}, line {number}: {what}",
        remedy="lines are: user NAME; topic [read|write|readwrite|deny] FILTER; pattern ... the same",
    )


def _rule(text: str) -> _Rule | None:
    first, _, rest = text.partition(" ")
    access, topic = (first, rest.strip()) if rest.strip() else ("readwrite", text)
    if access not in _ACCESS:
        return None  # perhaps a filter with a space: then its access must be said, or which is meant?
    levels = topic.split("/")
    for i, level in enumerate(levels):
        if ("#" in level and (level != "#" or i < len(levels) - 1)) or ("+" in level and level != "+"):
            return None
    return _Rule(_ACCESS[access], topic)


def _meaning(identity: Identity) -> Meaning:
    """The text of a pattern's level with variables for an identity."""
    values = {"%u": identity.username, "%c": identity.client_id}

    def meaning(written: str) -> str | None:
        # Taken apart as it is written: a name that looks like a variable is none.
        parts = _PARTS.split(written)
        for i in range(1, len(parts), 2):
            value = parts[i] = values[parts[i]]
            if not value or any(letter in value for letter in "+#/"):
                return None
        return "".join(parts)

    return meaning
