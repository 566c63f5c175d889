"""Reads Mosquitto's password_file: users with their hashes, which penstock verifies as they are.

A line is `NAME:$6$SALT$HASH` (SHA-512) or `NAME:$7$ROUNDS$SALT$HASH` (PBKDF2). Source: mosquitto_passwd(1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.migrate.mosquitto.conf import lines_of
from penstock.migrate.report import Report
from penstock.router.authentication.passwords import MOSQUITTO_ALGORITHMS, imported_hash

__all__ = ["read"]


def read(path: Path, report: Report) -> list[dict[str, Any]]:
    """The users of a file, as definitions have them.

    Raises:
        MigrationError: it cannot be read.

    """
    users: dict[str, dict[str, Any]] = {}
    for place, line in lines_of(path):
        name, _, hashed = line.partition(":")
        _, _, after = hashed.partition("$")
        kind, _, rest = after.partition("$")
        algorithm = MOSQUITTO_ALGORITHMS.get(kind, "")
        try:
            if not algorithm:
                raise ValueError(
                    "its password is not hashed; Mosquitto refuses it, too (mosquitto_passwd -U)"
                )
            imported_hash(rest, algorithm)
        except ValueError as error:
            report.add(place, f"{name}:********", "wrong", str(error))
            continue
        users[name] = {"name": name, "password_hash": rest, "hashing_algorithm": algorithm, "tags": []}
        report.add(place, f"{name}:********", "moved", "a user with the same password, for MQTT topics only")
    return list(users.values())
