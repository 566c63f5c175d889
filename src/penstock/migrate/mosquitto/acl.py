"""Reads Mosquitto's acl_file, whose syntax penstock has, too, and adds a right for the move itself."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import StartError
from penstock.migrate.mosquitto.conf import lines_of
from penstock.migrate.report import Report
from penstock.protocols.mqtt.auth.acl import AclFile

__all__ = ["MOVER", "read"]

MOVER: Final = "penstock-migrate"
"""The user who puts messages into penstock. It exists while that happens."""
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
