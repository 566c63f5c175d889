"""Reads mosquitto.conf: one setting a line, with the files of `include_dir` at its place.

A line is a name, a space, and a value that goes on to the end of the line. `#` begins a comment as the first
character only. Source: mosquitto.conf(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.migrate.files import text_of
from penstock.migrate.report import MigrationError, Place

__all__ = ["Setting", "lines_of", "read"]

_DEPTH_MAX: Final = 10
"""Of files that include folders, as in Mosquitto."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line."""

    place: Place
    name: str
    value: str

    @property
    def text(self) -> str:
        """The line for a report: passwords and keys are masked."""
        if self.name.endswith("password") or self.name in ("bridge_psk", "tls_engine_kpass_sha1"):
            return f"{self.name} ********"
        return f"{self.name} {self.value}".rstrip()


def read(path: Path, depth: int = 0) -> Iterator[Setting]:
    """The settings of a file in their order; an `include_dir` is followed by those of its files.

    Raises:
        MigrationError: a file or folder cannot be read.

    """
    if depth > _DEPTH_MAX:
        raise MigrationError(
            f"{path} is included {depth} folders deep", remedy="include_dir goes in a circle"
        )
    for place, line in lines_of(path):
        name, _, value = line.partition(" ")
        setting = Setting(place, name, value.strip())
        yield setting
        if name == "include_dir":
            for found in _files(Path(setting.value)):
                yield from read(found, depth + 1)


def lines_of(path: Path) -> Iterator[tuple[Place, str]]:
    """The lines of a file that say something.

    Raises:
        MigrationError: it cannot be read.

    """
    text = text_of(path, "name a file of Mosquitto")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield Place(str(path), number), line.strip()


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".conf")
    except OSError as error:
        raise MigrationError(
            f"{folder} cannot be read: {error.strerror}", remedy="correct include_dir"
        ) from None
