"""amqp091-go: its ordinary program, built and run (`go/main.go`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

GO = Path(__file__).parent / "go"

# Its standard library is compiled once on a new machine.


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; skips when there is no Go."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("Go is not installed: apt-get install golang-go")
    built = tmp_path_factory.mktemp("go") / "amqp"
    done = subprocess.run(
        [go, "build", "-o", str(built), "."], cwd=GO, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return built


def test_amqp091_go(program: Path, amqp_port: int, unique: str) -> None:
    done = subprocess.run(
        [program, f"amqp://guest:guest@127.0.0.1:{amqp_port}/", unique],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ok\n" and done.returncode == 0, f"{done.stdout}\n{done.stderr}"
