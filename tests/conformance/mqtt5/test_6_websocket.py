"""MQTT 5.0, chapter 6: WebSocket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Gateway
from tests.support.websocket_wire import BINARY, TEXT, WebSocketWire

VERSION = 5


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    settings = {"mqtt.ws_listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as gateway:
        yield gateway.ports["ws"]


@pytest.fixture
def wire(port: int) -> Iterator[WebSocketWire]:
    wire = WebSocketWire(port, VERSION)
    yield wire
    wire.close()


def test_mqtt5_6_0_0_1__frames_are_binary_and_others_close(
    wire: WebSocketWire, port: int, unique: str
) -> None:
    """What the gateway sends is; a text frame ends the connection, and its packet is not processed."""
    wire.connect()
    wire.subscribe((unique, 0))
    wire.publish(unique, b"heard")
    assert wire.message().payload == b"heard"
    assert wire.opcodes == {BINARY}
    other = WebSocketWire(port, VERSION)
    other.connect()
    other.send_frame(TEXT, other.frame(unique, b"unheard"))
    other.until_closed()
    assert other.closed_with == 1003
    other.close()
    wire.publish(unique, b"end")
    assert wire.message().payload == b"end"


def test_mqtt5_6_0_0_2__packets_and_frames_need_not_begin_together(wire: WebSocketWire, unique: str) -> None:
    """A packet over many frames, many packets in one, and both at once."""
    connect = f.connect("", version=VERSION)
    for i in range(len(connect)):
        wire.send(connect[i : i + 1])
    assert wire.answer(2).codes == [0]
    packets = f.subscribe(1, (unique, 0), version=VERSION) + b"\xc0\0"
    packets += b"".join(wire.frame(unique, bytes((i,)) * 100) for i in range(50))
    wire.send(packets[:7])
    for i in range(7, len(packets), 333):
        wire.send(packets[i : i + 333])
    assert {wire.next().kind, wire.next().kind} == {9, 13}
    assert wire.payloads(50) == [bytes((i,)) * 100 for i in range(50)]
    wire.send(b"\x30\xff\xff\xff\xff\x01")
    assert wire.until_closed() == b"\xe0\1\x81"


def test_mqtt5_6_0_0_4__the_sub_protocol_selected_is_mqtt(port: int) -> None:
    """Whatever else is offered besides it."""
    for offered in ("mqtt", "other, mqtt", "mqtt, mqttv3.1"):
        wire = WebSocketWire(port, VERSION, offered)
        assert (wire.status, wire.headers["sec-websocket-protocol"]) == (b"101", "mqtt")
        assert wire.connect().codes == [0]
        wire.close()
    refused = WebSocketWire(port, VERSION, "other")
    assert refused.status == b"400"
    refused.close()
