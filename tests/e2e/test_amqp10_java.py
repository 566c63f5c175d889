"""RabbitMQ's Java client for AMQP 1.0, and Qpid JMS, as they are (`java/`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers import Gateway
from tests.support.java_programs import jars, start
from tests.support.limits import LIMIT_S
from tests.support.pika_queues import declare_durable

CLIENTS = {
    "RabbitClient": ("com.rabbitmq.client:amqp-client:0.6.0", "amqp://guest:guest@127.0.0.1:{}"),
    "JmsClient": (
        "org.apache.qpid:qpid-jms-client:1.12.1",
        "failover:(amqp://127.0.0.1:{})?failover.reconnectDelay=200&failover.useReconnectBackOff=false",
    ),
}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the jars of both; skips when Java or Maven is not there."""
    return jars(tmp_path_factory.mktemp("jars"), *(artifact for artifact, _ in CLIENTS.values()))


@pytest.mark.parametrize(
    ("client", "scenario"),
    [(client, scenario) for client in CLIENTS for scenario in ("work", "topics", "request")]
    + [("RabbitClient", "stream"), ("RabbitClient", "priority")]
    + [("JmsClient", scenario) for scenario in ("transaction", "delay", "durable", "shared")],
)
def test_a_java_client(programs: Path, amqp_port: int, unique: str, client: str, scenario: str) -> None:
    if client == "JmsClient":
        declare_durable(amqp_port, unique)
    program = start(programs, client, CLIENTS[client][1].format(amqp_port), unique, scenario)
    with program:
        said, errors = program.communicate(timeout=LIMIT_S)
    assert said == "ok\n", f"{said}\n{errors}"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_java_client_goes_on_after_a_restart(programs: Path, tmp_path: Path, client: str) -> None:
    with Gateway(tmp_path / "data") as gateway:
        declare_durable(gateway.amqp_port, "q")
        with start(programs, client, CLIENTS[client][1].format(gateway.amqp_port), "q", "restart") as program:
            assert program.stdout is not None
            line = program.stdout.readline()
            if line == "restart\n":
                gateway.restart()
            said, errors = program.communicate("\n", timeout=LIMIT_S)
        assert line + said == "restart\nok\n", f"{line}{said}\n{errors}"
