"""The gateway, with a fault at one of its awaits.

    python -m tests.support.await_faults PLACES NUMBER serve ...

A place is an await of a coroutine of ours in the loop's thread: function and line. Each place that is new
becomes a line of the file PLACES. At the NUMBER-th of them the await raises OSError (EIO), as if what it
waits for had failed; 0: none does. A fault that is thrown into an await whose work goes on elsewhere, as
that of tasks that were gathered, is harder than any that can happen.
"""

from __future__ import annotations

import dis
import errno
import inspect
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

_AWAIT: Final = dis.opmap["GET_AWAITABLE"]
_COROUTINES: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _Faults:
    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._number = number
        self._seen: set[tuple[str, int]] = set()

    def entered(self, frame: FrameType, event: str, _: Any) -> Any:
        ours = frame.f_globals.get("__name__", "").startswith("penstock.")
        if not ours or not frame.f_code.co_flags & _COROUTINES:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _: Any) -> Any:
        if event != "opcode" or frame.f_code.co_code[frame.f_lasti] != _AWAIT:
            return self._stepped
        place = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}", frame.f_lineno
        if place in self._seen:
            return self._stepped
        self._seen.add(place)
        with self._path.open("a") as file:
            file.write(f"{place[0]}:{place[1]}\n")
        if len(self._seen) == self._number:
            sys.settrace(None)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._stepped


def main() -> None:
    """Run the command line after the first two arguments."""
    from penstock.cli import main as penstock

    path, number = Path(sys.argv[1]), int(sys.argv[2])
    sys.argv = ["penstock", *sys.argv[3:]]
    sys.settrace(_Faults(path, number).entered)
    sys.exit(penstock())


if __name__ == "__main__":
    main()
