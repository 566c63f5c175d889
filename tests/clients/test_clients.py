"""RabbitMQ's client for Go (`go`) and fe2o3-amqp for Rust (`rust`), as they are.

They are no part of `make test`: the one needs a newer Go than Debian 12 has, and the other compiles for
minutes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.brokers import ROOT, Gateway
from tests.support.pika_queues import declare_durable, declare_stream

_FOLDER: Final = Path(__file__).parent
_BUILT: Final = ROOT / "build" / "clients"
_LIMIT_S: Final = 300


def go() -> Path:
    program = _BUILT / "rabbitmq"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=_FOLDER / "go", check=True)
    return program


def rust() -> Path:
    subprocess.run(
        ["cargo", "build", "--quiet", "--locked", "--target-dir", str(_BUILT)],
        cwd=_FOLDER / "rust",
        check=True,
    )
    return _BUILT / "debug" / "amqp10"


@pytest.mark.parametrize("build", [go, rust])
def test_a_client_works_and_lives_through_a_restart(tmp_path: Path, build: type[Path]) -> None:
    program = build()
    with Gateway(tmp_path / "data") as gateway:
        declare_durable(gateway.amqp_port, "q")
        declare_stream(gateway.amqp_port, "q-numbers")
        url = f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}"
        with subprocess.Popen(
            [program, url, "q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdin is not None and running.stdout is not None
            try:
                lines = iter(running.stdout.readline, "")
                said = [line.strip() for line in iter(lambda: next(lines, "restart\n"), "restart\n")]
                assert running.poll() is None, said
                gateway.restart()
                running.stdin.write("\n")
                running.stdin.flush()
                assert running.wait(_LIMIT_S) == 0
                assert running.stdout.read().split("\n")[-2:] == ["ok", ""]
            finally:
                running.kill()
