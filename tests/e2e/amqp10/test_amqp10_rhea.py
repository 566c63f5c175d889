"""rhea, the client for Node, unmodified (`node/amqp10_sources.js`).

`gateway/test_node.py` has its work queue.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.node_programs import NODE, run
from tests.support.node_programs import packages as packages
from tests.support.pika_queues import declare_durable

_SCRIPT = "amqp10_sources.js"


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("scenario", ["topics", "durable", "shared", "stream"])
def test_rhea(amqp_port: int, unique: str, scenario: str) -> None:
    stream = f"{unique}-stream"
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        connection.channel().queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    run(_SCRIPT, str(amqp_port), unique, stream, scenario)


@pytest.mark.usefixtures("packages")
def test_rhea_comes_back_after_a_restart(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        declare_durable(gateway.amqp_port, "q")
        words = ["node", _SCRIPT, str(gateway.amqp_port), "q", "-", "restart"]
        with subprocess.Popen(
            words, cwd=NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "restart\n"
                gateway.restart()
                assert process.communicate("\n", LIMIT_S)[0] == "ok\n"
            finally:
                process.kill()
