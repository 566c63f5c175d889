"""Chapter 6 of both specifications, WebSocket. They differ only in how the gateway reports a fault.

Each version has a test for each statement (`test_6_websocket`), which calls what is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.reference import mqtt_frames as f
from tests.support.brokers import Gateway
from tests.support.websocket_wire import BINARY, TEXT, WebSocketWire

__all__ = ["frames_are_binary", "packets_and_frames", "serving", "sub_protocol"]


def serving(folder: Path) -> Iterator[int]:
    """A gateway's port for WebSocket."""
    with Gateway(folder, settings={"mqtt.ws_listen": "127.0.0.1:0"}) as gateway:
        yield gateway.ports["ws"]


def frames_are_binary(port: int, version: int, unique: str) -> None:
    """The gateway sends binary frames. A text frame ends the connection; its packet is not processed."""
    with closing(WebSocketWire(port, version)) as wire:
        wire.connect()
        wire.subscribe((unique, 0))
        wire.publish(unique, b"heard")
        assert wire.message().payload == b"heard"
        assert wire.opcodes == {BINARY}
        with closing(WebSocketWire(port, version)) as other:
            other.connect()
            other.send_frame(TEXT, other.frame(unique, b"unheard"))
            other.until_closed()
            assert other.closed_with == 1003
        wire.publish(unique, b"end")
        assert wire.message().payload == b"end"


def packets_and_frames(port: int, version: int, unique: str, goodbye: bytes) -> None:
    """A packet over many frames, many packets in one, and both at once; a fault is answered by `goodbye`."""
    with closing(WebSocketWire(port, version)) as wire:
        connect = f.connect("", version=version)
        for i in range(len(connect)):
            wire.send(connect[i : i + 1])
        assert wire.answer(2).codes == [0]
        packets = f.subscribe(1, (unique, 0), version=version) + b"\xc0\0"
        packets += b"".join(wire.frame(unique, bytes((i,)) * 100) for i in range(50))
        wire.send(packets[:7])
        for i in range(7, len(packets), 333):
            wire.send(packets[i : i + 333])
        assert {wire.next().kind, wire.next().kind} == {9, 13}
        assert wire.payloads(50) == [bytes((i,)) * 100 for i in range(50)]
        wire.send(b"\x30\xff\xff\xff\xff\x01")
        assert wire.until_closed() == goodbye


def sub_protocol(port: int, version: int) -> None:
    """The gateway selects `mqtt` among any other sub-protocols that the client offers."""
    for offered in ("mqtt", "other, mqtt", "mqtt, mqttv3.1"):
        with closing(WebSocketWire(port, version, offered)) as wire:
            assert (wire.status, wire.headers["sec-websocket-protocol"]) == (b"101", "mqtt")
            assert wire.connect().codes == [0]
    with closing(WebSocketWire(port, version, "other")) as refused:
        assert refused.status == b"400"
