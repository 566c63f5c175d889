"""The load of clients that come and go: it counts those that get no login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.connections.churn import amqp_logins, measure, mqtt_logins, mqtt_storm
from tests.support.brokers import Gateway

ROOM = 20


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"server.max_connections": str(ROOM)}
    with Gateway(tmp_path_factory.mktemp("churn"), settings=settings) as gateway:
        yield gateway


def test_a_storm_counts_the_clients_that_a_limit_refuses(gateway: Gateway) -> None:
    assert measure(mqtt_storm, gateway.pid, gateway.mqtt_port, ROOM + 30).refused == 30


def test_clients_that_leave_make_room(gateway: Gateway) -> None:
    assert mqtt_logins(gateway.mqtt_port, 2 * ROOM) == 0
    assert amqp_logins(gateway.amqp_port, 2 * ROOM) == 0
