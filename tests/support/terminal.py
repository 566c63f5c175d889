"""Runs a command in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence

__all__ = ["in_terminal", "without_styles"]

_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def in_terminal(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    columns: int = 80,
    lines: int = 24,
    enough: Callable[[str], bool] | None = None,
) -> tuple[int, str]:
    """Run a command in a terminal of that size; its exit code and its output.

    When `enough` says so about the output, the command gets Ctrl-C.
    """
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    with subprocess.Popen(
        words,
        stdin=there,
        stdout=there,
        stderr=there,
        env={"TERM": "xterm-256color", **environment},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(there)
        try:
            output = _read(here, enough)
        except BaseException:
            process.kill()
            raise
        finally:
            os.close(here)
        code = process.wait(60)
    return code, output.decode().replace("\r\n", "\n")


def _read(terminal: int, enough: Callable[[str], bool] | None) -> bytes:
    output = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # Linux: the other end was closed
            return output
        if not read:
            return output
        output += read
        if enough is not None and enough(output.decode(errors="replace")):
            enough = None
            os.write(terminal, b"\x03")


def without_styles(text: str) -> str:
    """The text without its control sequences."""
    return _STYLES.sub("", text)
