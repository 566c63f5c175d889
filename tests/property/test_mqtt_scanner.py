"""The scanner against the reference: random packet streams, cut at random, give the same records, events,
faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core._appender import Appender, Target
from penstock.log_core._feed import Feed
from penstock.protocols.mqtt import _scan
from penstock.protocols.mqtt._ids import Inflight, Received
from penstock.protocols.mqtt._scan import Scanner
from penstock.protocols.outbuffer import OutBuffer
from penstock.router._routes import Route, RouteTable, Scope, Topology
from tests.reference import mqtt_frames as f

ALIASES = 3
LEVELS = 4
RECEIVE_MAXIMUM = 5
MAX_PACKET = 400


@dataclass
class Seen:
    """What a stream came to."""

    records: list[tuple[bytes, bytes, bytes, int]] = field(default_factory=list)
    """(topic, properties, payload, flags) of what was appended."""
    events: list[tuple[Any, ...]] = field(default_factory=list)
    answers: bytes = b""
    fault: int = 0


# The reference


class Model:
    def __init__(self, version: int) -> None:
        self.version = version
        self.seen = Seen()
        self.aliases: dict[int, bytes] = {}
        self.received: set[int] = set()
        self.used = 0

    def feed(self, data: bytes) -> Seen:
        try:
            at = 0
            while at < len(data):
                try:
                    size, start = f.read_varint(data, at + 1)
                except IndexError:
                    break
                if start + size - at > MAX_PACKET:
                    raise f.Fault(0x95)
                if start + size > len(data):
                    break
                self.packet(f.Packet(data[at] >> 4, data[at] & 15, data[start : start + size]))
                at = start + size
        except f.Fault as fault:
            self.seen.fault = fault.reason
        return self.seen

    def packet(self, packet: f.Packet) -> None:
        if packet.kind == f.PUBLISH:
            self.publish(f.parse_publish(packet, self.version))
        elif f.PUBACK <= packet.kind <= f.PUBCOMP:
            packet_id, _ = f.parse_ack(packet, self.version)
            if packet.kind == f.PUBREC:
                # Nothing is under way to this client: every id is unknown.
                self.answer(f.PUBREL, packet_id, 0x92)
            elif packet.kind == f.PUBREL:
                known = packet_id in self.received
                self.received.discard(packet_id)
                self.answer(f.PUBCOMP, packet_id, 0 if known else 0x92)
                self.used -= self.used > 0
        else:
            self.seen.events.append((packet.kind, packet.flags, packet.body))

    def publish(self, message: f.Publish) -> None:
        topic, block = message.topic, message.block
        if message.alias:
            if message.alias > ALIASES:
                raise f.Fault(0x94)
            if topic:
                self.check(topic)
                self.aliases[message.alias] = topic
            elif message.alias not in self.aliases:
                raise f.Fault(0x82)
            else:
                topic = self.aliases[message.alias]
            at = self.alias_at(block)
            block = block[:at] + block[at + 3 :]
        if not topic:
            raise f.Fault(0x82 if self.version == 5 else 0x81)
        self.check(topic)
        if message.qos == 2 and message.packet_id in self.received:
            self.answer(f.PUBREC, message.packet_id, 0)
            return
        if message.qos:
            if self.used >= RECEIVE_MAXIMUM:
                raise f.Fault(0x93)
            self.used += 1
        if message.qos == 2:
            self.received.add(message.packet_id)
        flags = (0, 2, 2 | 512)[message.qos] | (32 if message.retain else 0)
        special = topic.startswith((b"$", b"refused"))
        if not special:
            self.seen.records.append((topic, block, message.payload, flags))
        if special or message.retain:
            self.seen.events.append(("publish", topic, block, message.payload, message.qos, message.retain))
        if message.qos:
            reason = 0 if special or topic.startswith(b"r") else 0x10
            self.answer(f.PUBACK if message.qos == 1 else f.PUBREC, message.packet_id, reason)
            self.used -= message.qos == 1

    def check(self, topic: bytes) -> None:
        f.check_topic(topic)
        if topic.count(b"/") + 1 > LEVELS:
            raise f.Fault(0x90)

    def answer(self, kind: int, packet_id: int, reason: int) -> None:
        self.seen.answers += f.ack(kind, packet_id, reason if reason and self.version == 5 else None)

    def alias_at(self, block: bytes) -> int:
        reader = f.Reader(block)
        while True:
            at = reader.at
            identifier = reader.number(1)
            if identifier == 0x23:
                return at
            if identifier == 0x26:
                reader.field()
                reader.field()
            elif identifier in (1, 2):
                reader.take({1: 1, 2: 4}[identifier])
            else:
                reader.field()


# The kernel


def run_kernel(data: bytes, cuts: list[int], version: int) -> Seen:
    clock = 1_700_000_000_000
    appender = Appender(lambda: clock)
    topology = Topology()
    scope = Scope(topology, 1)
    routed = Route(Target([Feed(1)], False), (scope,), True, False, False)
    nowhere = Route(Target([], False), (scope,), False, False, False)
    refused = Route(Target([], False), (scope,), False, False, False, ValueError("refused"))

    def resolve(topic: bytes) -> Route:
        return refused if topic.startswith(b"refused") else routed if topic.startswith(b"r") else nowhere

    scanner = Scanner(appender, RouteTable(topology, 2, resolve), Inflight(), Received(), version)
    scanner.alias_maximum = ALIASES if version == 5 else 0
    scanner.max_levels = LEVELS
    scanner.receive_maximum = RECEIVE_MAXIMUM
    scanner.max_packet = MAX_PACKET
    seen = Seen()
    out = OutBuffer()
    rest = b""
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        rest += data[start:stop]
        at = 0
        while True:
            code = scanner.scan(rest, at, len(rest))
            at = scanner.at
            if code == _scan.MORE:
                break
            if code == _scan.FAULT:
                seen.fault = scanner.fault
                break
            body = rest[scanner.start : scanner.stop]
            if code == _scan.PACKET:
                seen.events.append((scanner.kind, scanner.flags, body))
                continue
            seen.events.append(("publish", scanner.topic, scanner.block, body, scanner.qos, scanner.retain))
            if code == _scan.PUBLISH:
                scanner.acknowledge(0, _scan.NOW, 0)
            scanner.release(2**63, 2**63, out)
        scanner.release(2**63, 2**63, out)
        if seen.fault:
            break
        rest = rest[at:]
    seen.answers = out.take()
    for batch in appender.take_closed():
        for i in range(batch.count):
            record = batch.record(i)
            seen.records.append((record.key, record.props, record.body, record.flags & (2 | 32 | 512)))
    return seen


# Streams

TOPICS = st.sampled_from(
    [
        "r",
        "r/a",
        "x",
        "refused",
        "$SYS/x",
        "r/\u00e9",
        "",
        "a+",
        "#",
        "r/\x01",
        "1/2/3/4",
        "1/2/3/4/5",
        "\U0001f600/\u20ac",
    ]
).map(str.encode) | st.binary(max_size=12)
TEXTS = st.sampled_from([b"", b"k", "\u00e9".encode(), b"\xff", b"a\0", b"0123456789abcdef"])
PAIRS = st.tuples(TEXTS, TEXTS).map(lambda p: b"\x26" + f.text(p[0]) + f.text(p[1]))
PROPERTIES = st.lists(
    st.one_of(
        st.sampled_from([b"\x01\x00", b"\x01\x01", b"\x02\0\0\0\x05", b"\x23\0\1", b"\x23\0\2", b"\x23\0\1"]),
        st.sampled_from(
            [b"\x01\x02", b"\x0b\x01", b"\x23\0\0", b"\x23\0\x09", b"\x11\0\0\0\0", b"\x7f", b"\x03\0"]
        ),
        PAIRS,
        TEXTS.map(lambda t: b"\x03" + f.text(t)),
        TEXTS.map(lambda t: b"\x08" + f.text(t)),
        TEXTS.map(lambda t: b"\x09" + f.text(t)),
    ),
    max_size=3,
).map(b"".join)
IDS = st.integers(0, 6)


@st.composite
def packets(draw: st.DrawFn, version: int) -> bytes:
    kind = draw(st.sampled_from(["publish"] * 6 + ["ack", "ack", "other", "raw", "raw publish"]))
    if kind == "publish":
        qos = draw(st.sampled_from([0, 0, 1, 2]))
        return f.publish(
            draw(TOPICS),
            draw(st.binary(max_size=20) | st.just(bytes(500))),
            qos=qos,
            packet_id=draw(IDS),
            retain=draw(st.booleans()),
            dup=bool(qos) and draw(st.booleans()),
            props=draw(st.just(b"") | PROPERTIES) if version == 5 else None,
        )
    if kind == "ack":
        ack = draw(st.sampled_from([f.PUBACK, f.PUBREC, f.PUBREL, f.PUBCOMP]))
        reason = draw(st.sampled_from([None, None, None, 0, 0x10, 0x92, 0x80, 0x55]))
        props = None if reason is None else draw(st.none() | st.just(b"") | PROPERTIES)
        return f.ack(ack, draw(IDS), reason, props)
    if kind == "other":
        return f.packet(
            draw(st.sampled_from([8, 10, 12, 14, 0, 1])),
            draw(st.integers(0, 15)),
            draw(st.binary(max_size=9)),
        )
    if kind == "raw publish":
        return f.packet(3, draw(st.integers(0, 15)), draw(st.binary(max_size=30)))
    return draw(st.binary(max_size=12))


def streams(version: int) -> st.SearchStrategy[bytes]:
    return st.lists(packets(version), max_size=12).map(b"".join)


def check(data: bytes, cuts: list[int], version: int) -> None:
    assert run_kernel(data, sorted(c % (len(data) + 1) for c in cuts), version) == Model(version).feed(data)


@given(streams(5), st.lists(st.integers(0, 10**6), max_size=6))
def test_the_scanner_of_5_0_agrees_with_the_reference(data: bytes, cuts: list[int]) -> None:
    check(data, cuts, 5)


@given(streams(4), st.lists(st.integers(0, 10**6), max_size=6))
def test_the_scanner_of_3_1_1_agrees_with_the_reference(data: bytes, cuts: list[int]) -> None:
    check(data, cuts, 4)


@given(streams(5))
def test_every_prefix_of_a_stream_is_safe(data: bytes) -> None:
    for end in range(len(data)):
        check(data[:end], [], 5)


def test_a_stream_cut_at_every_byte_is_the_same() -> None:
    data = b"".join(
        (
            f.publish("r/a", b"payload", qos=1, packet_id=3, props=b"\x23\0\1\x01\x01"),
            f.ack(f.PUBREC, 9),
            f.publish(
                "", bytes(200), qos=2, packet_id=4, props=b"\x26" + f.text("k") + f.text("v") + b"\x23\0\1"
            ),
            f.packet(12, 0, b""),
            f.ack(f.PUBREL, 4, 0, b""),
            f.publish("$SYS", b"", props=b""),
        )
    )
    whole = run_kernel(data, [], 5)
    assert whole.fault == 0 and len(whole.records) == 2 and len(whole.events) == 2
    assert run_kernel(data, list(range(1, len(data))), 5) == whole
    for cut in range(len(data)):
        assert run_kernel(data, [cut], 5) == whole
