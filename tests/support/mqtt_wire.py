"""An MQTT client that is nothing but a socket: it sends any bytes, wrong ones too, and shows what comes back.

It answers nothing by itself. `Wire` is the connection; `Gate` makes them for one broker and one version, and
closes them when the test ends. Frames are built by `tests.reference.mqtt_frames`, property blocks by `props`.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.reference import mqtt_frames as f
from tests.reference.mqtt_frames import Packet
from tests.support.limits import LIMIT_S

_PROPERTIES = {
    "payload_format": (0x01, 1),
    "message_expiry": (0x02, 4),
    "content_type": (0x03, "text"),
    "response_topic": (0x08, "text"),
    "correlation_data": (0x09, "text"),
    "subscription_id": (0x0B, "varint"),
    "session_expiry": (0x11, 4),
    "assigned_client_id": (0x12, "text"),
    "server_keep_alive": (0x13, 2),
    "authentication_method": (0x15, "text"),
    "authentication_data": (0x16, "text"),
    "request_problem_information": (0x17, 1),
    "will_delay": (0x18, 4),
    "request_response_information": (0x19, 1),
    "response_information": (0x1A, "text"),
    "server_reference": (0x1C, "text"),
    "reason_string": (0x1F, "text"),
    "receive_maximum": (0x21, 2),
    "topic_alias_maximum": (0x22, 2),
    "topic_alias": (0x23, 2),
    "maximum_qos": (0x24, 1),
    "retain_available": (0x25, 1),
    "user": (0x26, "pair"),
    "maximum_packet_size": (0x27, 4),
    "wildcard_subscription_available": (0x28, 1),
    "subscription_ids_available": (0x29, 1),
    "shared_subscription_available": (0x2A, 1),
}
_NAMES = {identifier: (name, kind) for name, (identifier, kind) in _PROPERTIES.items()}


def props(**values: Any) -> bytes:
    """A property block without its length; a list stands for one property that occurs several times."""
    out = b""
    for name, value in values.items():
        identifier, kind = _PROPERTIES[name]
        for item in value if isinstance(value, list) else [value]:
            out += bytes((identifier,))
            if isinstance(kind, int):
                out += item.to_bytes(kind, "big")
            elif kind == "varint":
                out += f.varint(item)
            elif kind == "pair":
                out += f.text(item[0]) + f.text(item[1])
            else:
                out += f.text(item)
    return out


def read_props(reader: f.Reader) -> dict[str, list[Any]]:
    """A property block with its length: name -> values, texts and binary values as bytes."""
    block = f.Reader(reader.take(reader.varint()))
    found: dict[str, list[Any]] = {}
    while block.rest:
        name, kind = _NAMES[block.number(1)]
        value: Any
        if isinstance(kind, int):
            value = block.number(kind)
        elif kind == "varint":
            value = block.varint()
        elif kind == "pair":
            value = (block.field().decode(), block.field().decode())
        else:
            value = block.field()
        found.setdefault(name, []).append(value)
    return found


def wrong_login() -> dict[str, Any]:
    """User name and password of nobody; another one each time, for failures are limited per user."""
    return {"user": "nobody" + secrets.token_hex(8), "password": b"wrong"}


class Closed(Exception):
    """The broker closed the connection."""


@dataclass
class Message:
    """A PUBLISH that came."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int = 0
    props: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class Answer:
    """CONNACK, SUBACK, UNSUBACK, a DISCONNECT or AUTH of the server, or an acknowledgement, taken apart."""

    kind: int
    packet_id: int = 0
    session_present: int = 0
    """The whole byte of flags."""
    codes: list[int] = field(default_factory=list)
    props: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def code(self) -> int:
        (only,) = self.codes
        return only


def encode(packet: Packet) -> bytes:
    """The packet's bytes."""
    return f.packet(packet.kind, packet.flags, packet.body)


class Wire:
    """One connection to a broker on 127.0.0.1."""

    def __init__(self, port: int, version: int) -> None:
        self.version = version
        self.client_id = ""
        self.connack = Answer(0)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._packets: list[Packet] = []
        self._rest = b""

    # Bytes

    def send(self, *packets: bytes) -> Wire:
        """Send in one write."""
        self.socket.sendall(b"".join(packets))
        return self

    def receive(self) -> bytes:
        """More of what the broker sends; b"" when it has closed."""
        try:
            return self.socket.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def next(self) -> Packet:
        """The next packet; `Closed` is raised when the broker closes, TimeoutError when nothing comes."""
        while not self._packets:
            data = self.receive()
            if not data:
                assert not self._rest, f"the broker closed inside a packet: {self._rest!r}"
                raise Closed
            self._packets, self._rest = f.split(self._rest + data)
        return self._packets.pop(0)

    def bytes(self) -> bytes:
        """The next packet as bytes."""
        return encode(self.next())

    def until_closed(self) -> bytes:
        """All that comes until the broker closes."""
        out = b""
        try:
            while True:
                out += self.bytes()
        except Closed:
            return out

    def ping(self) -> list[Packet]:
        """PINGREQ; what came before PINGRESP. All that the broker had to say before it is in it."""
        self.send(b"\xc0\0")
        before = []
        while (packet := self.next()).kind != 13:
            before.append(packet)
        return before

    def close(self) -> None:
        """Close without a word: the network is gone."""
        self.socket.close()

    def disconnect(self, reason: int | None = None, block: bytes | None = None) -> None:
        """DISCONNECT, and wait until the broker has closed, so that it has been seen to."""
        self.send(f.disconnect(reason, block))
        assert self.until_closed() == b""
        self.close()

    # Packets

    def connect(self, client_id: str | None = None, **options: Any) -> Answer:
        """CONNECT and wait for CONNACK; a new client id where none is given."""
        self.client_id = "c" + secrets.token_hex(8) if client_id is None else client_id
        self.send(f.connect(self.client_id, version=self.version, **options))
        self.connack = self.answer(2)
        return self.connack

    def answer(self, kind: int) -> Answer:
        """The next packet, which is of this kind, taken apart."""
        packet = self.next()
        assert packet.kind == kind, packet
        return self.parse(packet)

    def parse(self, packet: Packet) -> Answer:
        """An answer taken apart to its last byte."""
        reader = f.Reader(packet.body)
        answer = Answer(packet.kind)
        v5 = self.version == 5
        if packet.kind == 2:
            answer.session_present = reader.number(1)
            answer.codes = [reader.number(1)]
            if v5:
                answer.props = read_props(reader)
        elif packet.kind in (4, 5, 6, 7):
            answer.packet_id = reader.number(2)
            answer.codes = [reader.number(1)] if v5 and reader.rest else [0]
            if reader.rest:
                answer.props = read_props(reader)
        elif packet.kind in (9, 11):
            answer.packet_id = reader.number(2)
            if v5:
                answer.props = read_props(reader)
            answer.codes = list(reader.take(len(reader.rest)))
        else:
            answer.codes = [reader.number(1)] if reader.rest else [0]
            if reader.rest:
                answer.props = read_props(reader)
        assert not reader.rest, packet
        return answer

    def subscribe(self, *filters: tuple[str, int], block: bytes = b"", packet_id: int = 1) -> list[int]:
        """SUBSCRIBE and wait for SUBACK; its codes."""
        self.send(f.subscribe(packet_id, *filters, version=self.version, props=block))
        answer = self.answer(9)
        assert answer.packet_id == packet_id
        return answer.codes

    def unsubscribe(self, *filters: str, packet_id: int = 1) -> list[int]:
        """UNSUBSCRIBE and wait for UNSUBACK; its codes."""
        self.send(f.unsubscribe(packet_id, *filters, version=self.version))
        answer = self.answer(11)
        assert answer.packet_id == packet_id
        return answer.codes

    def frame(self, topic: str | bytes, payload: bytes = b"", **options: Any) -> bytes:
        """A PUBLISH in this connection's version; `block` are its properties."""
        block = options.pop("block", b"")
        return f.publish(topic, payload, props=block if self.version == 5 else None, **options)

    def publish(self, topic: str | bytes, payload: bytes = b"", **options: Any) -> Wire:
        """Send a PUBLISH and wait for nothing."""
        return self.send(self.frame(topic, payload, **options))

    def published(self, topic: str, payload: bytes = b"", *, qos: int = 1, **options: Any) -> Wire:
        """Publish at QoS 1 or 2, and go through the whole exchange."""
        self.publish(topic, payload, qos=qos, packet_id=77, **options)
        if qos == 1:
            assert self.answer(4).packet_id == 77
        else:
            assert self.answer(5).packet_id == 77
            self.send(f.ack(f.PUBREL, 77))
            assert self.answer(7).packet_id == 77
        return self

    def message(self) -> Message:
        """The next packet, which is a PUBLISH."""
        packet = self.next()
        assert packet.kind == 3, packet
        return self.parse_publish(packet)

    def parse_publish(self, packet: Packet) -> Message:
        """A PUBLISH taken apart."""
        reader = f.Reader(packet.body)
        qos = packet.flags >> 1 & 3
        message = Message(reader.field().decode(), b"", qos, bool(packet.flags & 1), bool(packet.flags & 8))
        if qos:
            message.packet_id = reader.number(2)
        if self.version == 5:
            message.props = read_props(reader)
        message.payload = reader.rest
        return message

    def messages(self, count: int) -> list[Message]:
        """The next packets, all PUBLISH."""
        return [self.message() for _ in range(count)]

    def payloads(self, count: int) -> list[bytes]:
        """The payloads of the next packets, all PUBLISH."""
        return [message.payload for message in self.messages(count)]

    def puback(self, packet_id: int, reason: int | None = None) -> Wire:
        return self.send(f.ack(f.PUBACK, packet_id, reason))

    def pubrec(self, packet_id: int, reason: int | None = None) -> Wire:
        return self.send(f.ack(f.PUBREC, packet_id, reason))

    def pubrel(self, packet_id: int, reason: int | None = None) -> Wire:
        return self.send(f.ack(f.PUBREL, packet_id, reason))

    def pubcomp(self, packet_id: int, reason: int | None = None) -> Wire:
        return self.send(f.ack(f.PUBCOMP, packet_id, reason))


class Gate:
    """Makes connections to one broker in one version, and closes them."""

    def __init__(self, port: int, version: int) -> None:
        self.port = port
        self.version = version
        self._open: list[Wire] = []

    def wire(self, version: int | None = None) -> Wire:
        """A connection that has said nothing."""
        wire = Wire(self.port, version or self.version)
        self._open.append(wire)
        return wire

    def connect(self, client_id: str | None = None, *, version: int | None = None, **options: Any) -> Wire:
        """A connection whose CONNECT was accepted."""
        wire = self.wire(version)
        connack = wire.connect(client_id, **options)
        assert connack.codes == [0], connack
        return wire

    def lasting(self, client_id: str, expiry_s: int = 300, **options: Any) -> Wire:
        """A connection of a session that outlives it (in 3.1.1 for as long as the broker allows)."""
        if self.version == 5:
            options["props"] = options.get("props", b"") + props(session_expiry=expiry_s)
        return self.connect(client_id, clean=False, **options)

    def matching(self, filter_: str, topics: Iterable[str], end: str) -> list[str]:
        """Those of the topics that the filter matches; `end` is another topic, to know the end by."""
        sub = self.subscriber(filter_, end)
        pub = self.connect()
        for topic in [*topics, end]:
            pub.publish(topic)
        found = []
        while (topic := sub.message().topic) != end:
            found.append(topic)
        return found

    def subscriber(self, *filters: str | tuple[str, int], block: bytes = b"", **options: Any) -> Wire:
        """A connection that is subscribed: at QoS 2 where a filter stands alone."""
        wire = self.connect(**options)
        lines = [(line, 2) if isinstance(line, str) else line for line in filters]
        assert wire.subscribe(*lines, block=block) == [options_ & 3 for _, options_ in lines]
        return wire

    def refused(self, data: bytes, version: int | None = None) -> bytes:
        """The bytes that a connection which sends only `data` gets until it is closed."""
        return self.wire(version).send(data).until_closed()

    def fails(self, *packets: bytes, **options: Any) -> bytes:
        """The bytes that a connected client which sends these gets until it is closed."""
        return self.connect(**options).send(*packets).until_closed()

    def close(self) -> None:
        """Close what is open."""
        for wire in self._open:
            wire.close()

    def retained(self, topic: str) -> list[Message]:
        """The retained messages that a new subscription of a topic gets."""
        wire = self.connect()
        wire.subscribe((topic, 2))
        found = [wire.parse_publish(packet) for packet in wire.ping() if packet.kind == 3]
        wire.close()
        return found


def payloads(messages: Iterable[Message]) -> list[bytes]:
    """The payloads alone."""
    return [message.payload for message in messages]
