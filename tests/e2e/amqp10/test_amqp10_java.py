"""RabbitMQ's Java client for AMQP 1.0, and Qpid JMS, as they are (`java/`).

Each client is one JVM for all its scenarios: a JVM takes seconds of CPU to start.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers import Gateway
from tests.support.java_programs import Program, jars
from tests.support.pika_queues import declare_durable, declare_stream

CLIENTS = {
    "RabbitClient": (
        "com.rabbitmq.client:amqp-client:0.6.0",
        "amqp://guest:guest@127.0.0.1:{}",
        ("work", "topics", "request", "stream", "priority"),
    ),
    "JmsClient": (
        "org.apache.qpid:qpid-jms-client:1.12.1",
        "failover:(amqp://127.0.0.1:{}?amqp.saslMechanisms=SCRAM-SHA-256)"
        "?failover.reconnectDelay=200&failover.useReconnectBackOff=false",
        ("work", "topics", "request", "transaction", "delay", "durable", "shared", "selectors", "stream"),
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_java_client(amqp_port: int, tmp_path: Path, unique: str, client: str) -> None:
    artifact, uri, scenarios = CLIENTS[client]
    with Program(jars(artifact), client) as program:
        for scenario in scenarios:
            name = f"{unique}-{scenario}"
            if client == "JmsClient" and scenario == "stream":
                declare_stream(amqp_port, name)
            elif client == "JmsClient":
                declare_durable(amqp_port, name)
            assert program.answer(f"{uri.format(amqp_port)} {name} {scenario}") == "ok", scenario
        with Gateway(tmp_path / "data") as gateway:
            declare_durable(gateway.amqp_port, "q")
            assert program.answer(f"{uri.format(gateway.amqp_port)} q restart") == "restart"
            gateway.restart()
            assert program.answer("") == "ok", "restart"
