"""Streams of MQTT packets for property tests, and what the scanner makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.feeds._feed import Feed
from penstock.protocols.mqtt.codec import _scan
from penstock.protocols.mqtt.codec._packet_ids import Inflight, Received
from penstock.protocols.mqtt.codec._scan import Scanner
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.routes._routes import Route, RouteTable, Scope, Topology
from tests.reference import mqtt_frames as f

ALIASES = 3
LEVELS = 4
RECEIVE_MAXIMUM = 5
MAX_PACKET = 400


@dataclass
class Seen:
    """The content of a stream."""

    records: list[tuple[bytes, bytes, bytes, int]] = field(default_factory=list)
    """(topic, properties, payload, flags) of what was appended."""
    events: list[tuple[Any, ...]] = field(default_factory=list)
    answers: bytes = b""
    fault: int = 0


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
