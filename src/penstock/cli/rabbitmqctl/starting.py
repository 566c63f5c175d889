"""The verbs that wait until the gateway serves: `wait`, `await_startup`, `await_online_nodes`, `ping`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.cli.rabbitmqctl.call import Call, Failure, Groups, Usage, Verb
from penstock.cli.running.client import ApiError

__all__ = ["GROUPS", "PING", "WAIT"]

_TIMED_OUT: Final = 75
_NOT_RUNNING: Final = 69
_WAIT_S: Final = 300.0
_POLL_S: Final = 0.1


def _until(call: Call, condition: Callable[[], bool]) -> None:
    """Wait for a condition. Raises Failure when --timeout has passed."""
    timeout_s = call.seconds(_WAIT_S)
    ends = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= ends:
            said = f"operation {call.parsed.verb} timed out. Timeout value used: {timeout_s * 1000:.0f}"
            raise Failure(said, _TIMED_OUT)
        time.sleep(_POLL_S)


def _serves(call: Call) -> bool:
    """Whether the gateway answers, and its clients can connect."""
    try:
        call.client.get("health/checks/is-in-service")
    except ApiError as error:
        if error.status in (0, 503):
            return False
        raise
    return True


def _ping(call: Call) -> None:
    address = call.client.address
    call.say(f"Will ping {address}. This only checks if the management API answers.")
    call.client.get("whoami")
    print("Ping succeeded")


def _await_startup(call: Call) -> None:
    _until(call, lambda: _serves(call))


def _await_online_nodes(call: Call) -> None:
    if not call.words[0].isdecimal():
        raise Usage(f"{call.words[0]!r} is no number of nodes")
    call.say(f"Will wait for at least {call.words[0]} nodes. Timeout: {call.seconds(_WAIT_S):.0f} seconds.")
    _until(call, lambda: _serves(call) and len(call.client.get("nodes")) >= int(call.words[0]))


def _wait(call: Call) -> None:
    pid = call.parsed.pid
    if pid is None:
        if not call.words:
            raise Usage("No pid or pidfile specified")
        file = Path(call.words[0])
        call.say(f"Waiting for pid file '{file}' to appear")
        _until(call, lambda: file.is_file() and file.read_text().strip().isdecimal())
        pid = int(file.read_text())
    call.say(f"Waiting for the gateway at {call.client.address} while OS process '{pid}' is running")

    def serves() -> bool:
        if not _is_running(pid):
            raise Failure("process_not_running", _NOT_RUNNING)
        return _serves(call)

    _until(call, serves)
    call.say(f"The gateway at {call.client.address} is running")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, and running
    return True


PING: Final = Verb(_ping, "Says whether the management API answers")
WAIT: Final = Verb(
    _wait, "Waits until the gateway serves, while a process runs", "[<pidfile>] [--pid <pid>] [--timeout <s>]"
)

GROUPS: Final[Groups] = {
    "Nodes": {
        "await_startup": Verb(_await_startup, "Waits until the gateway serves", "[--timeout <s>]"),
        "wait": WAIT,
    },
    "Cluster": {
        "await_online_nodes": Verb(
            _await_online_nodes, "Waits until so many workers serve", "<count> [--timeout <s>]"
        ),
    },
    "Monitoring, observability and health checks": {"ping": PING},
}
