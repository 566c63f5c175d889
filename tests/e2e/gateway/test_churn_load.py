"""The loads of many connections: clients that come and go, and messages over each layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.connections import rows
from bench.connections.churn import ROWS, measure
from bench.connections.drive import opened
from bench.connections.logins import AMQP_LOGIN, come_and_go, mqtt_login
from bench.connections.places import Place
from tests.support.brokers import Gateway
from tests.support.certificates import Authority

ROOM = 20
ROW = {row.name: row for row in ROWS}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("churn")
    pair = Authority(folder / "certificates").server()
    settings = {
        "server.max_connections": str(ROOM),
        "mqtt.tls_listen": "127.0.0.1:0",
        "mqtt.ws_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(folder, settings=settings) as gateway:
        ports = {("mqtt", "tcp"): gateway.mqtt_port, ("amqp", "tcp"): gateway.amqp_port}
        ports["mqtt", "tls"], ports["mqtt", "ws"] = gateway.ports["mqtts"], gateway.ports["ws"]
        yield Place(gateway.pid, ports)


def test_a_storm_counts_the_clients_that_a_limit_refuses(place: Place) -> None:
    assert measure(ROW["mqtt_storm"], place, ROOM + 30).refused == 30


def test_clients_that_leave_make_room(place: Place) -> None:
    assert come_and_go(mqtt_login(), place.port("mqtt"), 2 * ROOM).refused == 0
    assert come_and_go(AMQP_LOGIN, place.port("amqp"), 2 * ROOM).refused == 0
    assert come_and_go(mqtt_login(), place.port("mqtt", "tls"), 2 * ROOM, tls=True).refused == 0


@pytest.mark.parametrize("name", ["mqtt_takeovers", "mqtt_persistent_returns"])
def test_clients_that_come_back_are_let_in(place: Place, name: str) -> None:
    assert measure(ROW[name], place, ROOM).refused == 0


@pytest.mark.parametrize(
    "row", [row for row in rows.ROWS if row.layer != "tcp" or row.flooded], ids=lambda row: row.name
)
def test_messages_arrive_over_each_layer_and_beside_a_flood(place: Place, row: rows.Row) -> None:
    row = replace(row, publishers=3, consumers=3, consumer_qos=row.qos)
    with opened(row, place.port(row.protocol, row.layer)) as clients:
        seen = clients.run(0, messages=60)
    assert seen.delivered == seen.sent >= 60
