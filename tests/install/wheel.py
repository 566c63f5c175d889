"""The wheel from nothing to a message: `make install-checks`.

An empty environment gets the wheel and its core dependencies. The gateway starts from there, and the SDK of
that environment sends a message and reads it. Nothing of this checkout is imported.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

LIMIT_S = 60.0
MOST_BYTES = 10_000_000
LISTENERS = ("amqp", "mqtt", "native", "http", "management", "metrics")

PROGRAM = """
import sys
import penstock.sync

with penstock.sync.connect(sys.argv[1]) as client:
    with client.subscribe("hello", "first", start="earliest") as consumer:
        with client.producer("hello") as producer:
            producer.send(b"from the wheel")
        message = consumer.receive(timeout_s=30)
        assert message is not None and message.value == b"from the wheel", message
        consumer.ack(message)
"""


def check(wheel: Path) -> None:
    """Raises AssertionError, CalledProcessError."""
    assert wheel.stat().st_size < MOST_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes"
    assert "manylinux" in wheel.name, f"{wheel.name} is for this machine alone"
    with tempfile.TemporaryDirectory(prefix="penstock-install-") as text:
        folder = Path(text)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env/bin/python"
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        began = time.monotonic()
        subprocess.run([*pip, str(wheel)], check=True, cwd=folder)
        print(f"installed in {time.monotonic() - began:.1f} s")
        serves([str(python.with_name("penstock"))], [str(python), "-c"], "", folder)


def serves(command: list[str], python: list[str], prefix: str, folder: Path) -> None:
    """Start a gateway, send a message and read it.

    Args:
        command: The words of `penstock`.
        python: The words in front of a program in Python, which has `prefix` before it.
        prefix: See `python`.
        folder: For data.

    Raises:
        AssertionError, CalledProcessError: it does not work.

    """
    words = [*command, "serve", "--data", str(folder / "data")]
    for name in LISTENERS:
        words += ["--set", f"{name}.listen=127.0.0.1:0"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    began = time.monotonic()
    gateway = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=clean)
    try:
        assert gateway.stdout is not None
        ready = gateway.stdout.readline()
        print(f"ready in {time.monotonic() - began:.2f} s")
        found = re.search(r" native=(\S+)", ready)
        assert found is not None, ready
        url = f"penstock://guest:guest@{found[1]}"
        subprocess.run([*python, prefix + PROGRAM, url], check=True, cwd=folder, env=clean, timeout=LIMIT_S)
        print("a message went through")
        gateway.terminate()
        assert gateway.wait(LIMIT_S) == 0
    finally:
        gateway.kill()
        gateway.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    try:
        check(parser.parse_args().wheel.absolute())
    except (AssertionError, subprocess.SubprocessError) as error:
        sys.exit(f"the wheel does not work: {error}")
