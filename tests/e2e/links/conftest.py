"""The fixtures of the tests of shovels, each of which has a gateway of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.management import Api
from tests.support.shovels import Channel


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    """Its management API; the shovels go at the end."""
    found = Api(gateway)
    yield found
    for one in found.get("parameters/shovel"):
        found.status("DELETE", f"parameters/shovel/%2F/{one['name']}")
    found.close()


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[Channel]:
    """A channel of pika."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        yield connection.channel()
