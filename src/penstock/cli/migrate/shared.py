"""Shared by the verbs of `penstock migrate`: a client that retries, listeners, reports."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.running.client import ApiError, Client
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.migrate.report import Report

__all__ = ["RetryingClient", "add_wait", "listener_of", "place", "show", "write"]

_WAIT_S: Final = 600.0
"""A RabbitMQ that was killed reads its queues when it starts again: a million messages take minutes."""
_PAUSE_S: Final = 0.5


def add_wait(command: argparse.ArgumentParser) -> None:
    """The option that says how long a broker may be away."""
    command.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=_WAIT_S,
        help=f"how long either broker may be away ({_WAIT_S:g})",
    )


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return found


class RetryingClient:
    """A client that waits for a broker that starts again, and says so.

    Args:
        client: Sends the requests.
        wait_s: How long it waits.
        known: Whether the broker has answered before, to an earlier run of the same move. One that never
            answered is not waited for: the address may be wrong.

    """

    def __init__(self, client: Client, wait_s: float, *, known: bool = False) -> None:
        self._client = client
        self._wait_s = wait_s
        self._known = known

    def request(self, method: str, path: str, body: object = None) -> Any:
        """See `Client.request`. Requests of a move may be repeated."""
        until = 0.0
        while True:
            try:
                answer = self._client.request(method, path, body)
                self._known = True
                return answer
            except ApiError as error:
                if error.status != 0 or not self._known:
                    raise
                if not until:
                    until = time.monotonic() + self._wait_s
                    print(f"penstock: {error}; trying for {self._wait_s:g} s", file=sys.stderr)
                elif time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_S)


def listener_of(api: RetryingClient, protocol: str, address: str) -> tuple[str, int]:
    """Host and port of a listener without TLS, as the management API at `address` (HOST:PORT) says."""
    for listener in api.request("GET", "overview")["listeners"]:
        if listener["protocol"] == protocol:
            return address.rpartition(":")[0], int(listener["port"])
    raise ConfigError(f"{address} says no {protocol} listener without TLS; name one as HOST:PORT")


def place(text: str) -> tuple[str, int]:
    """HOST:PORT in two. Raises ConfigError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def show(report: Report, output: str) -> None:
    """Print the fates of all lines, and the options that come of them."""
    if output == "json":
        entries = [
            {"place": str(e.place), "line": e.text, "fate": e.fate, "note": e.note} for e in report.entries
        ]
        print(json.dumps({"entries": entries, "options": report.shown()}, indent=2))
        return
    for line in report.lines():
        print(line)
    if report.options:
        print("\n# penstock.toml\n" + report.toml(secrets=False), end="")


def write(path: Path, text: str) -> None:
    """Write a file. Raises ConfigError."""
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"cannot write it: {error.strerror}", source=str(path)) from error
