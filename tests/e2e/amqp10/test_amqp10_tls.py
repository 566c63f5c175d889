"""AMQP 1.0 over TLS, logins by client certificate and without a name, and idle time-outs."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame
from penstock.protocols.amqp10.codec.performatives import Open, SaslInit
from tests.support.brokers import Gateway
from tests.support.certificates import Authority, Pair
from tests.support.limits import LIMIT_S

pytestmark = [pytest.mark.penstock_only("this is about penstock's listeners")]

PLANT = "O=plant,CN=pump"


@pytest.fixture(scope="module")
def gateway(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pair = authority.server()
    settings = {
        "amqp.tls_listen": "127.0.0.1:0",
        "amqp.heartbeat_s": "1",
        "amqp.allow_anonymous": "loopback",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "tls.ca_file": str(authority.file),
        "tls.verify_client": "optional",
        "auth.users": f"[{{name='{PLANT}', password='unused'}}]",
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


def connect(
    gateway: Gateway, authority: Authority, mechanism: str, client: Pair | None = None
) -> BlockingConnection:
    """A connection over TLS that has to log in like this."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority.file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, str(authority.file))
    if client is not None:
        domain.set_credentials(str(client.cert), str(client.key), None)
    login = "guest:guest@" if mechanism == "PLAIN" else ""
    return BlockingConnection(
        f"amqps://{login}localhost:{gateway.ports['amqps']}",
        timeout=LIMIT_S,
        ssl_domain=domain,
        allowed_mechs=mechanism,
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "EXTERNAL", "ANONYMOUS"])
def test_messages_go_over_tls(gateway: Gateway, authority: Authority, mechanism: str) -> None:
    client = authority.client("pump") if mechanism == "EXTERNAL" else None
    connection = connect(gateway, authority, mechanism, client)
    receiver = connection.create_receiver(None, dynamic=True)
    body = bytes(range(256)) * 4096
    sender = connection.create_sender(receiver.link.remote_source.address)
    sender.send(Message(body=body, inferred=True))
    assert bytes(receiver.receive(timeout=LIMIT_S).body) == body
    connection.close()


def test_a_certificate_of_nobody_does_not_log_in(gateway: Gateway, authority: Authority) -> None:
    with pytest.raises(ConnectionException, match="EXTERNAL"):
        connect(gateway, authority, "EXTERNAL", authority.client("stranger"))


def test_external_is_not_offered_without_a_certificate(gateway: Gateway, authority: Authority) -> None:
    with pytest.raises(ConnectionException):
        connect(gateway, authority, "EXTERNAL")


def test_a_connection_that_is_kept_alive_stays(gateway: Gateway) -> None:
    """Both sides want to hear something every second or two, and do."""
    connection = BlockingConnection(
        f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}",
        timeout=LIMIT_S,
        heartbeat=4,
        allowed_mechs="PLAIN",
    )
    end = time.monotonic() + 5
    connection.wait(lambda: time.monotonic() > end, timeout=LIMIT_S)
    sender = connection.create_sender("topic://alive")
    sender.send(Message(body="m"))
    connection.close()


def test_a_client_that_falls_silent_is_dropped(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.amqp_port), LIMIT_S) as peer:
        login = SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest"), kind=SASL) + HEADER
        peer.sendall(login + encode_frame(0, Open("silent")))
        began = time.monotonic()
        while True:
            try:
                if not peer.recv(65536):
                    break
            except ConnectionResetError:
                break
        assert time.monotonic() - began > 1.5
