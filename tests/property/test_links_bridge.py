"""The kernel that passes on the packets of a bridge, against plain Python, over bytes cut anywhere."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.links.mqtt._relay import InFlight, Relay
from penstock.protocols.links.mqtt.packets import packet
from penstock.protocols.mqtt.codec.packets import (
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
)
from penstock.protocols.mqtt.codec.properties import encode_text

_MOST = 120


@dataclass(frozen=True)
class Sent:
    """A PUBLISH."""

    flags: int
    topic: str
    packet_id: int
    properties: bytes
    payload: bytes

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    def encoded(self, *, is_5: bool) -> bytes:
        packet_id = self.packet_id.to_bytes(2, "big") if self.qos else b""
        properties = bytes([len(self.properties)]) + self.properties if is_5 else b""
        return packet(
            PUBLISH << 4 | self.flags, encode_text(self.topic) + packet_id + properties + self.payload
        )


_PUBLISHES = st.builds(
    Sent,
    flags=st.sampled_from([0, 1, 2, 3, 4, 12]),
    topic=st.sampled_from(["a", "b/c", "ä", "none"]),
    packet_id=st.integers(1, 5),
    properties=st.sampled_from([b"", b"\x02\x00\x00\x00\x09"]),
    payload=st.binary(max_size=20) | st.binary(min_size=_MOST - 20, max_size=_MOST + 20),
)
_ANSWERS = st.tuples(
    st.sampled_from([PUBACK, PUBREC, PUBREL, PUBCOMP]), st.integers(1, 5), st.sampled_from([0, 0x10, 0x97])
)


def name_of(topic: str) -> str | None:
    return None if topic == "none" else f"there/{topic}"


def relay_of(*, from_5: bool, to_5: bool, keeps_retain: bool = True) -> Relay:
    return Relay(
        InFlight(65535),
        InFlight(65535),
        from_5=from_5,
        to_5=to_5,
        name_of=name_of,
        keeps_retain=keeps_retain,
        most=_MOST,
    )


class Model:
    """The work of the kernel, packet by packet."""

    def __init__(self, *, from_5: bool, to_5: bool, keeps_retain: bool) -> None:
        self.from_5, self.to_5, self.keeps_retain = from_5, to_5, keeps_retain
        self.out = self.answers = b""
        self.forwarded = self.unnamed = self.too_large = 0
        self.reasons: list[int] = []

    def publish(self, sent: Sent) -> None:
        name = name_of(sent.topic)
        flags = sent.flags if self.keeps_retain else sent.flags & ~1
        properties = sent.properties if self.from_5 else b""
        made = Sent(flags, name or "", sent.packet_id, properties, sent.payload).encoded(is_5=self.to_5)
        if name is not None and len(made) <= _MOST:
            self.out += made
            self.forwarded += not sent.qos
            return
        self.unnamed += name is None
        self.too_large += name is not None
        if sent.qos:
            kind = PUBACK if sent.qos == 1 else PUBREC
            self.answers += packet(kind << 4, sent.packet_id.to_bytes(2, "big"))

    def answer(self, kind: int, packet_id: int, reason: int) -> bytes:
        flags = 2 if kind == PUBREL else 0
        short = packet(kind << 4 | flags, packet_id.to_bytes(2, "big"))
        made = short
        if self.from_5 and reason:
            made = packet(kind << 4 | flags, packet_id.to_bytes(2, "big") + bytes([reason]))
        self.out += made if self.to_5 else short
        if kind in (PUBACK, PUBREC):
            refused = self.from_5 and reason >= 0x80
            self.forwarded += not refused
            self.reasons += [reason] if refused else []
        return made


@given(
    st.lists(_PUBLISHES | _ANSWERS | st.just("ping"), max_size=10),
    st.lists(st.integers(0, 1 << 20), max_size=6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_packets_pass_as_plain_python_makes_them(
    sent: list[Sent | tuple[int, int, int] | str],
    places: list[int],
    from_5: bool,
    to_5: bool,
    keeps_retain: bool,
) -> None:
    model = Model(from_5=from_5, to_5=to_5, keeps_retain=keeps_retain)
    data = b""
    for one in sent:
        if isinstance(one, Sent):
            data += one.encoded(is_5=from_5)
            model.publish(one)
        elif isinstance(one, tuple):
            data += model.answer(*one)
        else:
            data += PINGRESP
    relay = relay_of(from_5=from_5, to_5=to_5, keeps_retain=keeps_retain)
    at, out, answers, counts, reasons = 0, b"", b"", [0, 0, 0], []
    for end in sorted({place % (len(data) + 1) for place in places} | {len(data)}):
        at += relay.take(data[at:end])
        out += relay.out
        answers += relay.answers
        for place, count in enumerate((relay.forwarded, relay.unnamed, relay.too_large)):
            counts[place] += count
        reasons += relay.reasons
    assert at == len(data)
    assert (out, answers, reasons) == (model.out, model.answers, model.reasons)
    assert counts == [model.forwarded, model.unnamed, model.too_large]


def test_no_more_are_under_way_than_half_of_what_is_taken_and_the_rest_follows_in_order() -> None:
    source, target = InFlight(65535), InFlight(4)
    there = Relay(source, target, from_5=True, to_5=True, name_of=name_of, keeps_retain=True, most=_MOST)
    back = Relay(target, source, from_5=True, to_5=True, name_of=name_of, keeps_retain=True, most=_MOST)
    sent = [Sent(2, "a", number, b"", b"%d" % number) for number in range(1, 7)]
    passed = [Sent(2, "there/a", number, b"", b"%d" % number).encoded(is_5=True) for number in range(1, 7)]
    there.take(b"".join(one.encoded(is_5=True) for one in sent))
    assert there.out == b"".join(passed[:2]) and target.count == target.most == 2
    back.take(packet(PUBACK << 4, b"\x00\x02") + packet(PUBREC << 4, b"\x00\x01"))
    assert back.answers == passed[2]  # a PUBREC is no last word
    back.take(packet(PUBCOMP << 4, b"\x00\x01") + packet(PUBREC << 4, b"\x00\x03\x97"))
    assert back.answers == b"".join(passed[3:5])
    assert InFlight(1).most == 1


def test_a_disconnect_is_told_with_what_came_before_it() -> None:
    relay = relay_of(from_5=True, to_5=True)
    relay.take(Sent(0, "a", 0, b"", b"x").encoded(is_5=True) + packet(DISCONNECT << 4, b"\x8b"))
    assert (relay.ended, relay.forwarded) == (0x8B, 1)
    relay = relay_of(from_5=False, to_5=True)
    relay.take(packet(DISCONNECT << 4, b""))
    assert relay.ended == 0


def test_a_name_with_too_many_bytes_does_not_cross() -> None:
    relay = Relay(
        InFlight(10),
        InFlight(10),
        from_5=False,
        to_5=False,
        name_of=lambda topic: "x" * 65530 + topic,
        keeps_retain=True,
        most=1 << 32,
    )
    relay.take(b"".join(Sent(0, topic, 0, b"", b"").encoded(is_5=False) for topic in ("short", "longer")))
    assert (relay.forwarded, relay.unnamed) == (1, 1)


@pytest.mark.parametrize(
    "data",
    [
        packet(0x30, b"\x00\x02\xff\xfe"),
        packet(0x30, b"\x00\x09a"),
        packet(0x32, b"\x00\x01a\x00"),
        packet(0x40, b"\x00"),
        b"\x30\xff\xff\xff\xff\xff",
    ],
)
def test_bytes_that_are_no_packet_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it sent"):
        relay_of(from_5=False, to_5=False).take(data)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_refused_or_waited_for(noise: bytes, from_5: bool) -> None:
    with contextlib.suppress(ValueError):
        relay_of(from_5=from_5, to_5=not from_5).take(noise)
