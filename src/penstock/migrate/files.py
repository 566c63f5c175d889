"""Reads the files of other brokers."""

from __future__ import annotations

from pathlib import Path

from penstock.migrate.report import MigrationError

__all__ = ["text_of"]


def text_of(path: Path, remedy: str) -> str:
    """The text of a file in UTF-8. Raises MigrationError with `remedy`: it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise MigrationError(f"{path} cannot be read: {error.strerror}", remedy=remedy) from None
    except UnicodeDecodeError as error:
        raise MigrationError(f"{path} is no text in UTF-8: {error}", remedy=remedy) from None
