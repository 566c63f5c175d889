"""Rules about topics of EMQX's own database, as lines of an ACL file.

EMQX asks the rules of the client id, then those of the user, then those of all. When none matches, it allows,
unless `acl_nomatch` says otherwise. An ACL file denies what no line allows, and knows no client ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.errors import StartError
from penstock.migrate.report import Place, Report
from penstock.protocols.mqtt.auth.acl import AclFile

__all__ = ["lines_of"]

_READS: Final = {"sub": "read", "pub": "write", "pubsub": "readwrite"}


def lines_of(
    rules: Iterable[Mapping[str, Any]], superusers: Iterable[str], place: Place, report: Report
) -> list[str]:
    """The lines of the file.

    Args:
        rules: `acl_mnesia` of the export.
        superusers: Users who may use each topic.
        place: Of the export.
        report: Told of each rule.

    """
    chosen = list(rules)
    denied = {(*_who(rule), *_what(rule)) for rule in chosen if _denies(rule)}
    by_user: dict[str, list[str]] = {name: ["topic readwrite #"] for name in superusers}
    patterns: list[str] = []
    for rule in chosen:
        (kind, name), (topic, action) = _who(rule), _what(rule)
        text = " ".join(filter(None, ("acl_mnesia", kind, name, action, topic)))
        others = {(kind, name, topic, one) for one in _READS.keys() - {action}}
        access = _READS.get(action, "")
        if _denies(rule):
            access = "deny" if action == "pubsub" or others & denied else "half"
        line = _line(kind, name, access, topic)
        if why := _why_not(kind, name, access, topic, line):
            loose = "; more is allowed than before" if _denies(rule) else ""
            report.add(place, text, "left out", why + loose)
            continue
        of = patterns if kind == "all" else by_user.setdefault(name, [])
        if line not in of:
            of.append(line)
        report.add(place, text, "moved", f"mqtt.acl_file: {line}")
    made = patterns
    for name, lines in by_user.items():
        made += [f"user {name}", *lines]
    return made


def _line(kind: str, name: str, access: str, topic: str) -> str:
    if kind == "all":
        return f"pattern {access} {topic}"
    return f"topic {access} {topic.replace('%u', name)}"


def _why_not(kind: str, name: str, access: str, topic: str, line: str) -> str:
    """The reason why an ACL file cannot have the line; "" = it can."""
    if kind == "clientid":
        return "an ACL file has no lines for one client id"
    if kind not in ("username", "all") or not access:
        return "no rule that EMQX 4 is known to write"
    if access == "half":
        return "a line denies both reading and writing, and the rule one of them"
    if kind == "username" and "%c" in topic:
        return "a line for one user has no %c"
    if "\n" in name + topic or (kind == "username" and not name.strip()):
        return "a line has no room for its name or topic"
    try:
        AclFile(f"user {name or 'x'}\n{line}", "", "")
    except StartError as error:
        return error.message
    return ""


def _what(rule: Mapping[str, Any]) -> tuple[str, str]:
    """Topic and action."""
    return str(rule.get("topic")), str(rule.get("action"))


def _denies(rule: Mapping[str, Any]) -> bool:
    # EMQX 4.2 and older write `allow`.
    return rule.get("access") == "deny" or rule.get("allow") is False


def _who(rule: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name; EMQX 4.2 and older have a `login`, of whichever kind its configuration says."""
    if "login" in rule:
        return "username", str(rule["login"])
    return str(rule.get("type", "all")), str(rule.get("type_value", ""))
