"""The log names a client at the wrong listener, and the remedy; native clients are told, too."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Iterator

import pytest

from tests.reference import native_frames as wire
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S

pytestmark = [pytest.mark.penstock_only("these are penstock's words")]


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


SAID = {
    "TLS": client_hello(),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "AMQP 0-9-1": b"AMQP\0\0\x09\x01",
    "AMQP 1.0": b"AMQP\0\x01\0\0",
    "AMQP 0-10": b"AMQP\1\1\0\x0a",
    "MQTT": b"\x10\x0c\0\4MQTT\4\2\0<\0\0",
    "Kafka": struct.pack(">ihhih", 20, 18, 3, 1, 4) + b"test" + bytes(6),
    "PROXY": b"PROXY TCP4 192.0.2.1 192.0.2.2 51000 15690\r\n",
    "native": b"PENSTOCK",
    "noise": b"\xff\xfe\xfd\xfc",
}
CASES = {
    ("native", "TLS"): "speaks TLS; connect without TLS here, or to the tls_listen",
    ("native", "HTTP"): "speaks HTTP; it is spoken at http.listen",
    ("native", "AMQP 0-9-1"): "speaks AMQP 0-9-1; it is spoken at amqp.listen",
    ("native", "AMQP 1.0"): "speaks AMQP 1.0; it is spoken at amqp.listen",
    ("native", "AMQP 0-10"): "speaks AMQP, but neither 0-9-1 nor 1.0; use a client of one of these",
    ("native", "MQTT"): "speaks MQTT; it is spoken at mqtt.listen",
    ("native", "Kafka"): "speaks Kafka's protocol; it is not spoken here",
    ("native", "PROXY"): "a proxy that is not trusted; name its network in server.proxy_networks",
    ("native", "noise"): r"begins with b'\xff\xfe\xfd\xfc'; correct the client",
    ("amqp", "TLS"): "no header of AMQP 0-9-1; the client speaks TLS: connect without TLS here",
    ("amqp", "native"): "no header of AMQP 0-9-1; the client speaks penstock's native protocol: it is",
    ("amqp", "PROXY"): "no header of AMQP 0-9-1; the client speaks the PROXY protocol",
    ("mqtt", "TLS"): "CONNECT with fixed header flags; the client speaks TLS: connect without TLS here",
    ("mqtt", "AMQP 0-9-1"): "the first packet was not CONNECT; the client speaks AMQP 0-9-1: it is spoken",
    ("mqtt", "PROXY"): "the first packet was not CONNECT; the client speaks the PROXY protocol",
    (
        "natives",
        "native",
    ): "the TLS handshake failed: .*; the client speaks penstock's native protocol: it is",
    ("natives", "HTTP"): "the TLS handshake failed: .*; the client speaks HTTP: it is spoken at http.listen",
    ("natives", "MQTT"): "the TLS handshake failed: .*; the client speaks MQTT: it is spoken at mqtt.listen",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pair = Authority(tmp_path_factory.mktemp("certificates")).server()
    settings = {
        "native.listen": "127.0.0.1:0",
        "native.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


@pytest.mark.parametrize(("listener", "speaks"), CASES)
def test_the_protocol_of_the_client_is_named_with_the_remedy(
    gateway: Gateway, listener: str, speaks: str
) -> None:
    port = gateway.amqp_port if listener == "amqp" else gateway.ports[listener]
    earlier = len(gateway.log_text())  # the client of another listener may have had the same port
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        client.sendall(SAID[speaks])
        mine = f"peer=127.0.0.1:{client.getsockname()[1]} "
        answer = b""
        while data := client.recv(65536):
            answer += data
    says = CASES[listener, speaks].split(".*")
    if listener == "native":
        ((kind, id, payload),) = wire.frames(answer)
        told = json.loads(payload)
        assert (kind, id, told["code"]) == (0x0F, 0, "preface")
        assert says[0] in f"{told['message']}; {told['remedy']}"
    deadline = time.monotonic() + LIMIT_S
    while not (lines := [line for line in gateway.log_text()[earlier:].splitlines() if mine in line]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for part in says:
        assert part.replace("\\", "\\\\") in lines[0] or part in lines[0]
