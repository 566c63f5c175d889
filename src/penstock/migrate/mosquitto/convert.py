"""Converts a mosquitto.conf with the files that it names: a report, options, users and an ACL file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.migrate.mosquitto import acl, bridges, passwords
from penstock.migrate.mosquitto.conf import Setting, read
from penstock.migrate.mosquitto.listeners import PLACES, Listener
from penstock.migrate.mosquitto.settings import BRIDGE, LISTENER, PLUGIN, SETTINGS
from penstock.migrate.report import Place, Report, Value
from penstock.migrate.rules import apply_rule

__all__ = ["Conversion", "convert"]

_DEFAULTS: Final[Mapping[str, tuple[str, Value, str]]] = {
    "max_packet_size": ("mqtt.max_packet_bytes", 268_435_455, "0: no limit but the protocol's"),
    "persistent_client_expiration": ("mqtt.session_expiry_max_s", 4_294_967_294, "sessions do not expire"),
}
"""Defaults of Mosquitto that differ from penstock's in a way that clients notice."""

_REPEATED: Final = frozenset({"auth_plugin", "include_dir", "log_dest", "log_type", "plugin"})
"""Names that may stand in several lines. Of others the last line counts."""


@dataclass(slots=True)
class Conversion:
    """All that the files say, the database apart."""

    report: Report = field(default_factory=Report)
    users: list[dict[str, Any]] = field(default_factory=list)
    """As definitions have them."""
    acl: str = ""
    """An ACL file for penstock; "" = everybody may use every topic."""
    database: Path | None = None
    """The file with messages and sessions; None: Mosquitto keeps none."""


def convert(path: Path) -> Conversion:
    """Read a mosquitto.conf and its files.

    Raises:
        MigrationError: a file cannot be read.

    """
    made = Conversion()
    report = made.report
    settings = list(read(path))
    files = {name: Path(one.value) for one in settings if (name := one.name) in ("password_file", "acl_file")}
    current = Listener()
    listeners = [current]
    for one in settings:
        if one.name == "listener":
            current = Listener()
            listeners.append(current)
        if one.name in LISTENER or one.name in PLACES:
            current.lines.append(one)
    last = {one.name: one for one in settings}
    for one in settings:
        _note(report, one, last[one.name])
    for listener in listeners:
        listener.convert(report)
    bridges.convert([one for one in settings if one.name in BRIDGE], report)
    # In the order of the files, as they were read.
    order = {one.place: at for at, one in enumerate(settings)}
    report.entries.sort(key=lambda entry: order[entry.place])
    _defaults(report, path, settings, files)
    if "password_file" in files:
        made.users = passwords.read(files["password_file"], report)
    if "acl_file" in files:
        made.acl = acl.read(files["acl_file"], report)
        if more := acl.of_bridges(files["acl_file"], report):
            made.acl += more
            made.users.append({"name": acl.BRIDGE, "password_hash": "", "tags": []})
    made.database = _database(settings)
    return made


def _note(report: Report, one: Setting, last: Setting) -> None:
    if one.name in LISTENER or one.name in PLACES or one.name in BRIDGE:
        return
    if one.name.startswith(("auth_opt_", "plugin_opt_")):
        apply_rule(report, one.place, one.text, one.value, PLUGIN)
    elif one is not last and one.name not in _REPEATED:
        report.add(one.place, one.text, "left out", f"{last.place} sets it again")
    elif (rule := SETTINGS.get(one.name)) is not None:
        apply_rule(report, one.place, one.text, one.value, rule)
    else:
        report.add(one.place, one.text, "unknown", "Mosquitto 2.0 has no such setting")


def _defaults(report: Report, path: Path, settings: list[Setting], files: Mapping[str, Path]) -> None:
    default = Place(str(path), 0)
    for name, (key, value, note) in _DEFAULTS.items():
        if key not in report.options:
            report.move(default, f"{name} (default)", {key: value}, note)
    if not any(one.name in ("listener", "port") for one in settings):
        report.move(default, "listener (default)", {"mqtt.listen": "127.0.0.1:1883"}, "this machine only")
        report.options.setdefault("mqtt.allow_anonymous", "loopback")
    anonymous = report.options.setdefault("mqtt.allow_anonymous", False)
    if anonymous and "password_file" not in files:
        note = "without a password_file any user name and password is accepted"
        report.move(default, "no password_file", {"mqtt.allow_any_login": anonymous}, note)


def _database(settings: list[Setting]) -> Path | None:
    said = {one.name: one.value for one in settings}
    if said.get("persistence", "false") not in ("true", "1"):
        return None
    # Mosquitto puts the two texts behind one another, and documents the slash at the end of the first.
    return Path(said.get("persistence_location", "") + said.get("persistence_file", "mosquitto.db"))
