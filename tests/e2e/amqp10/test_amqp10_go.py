"""go-amqp, Azure's client for AMQP 1.0, as it is (`go/amqp10`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.go_programs import build
from tests.support.limits import LIMIT_S
from tests.support.pika_queues import declare_durable


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; skips when there is no Go."""
    return build("./amqp10", tmp_path_factory.mktemp("go") / "amqp10")


def test_go_amqp(program: Path, amqp_port: int, unique: str) -> None:
    queue = declare_durable(amqp_port, unique)
    done = subprocess.run(
        [program, f"amqp://guest:guest@127.0.0.1:{amqp_port}", queue],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout == "ok\n" and done.returncode == 0, f"{done.stdout}\n{done.stderr}"
