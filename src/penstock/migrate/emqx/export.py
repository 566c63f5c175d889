"""Reads the JSON that `emqx_ctl data export` of EMQX 4 writes, and says what becomes of each entry.

Source: emqx_mgmt_data_backup of EMQX 4.0 to 4.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.migrate.emqx.passwords import user_of
from penstock.migrate.emqx.rules import lines_of
from penstock.migrate.files import text_of
from penstock.migrate.report import MigrationError, Place, Report

__all__ = ["Conversion", "convert"]

_REMEDY: Final = "write one with `emqx_ctl data export` of EMQX 4; that of EMQX 5 is not public"
_NO_CLIENT_IDS: Final = "penstock knows no logins by client id: make a user for it"
_OTHERS: Final = {
    "apps": ("id", "make a user with the tag monitoring or administrator for a program"),
    "users": ("username", "a user of EMQX's dashboard: make one with the tag administrator"),
    "blacklist": ("who", "penstock has no list of banned clients: delete their users, or set a firewall"),
    "rules": ("id", "the rule engine: use bindings, webhooks or a program"),
    "resources": ("id", "a resource of the rule engine: see bridges, shovels and webhooks"),
    "modules": ("type", "a module of EMQX: see the configuration for what penstock has"),
    "schemas": ("id", "a schema of the rule engine"),
    "configs": ("name", "options of EMQX: see penstock's configuration"),
    "listeners_state": ("name", "listeners: mqtt.listen, mqtt.tls_listen, mqtt.ws_listen"),
}
"""Parts that do not move: the name of an entry, and the reason."""
_USERS: Final = {"auth_mnesia": "login", "auth_username": "username", "auth_clientid": "clientid"}
"""Parts with passwords, and the name of an entry. EMQX 4.2 and older have the last two."""
_IGNORED: Final = frozenset({"version", "date"})


@dataclass(slots=True)
class Conversion:
    """All that an export says."""

    report: Report = field(default_factory=Report)
    users: list[dict[str, Any]] = field(default_factory=list)
    """As definitions have them."""
    acl: str = ""
    """An ACL file for penstock; "" = the export has no rules."""


def convert(path: Path) -> Conversion:
    """Read an export.

    Raises:
        MigrationError: it cannot be read, or is none.

    """
    if path.name.endswith((".tar.gz", ".tgz")):
        raise MigrationError(f"{path} is an export of EMQX 5, whose tables are Erlang's own", remedy=_REMEDY)
    try:
        export = json.loads(text_of(path, _REMEDY))
    except ValueError as error:
        raise MigrationError(f"{path} is no JSON: {error}", remedy=_REMEDY) from None
    if not isinstance(export, dict) or "version" not in export:
        raise MigrationError(f"{path} is no export of EMQX: it has no version", remedy=_REMEDY)
    made, place = Conversion(), Place(str(path), 0)
    superusers = _users(export, place, made)
    rules = list(_entries(export, "acl_mnesia"))
    if rules:
        made.acl = "\n".join([*lines_of(rules, superusers, place, made.report), ""])
        made.report.add(
            place,
            "acl_mnesia",
            "moved",
            "mqtt.acl_file denies what no line allows; EMQX allows it unless acl_nomatch is deny",
        )
    for part, (name, why) in _OTHERS.items():
        for entry in _entries(export, part):
            made.report.add(place, f"{part} {_name(entry.get(name))}", "left out", why)
    for part in sorted(set(export) - _OTHERS.keys() - _IGNORED - _USERS.keys() - {"acl_mnesia"}):
        made.report.add(place, part, "unknown", "no part that EMQX 4 is known to write")
    return made


def _users(export: Mapping[str, Any], place: Place, made: Conversion) -> list[str]:
    """Add the users; the names of those who may use each topic."""
    superusers = []
    by_name: dict[str, dict[str, Any]] = {}
    for part, key in _USERS.items():
        for entry in _entries(export, part):
            name = _name(entry.get(key))
            text = f"{part} {name}:********"
            if "clientid" in (key, entry.get("type")):
                made.report.add(place, text, "left out", _NO_CLIENT_IDS)
                continue
            try:
                by_name[name] = user_of(name, str(entry.get("password", "")))
            except ValueError as error:
                made.report.add(place, text, "wrong", str(error))
                continue
            note = "a user with the same password, for MQTT topics only"
            if entry.get("is_superuser") is True:
                superusers.append(name)
                note += "; a superuser, who may use each topic"
            made.report.add(place, text, "moved", note)
    made.users = list(by_name.values())
    return superusers


def _entries(export: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    found = export.get(part, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise MigrationError(f"{part} of the export is no list of objects", remedy=_REMEDY)
    return iter(found)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
