"""Programs of Node's clients, as scripts under `tests/e2e/node`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.brokers import ROOT
from tests.support.limits import LIMIT_S

NODE = ROOT / "tests/e2e/node"


@pytest.fixture(scope="module")
def packages() -> None:
    """The packages of package.json; skips when there is no Node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed: apt-get install nodejs npm")
    if not (NODE / "node_modules" / "mqtt").is_dir() or not (NODE / "node_modules" / "amqplib").is_dir():
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=NODE, check=True, timeout=LIMIT_S)


def run(*words: str) -> None:
    done = subprocess.run(
        ["node", *words], cwd=NODE, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stdout == "ok\n", f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0


@contextmanager
def mqtt_js(port: int, *topics: str) -> Iterator[subprocess.Popen[str]]:
    words = ["node", "share.js", f"mqtt://127.0.0.1:{port}", *topics]
    process = subprocess.Popen(words, cwd=NODE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
