"""MQTT packets in plain Python, for both ends: what the kernels must agree with, written to be obvious.

`split` cuts a stream into packets; `parse_publish` and `parse_ack` take the hot ones apart by the
specification's text, raising `Fault` with the 5.0 reason code; the builders make any packet, wrong ones
included.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONNACK, SUBACK, UNSUBACK, DISCONNECT = 2, 9, 11, 14
PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 3, 4, 5, 6, 7


class Fault(Exception):
    def __init__(self, reason: int) -> None:
        super().__init__(hex(reason))
        self.reason = reason


# Building


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes((kind << 4 | flags,)) + varint(len(body)) + body


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    dup: bool = False,
    props: bytes | None = None,
) -> bytes:
    """`props` None: 3.1.1; else the 5.0 block."""
    body = text(topic)
    if qos:
        body += packet_id.to_bytes(2, "big")
    if props is not None:
        body += varint(len(props)) + props
    return packet(PUBLISH, dup << 3 | qos << 1 | retain, body + payload)


def ack(kind: int, packet_id: int, reason: int | None = None, props: bytes | None = None) -> bytes:
    body = packet_id.to_bytes(2, "big")
    if reason is not None:
        body += bytes((reason,))
        if props is not None:
            body += varint(len(props)) + props
    return packet(kind, 2 if kind == PUBREL else 0, body)


def connect(
    client_id: str,
    *,
    version: int = 4,
    clean: bool = True,
    keep_alive: int = 0,
    user: str | None = None,
    password: bytes | None = None,
    will: tuple[str, bytes, int, bool] | None = None,
    will_props: bytes = b"",
    props: bytes = b"",
    problems: bool = False,
) -> bytes:
    """`problems`: reason strings are wanted, or `props` says so; else the client wants none."""
    flags = clean << 1
    payload = text(client_id)
    if will is not None:
        topic, message, qos, retain = will
        flags |= 4 | qos << 3 | retain << 5
        if version == 5:
            payload += varint(len(will_props)) + will_props
        payload += text(topic) + text(message)
    if user is not None:
        flags |= 0x80
        payload += text(user)
    if password is not None:
        flags |= 0x40
        payload += text(password)
    head = (
        text("MQIsdp" if version == 3 else "MQTT") + bytes((version, flags)) + keep_alive.to_bytes(2, "big")
    )
    if version == 5:
        props = props if problems else b"\x17\0" + props
        head += varint(len(props)) + props
    return packet(1, 0, head + payload)


def subscribe(packet_id: int, *filters: tuple[str, int], version: int = 4, props: bytes = b"") -> bytes:
    body = packet_id.to_bytes(2, "big")
    if version == 5:
        body += varint(len(props)) + props
    return packet(8, 2, body + b"".join(text(name) + bytes((options,)) for name, options in filters))


def unsubscribe(packet_id: int, *filters: str, version: int = 4) -> bytes:
    body = packet_id.to_bytes(2, "big") + (b"\0" if version == 5 else b"")
    return packet(10, 2, body + b"".join(map(text, filters)))


def disconnect(reason: int | None = None, props: bytes | None = None) -> bytes:
    body = b"" if reason is None else bytes((reason,))
    return packet(14, 0, body + (varint(len(props)) + props if props is not None else b""))


# Reading


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position after it); raises IndexError when it is cut off, Fault when it is none."""
    value = 0
    for i in range(4):
        byte = data[at + i]
        value += (byte & 127) << (7 * i)
        if byte < 128:
            if byte == 0 and i:
                raise Fault(0x81)
            return value, at + i + 1
    raise Fault(0x81)


@dataclass
class Packet:
    kind: int
    flags: int
    body: bytes


def split(data: bytes) -> tuple[list[Packet], bytes]:
    """The whole packets in front, and the rest."""
    found = []
    at = 0
    while True:
        try:
            size, start = read_varint(data, at + 1)
        except IndexError:
            break
        if start + size > len(data):
            break
        found.append(Packet(data[at] >> 4, data[at] & 15, data[start : start + size]))
        at = start + size
    return found, data[at:]


def check_text(raw: bytes) -> str:
    try:
        value = raw.decode()
    except UnicodeDecodeError:
        raise Fault(0x81) from None
    if "\0" in value:
        raise Fault(0x81)
    return value


def check_topic(raw: bytes) -> None:
    value = check_text(raw)
    if not value or any(c in "+#" or c < " " or "\x7f" <= c < "\xa0" for c in value):
        raise Fault(0x81)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise Fault(0x81)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def field(self) -> bytes:
        return self.take(self.number(2))

    def varint(self) -> int:
        try:
            value, self.at = read_varint(self.data, self.at)
        except IndexError:
            raise Fault(0x81) from None
        return value

    @property
    def rest(self) -> bytes:
        return self.data[self.at :]


KNOWN = frozenset(
    (1, 2, 3, 8, 9, 11, 0x11, 0x12, 0x13, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1C, 0x1F)
    + tuple(range(0x21, 0x2B))
)
IN_PUBLISH = frozenset((1, 2, 3, 8, 9, 0x23, 0x26))
IN_DELIVERY = IN_PUBLISH | {11}
"""Of what comes from the gateway, where subscriptions may have identifiers."""
IN_ACK = frozenset((0x1F, 0x26))


def parse_block(block: bytes, allowed: frozenset[int]) -> dict[int, list[object]]:
    """Property identifier -> values, in order."""
    found: dict[int, list[object]] = {}
    reader = Reader(block)
    while reader.rest:
        identifier = reader.number(1)
        if identifier not in KNOWN:
            raise Fault(0x81)
        if identifier not in allowed:
            raise Fault(0x82 if identifier == 11 and allowed is IN_PUBLISH else 0x81)
        if identifier in found and identifier not in (11, 0x26):
            raise Fault(0x82)
        value: object
        if identifier == 1:
            value = reader.number(1)
            if value not in (0, 1):
                raise Fault(0x82)
        elif identifier == 2:
            value = reader.number(4)
        elif identifier == 0x23:
            value = reader.number(2)
            if value == 0:
                raise Fault(0x94)
        elif identifier == 9:
            value = reader.field()
        elif identifier == 11:
            value = reader.varint()
        elif identifier == 0x26:
            value = (check_text(reader.field()), check_text(reader.field()))
        else:
            raw = reader.field()
            value = check_text(raw)
            if identifier == 8:
                if not raw:
                    raise Fault(0x82)
                check_topic(raw)
        found.setdefault(identifier, []).append(value)
    return found


@dataclass
class Publish:
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    block: bytes = b""
    properties: dict[int, list[object]] = field(default_factory=dict)

    @property
    def alias(self) -> int:
        return int(self.properties.get(0x23, [0])[0])  # type: ignore[call-overload, no-any-return]


def parse_publish(found: Packet, version: int, allowed: frozenset[int] = IN_PUBLISH) -> Publish:
    qos = found.flags >> 1 & 3
    dup = bool(found.flags & 8)
    if qos == 3 or (dup and not qos):
        raise Fault(0x81)
    reader = Reader(found.body)
    topic = reader.field()
    packet_id = 0
    if qos:
        packet_id = reader.number(2)
        if not packet_id:
            raise Fault(0x82)
    block = b""
    if version == 5:
        block = reader.take(reader.varint())
    properties = parse_block(block, allowed)
    return Publish(topic, reader.rest, qos, bool(found.flags & 1), dup, packet_id, block, properties)


def parse_ack(found: Packet, version: int) -> tuple[int, int]:
    """(packet id, reason)."""
    if found.flags != (2 if found.kind == PUBREL else 0) and version != 3:
        raise Fault(0x81)
    reader = Reader(found.body)
    packet_id = reader.number(2)
    if not packet_id:
        raise Fault(0x82)
    if not reader.rest:
        return packet_id, 0
    if version != 5:
        raise Fault(0x81)
    reason = reader.number(1)
    if reader.rest:
        block = reader.take(reader.varint())
        if reader.rest:
            raise Fault(0x81)
        parse_block(block, IN_ACK)
    reasons = {0, 0x92} if found.kind >= PUBREL else {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
    if reason not in reasons:
        raise Fault(0x82)
    return packet_id, reason
