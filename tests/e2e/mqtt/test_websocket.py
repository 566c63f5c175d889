"""MQTT over WebSocket and WebSocket over TLS: MQTT.js and paho, unmodified."""

from __future__ import annotations

import queue
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.node_programs import NODE, packages, run
from tests.support.websocket_wire import WebSocketWire, request

__all__ = ["packages"]

pytestmark = [pytest.mark.penstock_only("this is about penstock's listeners")]

Made = tuple[Gateway, Authority]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    pair = authority.server()
    settings = {
        "mqtt.ws_listen": "127.0.0.1:0",
        "mqtt.wss_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running, authority


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_mqtt_js(made: Made, unique: str, scheme: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, authority = made
    assert (NODE / "mqtt.js").exists()
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(authority.file))
    run("mqtt.js", f"{scheme}://localhost:{gateway.ports[scheme]}/mqtt", unique, version)


@pytest.mark.parametrize("protocol", [paho.MQTTv311, paho.MQTTv5])
@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_paho_sends_itself_messages_of_all_sizes(made: Made, unique: str, scheme: str, protocol: int) -> None:
    gateway, authority = made
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        protocol=protocol,  # type: ignore[arg-type]
        transport="websockets",
        reconnect_on_failure=False,
    )
    happened: queue.Queue[object] = queue.Queue()
    client.on_subscribe = lambda *_: happened.put("subscribed")
    client.on_message = lambda c, u, message: happened.put(message.payload)
    if scheme == "wss":
        client.tls_set_context(ssl.create_default_context(cafile=str(authority.file)))
    client.ws_set_options("/ws")
    client.connect("localhost", gateway.ports[scheme])
    client.loop_start()
    client.subscribe(unique, 2)
    assert happened.get(timeout=LIMIT_S) == "subscribed"
    payloads = [bytes([i]) * size for i, size in enumerate([0, 1, 125, 126, 65535, 65536, 500_000])]
    for payload in payloads:
        client.publish(unique, payload, 2)
    assert [happened.get(timeout=LIMIT_S) for _ in payloads] == payloads
    client.disconnect()
    client.loop_stop()


def test_plain_mqtt_on_the_websocket_port_is_told_so(made: Made) -> None:
    gateway, _ = made
    with socket.create_connection(("127.0.0.1", gateway.ports["ws"]), timeout=LIMIT_S) as client:
        client.sendall(b"\x10\x0c\0\4MQTT\4\2\0<\0\0" + b"\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_an_answer_has_one_packet_in_each_frame(made: Made) -> None:
    """Also what is answered to packets that came in one frame, and what one turn delivers."""
    wire = WebSocketWire(made[0].ports["ws"], 4)
    pings = [f.packet(12, 0, b"")] * 3
    wire.send(f.connect("frames"), f.subscribe(1, ("frames/#", 1)), *pings)
    frames = [wire.receive() for _ in range(5)]
    assert [frame[0] >> 4 for frame in frames] == [2, 9, 13, 13, 13]
    wire.send(*(f.publish("frames/a", b"x" * size, qos=1, packet_id=1 + size) for size in range(200)))
    for _ in range(400):
        (packet,), rest = f.split(wire.receive())
        assert packet.kind in (3, 4) and not rest
    wire.close()


def test_anonymous_pages_of_other_machines_are_refused(made: Made) -> None:
    gateway, _ = made
    connect = b"\x82\x8e\0\0\0\0\x10\x0c\0\4MQTT\4\2\0<\0\0"
    for origin, code in ((None, 0), ("http://localhost", 0), ("https://evil.example", 5)):
        with socket.create_connection(("127.0.0.1", gateway.ports["ws"]), timeout=LIMIT_S) as client:
            client.sendall(request(Origin=origin) + connect)
            stream = client.makefile("rb")
            while stream.readline() != b"\r\n":
                pass
            assert stream.read(6) == b"\x82\x04\x20\x02\0" + bytes([code])


def test_only_listed_pages_and_paths_are_served(tmp_path: Path) -> None:
    settings = {
        "mqtt.ws_listen": "127.0.0.1:0",
        "mqtt.ws_origins": "https://good.example",
        "mqtt.ws_paths": "/mqtt,/only/here",
    }
    with Gateway(tmp_path, settings=settings) as gateway:
        for path, origin, status in (
            ("/mqtt", "https://good.example", b"101"),
            ("/only/here", None, b"101"),
            ("/mqtt", "https://bad.example", b"403"),
            ("/ws", "https://good.example", b"404"),
        ):
            with socket.create_connection(("127.0.0.1", gateway.ports["ws"]), timeout=LIMIT_S) as client:
                client.sendall(request(path, Origin=origin))
                assert client.recv(100).split()[1] == status, (path, origin)
