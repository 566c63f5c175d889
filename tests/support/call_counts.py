"""The gateway, with its calls of Python functions counted.

    python -m tests.support.call_counts COUNTS serve ...

SIGUSR1 begins to count anew. SIGUSR2 ends that and writes COUNTS, a JSON object: how many Python functions
the interpreter ran in the loop's thread, by the outermost of them, which is what called into Python. Of what
a thread handed to the loop it is the function handed over. Functions of compiled modules do not count.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any


class _Calls:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._roots: list[FrameType] = []

    def begin(self, _: int, interrupted: FrameType | None) -> None:
        """Count from now on; a function that runs at this moment is the outermost of those it calls."""
        self._counts.clear()
        self._roots.clear()
        outermost = None
        while interrupted is not None and Path(interrupted.f_code.co_filename).name != "runners.py":
            outermost, interrupted = interrupted, interrupted.f_back
        if interrupted is not None and outermost is not None:
            self._roots.append(outermost)
        sys.setprofile(self._seen)

    def end(self, *_: object) -> None:
        sys.setprofile(None)
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._counts))
        os.replace(beside, self._path)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            if not self._roots:
                if frame.f_code.co_qualname == "Mailbox.drain":
                    return
                self._roots.append(frame)
            code = self._roots[0].f_code
            self._counts[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1
        elif event == "return" and self._roots and self._roots[0] is frame:
            self._roots.clear()


def main() -> None:
    """Run the command line after the first argument."""
    from penstock.cli import main as penstock

    calls = _Calls(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, calls.begin)
    signal.signal(signal.SIGUSR2, calls.end)
    sys.argv[1:2] = []
    sys.exit(penstock())


if __name__ == "__main__":
    main()
