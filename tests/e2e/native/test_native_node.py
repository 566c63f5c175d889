"""The native protocol as its document has it: a client in another language, written from that alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.testing import Gateway

CLIENT = Path(__file__).parents[1] / "node" / "native.js"


def test_a_client_in_javascript_publishes_and_consumes() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed: apt-get install nodejs")
    with Gateway() as gateway:
        port = gateway.url.rpartition(":")[2].partition("/")[0]
        done = subprocess.run(
            ["node", str(CLIENT), port], capture_output=True, text=True, timeout=120, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[1:-1] == ["confirmed 3", "one", "two", "three", "settled"]
