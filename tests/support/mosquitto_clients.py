"""Mosquitto's command-line clients as child processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.limits import LIMIT_S


def command(tool: str, port: int, version: str, *words: str) -> list[str]:
    return [f"mosquitto_{tool}", "-h", "127.0.0.1", "-p", str(port), "-V", version, *words]


@contextmanager
def subscriber(
    port: int, version: str, *words: str, ready: str = "received SUBACK"
) -> Iterator[subprocess.Popen[str]]:
    """mosquitto_sub, from when one of its debug lines says so: from when it is subscribed."""
    process = subprocess.Popen(
        ["stdbuf", "-oL", *command("sub", port, version, "-d", "-W", "60", *words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if ready in line or line.startswith("Subscribed"):
                break
        else:
            raise AssertionError(f"mosquitto_sub ended with {process.wait()}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def received(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next `count` lines that are messages."""
    assert process.stdout is not None
    lines: list[str] = []
    deadline = time.monotonic() + LIMIT_S
    while len(lines) < count:
        assert time.monotonic() < deadline
        line = process.stdout.readline()
        assert line, "mosquitto_sub ended"
        if not line.startswith(("Client ", "Subscribed")):
            lines.append(line.rstrip("\n"))
    return lines


def publish(port: int, version: str, *words: str, stdin: str = "") -> None:
    subprocess.run(command("pub", port, version, *words), input=stdin, text=True, check=True, timeout=LIMIT_S)
