"""amqp091-go: its ordinary program, built and run (`go/main.go`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.go_programs import build


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; skips when there is no Go."""
    return build(".", tmp_path_factory.mktemp("go") / "amqp")


def test_amqp091_go(program: Path, amqp_port: int, unique: str) -> None:
    done = subprocess.run(
        [program, f"amqp://guest:guest@127.0.0.1:{amqp_port}/", unique],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ok\n" and done.returncode == 0, f"{done.stdout}\n{done.stderr}"
