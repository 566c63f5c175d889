"""The scanner against the reference: random packet streams, cut at random, give the same records, events,
faults.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.reference import mqtt_frames as f
from tests.support.mqtt_streams import (
    ALIASES,
    LEVELS,
    MAX_PACKET,
    RECEIVE_MAXIMUM,
    Seen,
    packets,
    run_kernel,
)

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
            packet_id, reason = f.parse_ack(packet, self.version)
            if packet.kind == f.PUBREC:
                # Nothing is under way to this client: every id is unknown. A refusal gets no PUBREL.
                if reason < 0x80:
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


# Streams


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
