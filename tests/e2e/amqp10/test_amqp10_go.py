"""go-amqp, Azure's client for AMQP 1.0, as it is (`go/amqp10`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.brokers import Gateway
from tests.support.go_programs import build
from tests.support.limits import LIMIT_S
from tests.support.pika_queues import declare_durable, declare_stream


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; skips when there is no Go."""
    return build("./amqp10", tmp_path_factory.mktemp("go") / "amqp10")


def test_go_amqp(program: Path, amqp_port: int, unique: str) -> None:
    queue = declare_durable(amqp_port, unique)
    declare_stream(amqp_port, f"{queue}-stream")
    done = subprocess.run(
        [program, f"amqp://guest:guest@127.0.0.1:{amqp_port}", queue],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout == "ok\n" and done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_go_amqp_connects_again_after_a_restart(program: Path, tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        url = f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}"
        words = [program, url, declare_durable(gateway.amqp_port, "q"), "restart"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "restart\n"
                gateway.restart()
                assert process.communicate("\n", LIMIT_S)[0] == "ok\n"
            finally:
                process.kill()
