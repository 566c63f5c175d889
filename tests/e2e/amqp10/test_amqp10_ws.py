"""AMQP 1.0 over WebSocket, by rhea and by bare frames, and the addresses of RabbitMQ 3, by proton."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached
from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect

from penstock.protocols.amqp10.codec.frames import SASL_HEADER
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.node_programs import packages as packages
from tests.support.node_programs import run
from tests.support.pika_queues import declare_durable

pytestmark = [pytest.mark.penstock_only("this is about penstock's listeners and options")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"amqp.ws_listen": "127.0.0.1:0", "amqp.address_v1": "true"}
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


@pytest.mark.usefixtures("packages")
def test_rhea_over_a_websocket(gateway: Gateway, unique: str) -> None:
    declare_durable(gateway.amqp_port, unique)
    run("amqp10.js", "0", unique, f"ws://127.0.0.1:{gateway.ports['amqp_ws']}/amqp")


def test_the_subprotocol_is_amqp(gateway: Gateway) -> None:
    url = f"ws://127.0.0.1:{gateway.ports['amqp_ws']}/ws"
    with connect(url, subprotocols=["amqp"], open_timeout=LIMIT_S) as socket:
        assert socket.subprotocol == "amqp"
        socket.send(SASL_HEADER)
        assert socket.recv(LIMIT_S)[:8] == SASL_HEADER
    with pytest.raises(InvalidHandshake):
        connect(url, subprotocols=["mqtt"], open_timeout=LIMIT_S)


def test_addresses_of_rabbitmq_3(gateway: Gateway, unique: str) -> None:
    connection = BlockingConnection(
        f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}", timeout=LIMIT_S, allowed_mechs="PLAIN"
    )
    with pytest.raises(LinkDetached):
        connection.create_receiver(f"/amq/queue/{unique}")
    receiver = connection.create_receiver(f"/queue/{unique}", credit=10)
    topic = connection.create_receiver("/topic/a.%23", credit=10, name="topic")
    sent = [
        (f"/queue/{unique}", None),
        (f"/amq/queue/{unique}", None),
        ("/queue", unique),
        ("/topic/a.b", None),
        ("/exchange/amq.topic/a.c", None),
        ("/exchange/amq.topic", "a.d"),
    ]
    for number, (address, subject) in enumerate(sent):
        sender = connection.create_sender(address, name=f"sender {number}")
        sender.send(Message(body=f"{number}", subject=subject))
    for link, bodies in ((receiver, "012"), (topic, "345")):
        for body in bodies:
            assert link.receive(timeout=LIMIT_S).body == body
            link.accept()
    connection.close()
