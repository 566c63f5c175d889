"""Clients of RabbitMQ's management API, unmodified: rabbitmqadmin, Kombu and Flower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


def rabbitmqadmin(gateway: Gateway, *words: str) -> str:
    program = next(Path("/usr/lib/rabbitmq/lib").glob("*/plugins/rabbitmq_management-*/priv/www/cli"), None)
    if program is None:
        pytest.skip("rabbitmqadmin is not installed: apt-get install rabbitmq-server")
    done = subprocess.run(
        [sys.executable, str(program / "rabbitmqadmin"), "-P", str(gateway.ports["management"]), *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rabbitmqadmin_works_unmodified(api: Api, gateway: Gateway) -> None:
    def admin(*words: str) -> str:
        return rabbitmqadmin(gateway, *words)

    assert admin("declare", "exchange", "name=adm", "type=fanout") == "exchange declared\n"
    assert admin("declare", "queue", "name=admq", "durable=true") == "queue declared\n"
    assert admin("declare", "binding", "source=adm", "destination=admq") == "binding declared\n"
    assert admin("publish", "exchange=adm", "routing_key=x", "payload=hello") == "Message published\n"
    rows = json.loads(admin("-f", "raw_json", "get", "queue=admq", "ackmode=ack_requeue_false"))
    assert [row["payload"] for row in rows] == ["hello"]
    for what in (
        "connections channels consumers exchanges queues bindings users vhosts permissions nodes "
        "parameters policies operator_policies vhost_limits"
    ).split():
        admin("list", what)
    assert "penstock" in admin("-f", "raw_json", "show", "overview", "product_name")
    assert "admq" in admin("list", "queues", "name", "messages")
    admin("purge", "queue", "name=admq")
    admin("delete", "binding", "source=adm", "destination_type=queue", "destination=admq", "properties_key=~")
    admin("delete", "queue", "name=admq")
    admin("delete", "exchange", "name=adm")


KOMBU = """
import sys, kombu
with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{sys.argv[1]}//") as connection:
    manager = connection.get_manager(port=int(sys.argv[2]))
    print([queue["name"] for queue in manager.get_queues("/")], manager.get_overview()["product_name"])
"""


FLOWER = """
import asyncio, sys
from flower.utils.broker import Broker
broker = Broker(f"amqp://guest:guest@127.0.0.1:{sys.argv[1]}//", f"http://guest:guest@127.0.0.1:{sys.argv[2]}/api/")
print(asyncio.run(broker.queues(["tool-seen"])))
"""


@pytest.mark.parametrize("program", [KOMBU, FLOWER], ids=["kombu", "flower"])
def test_kombus_and_flowers_clients_read_it(gateway: Gateway, channel: Any, program: str) -> None:
    """In a process of their own: pyrabbit and Flower do not close what they open."""
    channel.queue_declare("tool-seen", durable=True)
    words = [sys.executable, "-c", program, str(gateway.amqp_port), str(gateway.ports["management"])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "tool-seen" in done.stdout
