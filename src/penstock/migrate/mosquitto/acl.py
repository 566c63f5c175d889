"""Reads Mosquitto's acl_file, whose syntax penstock has, too, and adds a right for the move itself."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import StartError
from penstock.migrate.mosquitto.conf import lines_of
from penstock.migrate.report import Place, Report
from penstock.protocols.mqtt.auth.acl import AclFile

__all__ = ["BRIDGE", "MOVER", "of_bridges", "read"]

MOVER: Final = "penstock-migrate"
"""The user who puts messages into penstock. It exists while that happens."""
BRIDGE: Final = "penstock-bridge"
"""The user of bridges where there is an ACL file: Mosquitto's own rules do not count. It has no password."""
_OF_BRIDGES: Final = f"""
# Mosquitto's rules count for no bridge. This is the user of bridges here.
user {BRIDGE}
topic readwrite #
topic readwrite $SYS/broker/connection/#
"""
_NOTE: Final = f"""
# For `penstock migrate mosquitto --apply`, whose user this is while it runs. Delete these lines afterwards.
user {MOVER}
topic readwrite #
"""


def read(path: Path, report: Report) -> str:
    """The text of a file for penstock. A line that it cannot read is a comment there.

    Raises:
        MigrationError: it cannot be read.

    """
    lines: list[str] = []
    for place, line in lines_of(path):
        try:
            AclFile(line, str(path), "")
        except StartError as error:
            loose = "; more is allowed than before" if "deny" in line.split() else ""
            report.add(place, line, "left out", f"{error.remedy}{loose}")
            lines.append(f"# left out: {line}")
        else:
            report.add(place, line, "moved", "mqtt.acl_file, whose syntax is the same")
            lines.append(line)
    return "\n".join(lines) + "\n" + _NOTE


def of_bridges(path: Path, report: Report) -> str:
    """The lines for bridges that have no local_username: they become those of a user of their own."""
    tables = report.options.get("links.bridges")
    found = tables if isinstance(tables, list) else []
    without = [one for one in found if isinstance(one, dict) and "local_username" not in one]
    if not without:
        return ""
    for table in without:
        table["local_username"] = BRIDGE
    note = f"the user {BRIDGE}, who may use every topic and has no password"
    report.add(Place(str(path), 0), "no rule counts for a bridge", "moved", note)
    return _OF_BRIDGES
