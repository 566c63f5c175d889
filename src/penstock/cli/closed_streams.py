"""Standard streams that a command is started without, as by `<&-` and `>&-` of a shell."""

from __future__ import annotations

import os
import sys

from penstock.errors import PenstockError

__all__ = ["replace_closed_streams"]


def replace_closed_streams(*, silent: bool) -> None:
    """Make a closed standard input empty, and let nothing else have the numbers of the three streams.

    Args:
        silent: The command does its work without output, too. Another one may take messages that nobody
            would see.

    Raises:
        PenstockError: standard output is closed, and the command is not silent.

    """
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
