"""Errors of the log core."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import LogError, StartError

__all__ = [
    "Damage",
    "LogDamaged",
    "LogFailed",
    "OutOfSequence",
    "ProducerFenced",
    "data_damaged",
    "version_unknown",
]


class Damage(LogError):
    """Bytes in a file of the log that are not what was written."""

    path: Path
    offset: int
    """Where in the file."""
    reason: str
    expected: int
    """The CRC that is stored; 0 with `found` 0: the reason is not a CRC."""
    found: int
    """The CRC of what is there."""

    def __init__(self, path: Path, offset: int, reason: str, expected: int = 0, found: int = 0) -> None:
        crc = f" (expected {expected:08x}, found {found:08x})" if expected != found else ""
        super().__init__(f"{path}, byte {offset}: {reason}{crc}")
        self.path = path
        self.offset = offset
        self.reason = reason
        self.expected = expected
        self.found = found


class LogFailed(LogError):
    """A write or sync failed: what the disk holds is unknown, so nothing more is accepted or confirmed."""

    def __init__(self, what: str, error: OSError) -> None:
        remedy = "check the disk, then restart; confirmed messages are on it"
        if isinstance(error.__cause__, LogError):  # a replicated log failed by its journal
            remedy = error.__cause__.remedy
        super().__init__(f"the log stopped: {what}: {error.strerror or error}", remedy=remedy)


class ProducerFenced(LogError):
    """A named producer of an older epoch sent something: a newer process has taken its name."""

    def __init__(self, name: bytes, epoch: int, current: int) -> None:
        super().__init__(
            f"producer {name!r} of epoch {epoch} was replaced by one of epoch {current}",
            remedy="end this process, or open a new epoch",
        )
        self.epoch = epoch
        self.current = current


class OutOfSequence(LogError):
    """A batch of a named producer does not follow the last one: what lies between is missing."""

    def __init__(self, name: bytes, first: int, expected: int) -> None:
        super().__init__(
            f"producer {name!r} sent number {first} where {expected} follows",
            remedy="send the missing messages first, or open a new epoch and begin at 0",
        )
        self.first = first
        self.expected = expected


class LogDamaged(StartError):
    """The log cannot be opened, since its durable data is damaged."""


def data_damaged(damage: Damage, copy: Path | None) -> LogDamaged:
    """Durable data is damaged: nothing is thrown away without being told to."""
    kept = f"; a copy is kept in {copy}" if copy is not None else ""
    return LogDamaged(
        f"the log is damaged: {damage.message}{kept}",
        remedy="run `penstock log repair` to see what would be lost; restore the folder from a backup, or "
        "start once with --salvage to go on without it",
    )


def version_unknown(path: Path, version: int, oldest: int, newest: int) -> StartError:
    """The data folder was written by another version of the format."""
    return StartError(
        f"{path} is in format version {version}; this penstock knows versions {oldest} to {newest}",
        remedy="use the penstock version that wrote it, or another folder with --data DIR",
    )
