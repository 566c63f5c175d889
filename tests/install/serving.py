"""A gateway that was installed somewhere, started there, and a message through it by the SDK."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LIMIT_S = 600.0
"""For one step; a machine may be slow."""
LISTENERS = ("amqp", "mqtt", "native", "http", "management", "metrics")

PROGRAM = """
import sys
import penstock.sync

with penstock.sync.connect(sys.argv[1]) as client:
    with client.subscribe("hello", "first", start="earliest") as consumer:
        with client.producer("hello") as producer:
            producer.send(b"from here", key="key", headers={"number": 7})
        message = consumer.receive(timeout_s=60)
        assert message is not None and message.value == b"from here", message
        assert (message.key, message.headers["number"]) == ("key", 7), message.headers
        consumer.ack(message)
"""


def clean() -> dict[str, str]:
    """This machine's environment without what points Python at a checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def environment(folder: Path, python: str, *packages: str) -> Path:
    """A new virtual environment of that Python with some packages; its Python. Raises CalledProcessError."""
    began = time.monotonic()
    subprocess.run([python, "-m", "venv", str(folder)], check=True, env=clean())
    made = folder / "bin/python"
    pip = [str(made), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *packages], check=True, cwd=folder, env=clean())
    print(f"installed in {time.monotonic() - began:.1f} s", flush=True)
    return made


@contextlib.contextmanager
def gateway(command: Sequence[str], folder: Path) -> Iterator[str]:
    """The address of a gateway for the SDK, until the block ends; then it stops without an error.

    Args:
        command: The words of `penstock`.
        folder: For data.

    """
    words = [*command, "serve", "--data", str(folder / "data"), "--log-level", "warning"]
    for name in LISTENERS:
        words += ["--set", f"{name}.listen=127.0.0.1:0"]
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=clean())
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.search(r" native=(\S+)", ready)
        assert found is not None, f"the gateway did not become ready: {ready!r}"
        print(f"ready in {time.monotonic() - began:.2f} s", flush=True)
        yield f"penstock://guest:guest@{found[1]}"
        process.terminate()
        assert process.wait(LIMIT_S) == 0, "the gateway did not stop by SIGTERM"
    finally:
        process.kill()
        process.wait()


def send_and_read(python: Sequence[str], url: str, folder: Path, prefix: str = "") -> None:
    """Send a message and read it. Raises CalledProcessError.

    Args:
        python: The words in front of a program in Python.
        url: Of the gateway.
        folder: Where it runs.
        prefix: Comes before the program.

    """
    subprocess.run(
        [*python, "-c", prefix + PROGRAM, url], check=True, cwd=folder, env=clean(), timeout=LIMIT_S
    )
    print("a message went through", flush=True)
