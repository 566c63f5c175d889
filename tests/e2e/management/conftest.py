"""A gateway with the management API for each module that has none of its own, and a channel to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("managed"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[Any]:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()
