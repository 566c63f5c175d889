"""Standard streams and words as a shell may give them: closed (`<&-`, `>&-`), or not in UTF-8.

The bytes of standard input are read as UTF-8; those that are none become lone surrogates, which `bytes_of`
makes bytes again. Characters that standard output cannot have are escaped.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from penstock.errors import ConfigError, PenstockError

__all__ = ["as_text", "bytes_of", "prepare_streams"]


def prepare_streams(*, silent: bool) -> None:
    """Make the standard streams fit for a command. A closed standard input is empty.

    Args:
        silent: The command does its work without output, too. Another one may take messages that nobody
            would see.

    Raises:
        PenstockError: standard output is closed, and the command is not silent.

    """
    if not (sys.stdin and sys.stdout and sys.stderr):
        _replace_closed(silent)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _replace_closed(silent: bool) -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if not sys.stdin:
        sys.stdin = open(0, closefd=False)
    if not sys.stderr:
        sys.stderr = open(2, "w", closefd=False)
    if not sys.stdout:
        sys.stdout = open(1, "w", closefd=False)
        if not silent:
            raise PenstockError("standard output is closed", remedy="open it, or throw it away: >/dev/null")


def as_text(words: Sequence[str]) -> list[str]:
    """The words of a command line, whatever the locale. Raises ConfigError: one is not UTF-8."""
    try:
        return [bytes_of(word).decode() for word in words]
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{error.object!r} is not UTF-8", remedy="standard input of pub takes other bytes"
        ) from error


def bytes_of(text: str) -> bytes:
    """The bytes that were read as this text."""
    return text.encode(errors="surrogateescape")
