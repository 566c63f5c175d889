"""amqplib and MQTT.js: the Node clients, each in a script of its own under `node/`."""

from __future__ import annotations

import pika
import pytest

from tests.support.node_programs import packages as packages
from tests.support.node_programs import run


@pytest.mark.usefixtures("packages")
def test_amqplib(amqp_port: int, unique: str) -> None:
    run("amqp.js", f"amqp://guest:guest@127.0.0.1:{amqp_port}/", unique)


@pytest.mark.usefixtures("packages")
@pytest.mark.penstock_only("RabbitMQ reads `last` from the last chunk")
def test_amqplib_reads_a_stream(amqp_port: int, unique: str) -> None:
    run("stream.js", f"amqp://guest:guest@127.0.0.1:{amqp_port}/", unique)


@pytest.mark.usefixtures("packages")
@pytest.mark.penstock_only("RabbitMQ 3 speaks AMQP 1.0 by a plug-in, with other addresses")
def test_rhea(amqp_port: int, unique: str) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))
    connection.channel().queue_declare(unique, durable=True)
    connection.close()
    run("amqp10.js", str(amqp_port), unique)


@pytest.mark.parametrize("version", ["4", "5"])
def test_mqtt_js(mqtt_port: int, unique: str, version: str) -> None:
    run("mqtt.js", f"mqtt://127.0.0.1:{mqtt_port}", unique, version)
