"""One RabbitMQ for all tests that compare with it or move messages: its start takes 7 s of CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers import BrokerMissing, RabbitMQ


@pytest.fixture(scope="package")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    try:
        broker = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), plugins=("rabbitmq_management",))
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    with broker as running:
        yield running
