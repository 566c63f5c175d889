"""The program behind `tests.support.forks`: imports the gateway once, and is forked for each one that starts.

It runs as a script, not as a module of the tests: a gateway does not see these. A request comes over the
socket at file descriptor 0, with the file of the output and a pipe; the pipe tells the process id, and later
how the process ended. It ends when nobody holds the other end of the socket.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from typing import Any

_REQUEST_BYTES_MAX = 1 << 20


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. In a child: module and words of its command; else None: there is no one left."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tell: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            while tell and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pipe = tell.pop(ended[0])
                _write(pipe, os.waitstatus_to_exitcode(ended[1]))
                os.close(pipe)
        if requests in ready:
            data, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 2)
            if not data:
                return None
            output, pipe = files
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return _become(json.loads(data), output)
            os.close(output)
            tell[pid] = pipe
            _write(pipe, pid)


def _write(pipe: int, number: int) -> None:
    try:
        os.write(pipe, b"%d\n" % number)
    except BrokenPipeError:  # nobody waits for this one
        pass


def _become(asked: dict[str, Any], output: int) -> list[str]:
    os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, at in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(file, at)
    os.closerange(3, 1024)
    # As `python -m` does.
    further = asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [asked["cwd"], *(place for place in further if place not in sys.path)]
    words: list[str] = asked["words"]
    return [asked["module"], *words]


if __name__ == "__main__":
    from hashes import keep_hashes  # beside this script

    del sys.path[0]
    from penstock.cli import main
    from penstock.gateway import server  # noqa: F401  # with all that it imports

    keep_hashes()
    gc.collect()
    asked_of = socket.socket(fileno=os.dup(0))
    command = serve(asked_of)
    if command is not None:
        asked_of.detach()
        module, *sys.argv[1:] = command
        if module == "penstock":
            sys.exit(main())
        runpy.run_module(module, run_name="__main__", alter_sys=True)
