"""MQTT 3.1.1, sections 3.8 to 3.14: subscribing, PINGREQ and DISCONNECT."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate

TOO_DEEP = "/".join("a" * 129)
"""A filter that is one and is refused: it has too many levels."""


def test_mqtt311_3_8_1_1__subscribe_has_the_flags_0010(gate: Gate) -> None:
    for flags in set(range(16)) - {2}:
        assert gate.fails(f.packet(8, flags, b"\0\1\0\1t\0")) == b""


def test_mqtt311_3_8_3_1__a_filter_that_is_no_text_closes(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0", b"\xed\xa0\x80"):
        assert gate.fails(f.packet(8, 2, b"\0\1" + f.text(topic) + b"\0")) == b""


def test_mqtt311_3_8_3_3__subscribe_without_a_filter_closes(gate: Gate) -> None:
    assert gate.fails(f.packet(8, 2, b"\0\1")) == b""
    assert gate.fails(f.packet(8, 2, b"\0\1\0\1t")) == b""
    assert gate.fails(f.packet(8, 2, b"\0\1\0\5t\0")) == b""


def test_mqtt311_3_8_3_4__reserved_bits_and_qos_3_close(gate: Gate) -> None:
    """MQTT 3.1.1 reserves the bits that are subscription options in 5.0."""
    for options in (3, 4, 8, 0x10, 0x20, 0x40, 0x80):
        assert gate.fails(f.subscribe(1, ("t", options))) == b""


def test_mqtt311_3_8_4_1__subscribe_is_answered(gate: Gate, unique: str) -> None:
    assert gate.connect().send(f.subscribe(10, (unique, 1))).bytes() == b"\x90\3\0\x0a\1"


def test_mqtt311_3_8_4_2__suback_has_the_packet_id_of_its_subscribe(gate: Gate, unique: str) -> None:
    wire = gate.lasting(unique)
    ids = (65535, 1, 300)
    wire.send(*[f.subscribe(packet_id, (unique, 1)) for packet_id in ids])
    assert [wire.answer(9).packet_id for _ in ids] == list(ids)


def test_mqtt311_3_8_4_3__the_same_filter_again_replaces_the_subscription(gate: Gate, unique: str) -> None:
    """Its QoS is the new one, it does not become two, what is retained comes again, and nothing is lost that
    is published meanwhile.
    """
    sub = gate.subscriber((f"{unique}/#", 0))
    pub = gate.connect().published(f"{unique}/kept", b"kept", retain=True)
    assert sub.message().payload == b"kept"
    for i in range(100):
        pub.publish(f"{unique}/live", bytes((i,)), qos=1, packet_id=i + 1)
        sub.send(f.subscribe(i + 1, (f"{unique}/#", 1)))
    live, kept, answers = [], 0, 0
    while answers < 100 or len(live) < 100 or kept < 100:
        packet = sub.next()
        if packet.kind == 9:
            answers += 1
        elif (message := sub.parse_publish(packet)).retain:
            kept += 1
        else:
            live.append(message.payload[0])
    assert live == list(range(100))
    for _ in range(100):
        pub.answer(4)
    pub.published(f"{unique}/live", b"last")
    assert sub.message().qos == 1
    assert sub.ping() == []


def test_mqtt311_3_8_4_4__several_filters_have_one_answer(gate: Gate, unique: str) -> None:
    """The same one twice is like two packets: the later QoS counts."""
    wire = gate.connect()
    wire.send(f.subscribe(1, (f"{unique}/a", 0), (f"{unique}/b", 2), (f"{unique}/a", 1)))
    assert wire.bytes() == b"\x90\5\0\1\0\2\1"
    gate.connect().published(f"{unique}/a", b"a", qos=2)
    assert wire.message().qos == 1
    assert wire.ping() == []


def test_mqtt311_3_8_4_5__suback_has_a_code_for_each_filter(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    codes = wire.subscribe(*[(f"{unique}/{i}", i % 3) for i in range(50)], (TOO_DEEP, 1))
    assert codes == [i % 3 for i in range(50)] + [0x80]


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt311_3_8_4_6__delivered_at_the_lower_qos(
    gate: Gate, unique: str, published: int, granted: int
) -> None:
    live = gate.subscriber((unique, granted))
    gate.connect().publish(unique, b"x", qos=published, packet_id=1, retain=True)
    assert live.message().qos == min(published, granted)
    late = gate.subscriber((unique, granted))
    assert late.message().qos == min(published, granted)


def test_mqtt311_3_9_3_1__the_codes_are_in_the_order_of_the_filters(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    filters = [(f"{unique}/b", 2), (TOO_DEEP, 2), (f"{unique}/a", 0), (f"{unique}/#", 1)]
    assert wire.subscribe(*filters) == [2, 0x80, 0, 1]


def test_mqtt311_3_9_3_2__each_code_is_0_1_2_or_0x80(gate: Gate, unique: str) -> None:
    filters = [(unique, 0), (unique, 1), (unique, 2), (TOO_DEEP, 0), ("$share/g/#", 1), ("$SYS/#", 1)]
    assert set(gate.connect().subscribe(*filters)) <= {0, 1, 2, 0x80}


def test_mqtt311_3_10_1_1__unsubscribe_has_the_flags_0010(gate: Gate) -> None:
    for flags in set(range(16)) - {2}:
        assert gate.fails(f.packet(10, flags, b"\0\1\0\1t")) == b""


def test_mqtt311_3_10_3_1__a_filter_in_unsubscribe_that_is_no_text_closes(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0", b"\xed\xa0\x80"):
        assert gate.fails(f.packet(10, 2, b"\0\1" + f.text(topic))) == b""


def test_mqtt311_3_10_3_2__unsubscribe_without_a_filter_closes(gate: Gate) -> None:
    assert gate.fails(f.packet(10, 2, b"\0\1")) == b""


def test_mqtt311_3_10_4_1__a_filter_is_removed_by_exactly_its_own_text(gate: Gate, unique: str) -> None:
    wire = gate.subscriber((f"{unique}/+", 0))
    wire.unsubscribe(f"{unique}/a", f"{unique}/#", f"{unique.upper()}/+", f"{unique}/+/")
    gate.connect().publish(f"{unique}/a", b"still")
    assert wire.message().payload == b"still"
    wire.unsubscribe(f"{unique}/+")
    gate.connect().published(f"{unique}/a", b"no more")
    assert wire.ping() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_10_4_2__new_messages_are_no_longer_added(gate: Gate, unique: str, qos: int) -> None:
    wire = gate.subscriber(f"{unique}/a", f"{unique}/b")
    wire.unsubscribe(f"{unique}/a")
    pub = gate.connect()
    pub.publish(f"{unique}/a", b"a", qos=qos, packet_id=1).publish(f"{unique}/b", b"b", qos=qos, packet_id=2)
    assert wire.message().payload == b"b"


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt311_3_10_4_3__what_has_begun_is_completed(gate: Gate, unique: str, qos: int) -> None:
    wire = gate.lasting(unique)
    wire.subscribe((unique, qos))
    gate.connect().published(unique, b"begun", qos=qos)
    sent = wire.message()
    wire.unsubscribe(unique)
    wire.close()
    wire = gate.lasting(unique)
    again = wire.message()
    assert (again.payload, again.packet_id, again.dup) == (b"begun", sent.packet_id, True)
    if qos == 1:
        wire.puback(again.packet_id)
    else:
        wire.pubrec(again.packet_id).answer(6)
        wire.pubcomp(again.packet_id)
    wire.ping()
    wire.close()
    assert gate.lasting(unique).ping() == []


def test_mqtt311_3_10_4_4__unsubscribe_is_answered(gate: Gate, unique: str) -> None:
    assert gate.subscriber(unique).send(f.unsubscribe(258, unique)).bytes() == b"\xb0\2\1\2"


def test_mqtt311_3_10_4_5__also_when_nothing_was_removed(gate: Gate, unique: str) -> None:
    assert gate.connect().send(f.unsubscribe(65535, unique)).bytes() == b"\xb0\2\xff\xff"


def test_mqtt311_3_10_4_6__several_filters_have_one_answer(gate: Gate, unique: str) -> None:
    wire = gate.subscriber(f"{unique}/a", f"{unique}/b")
    assert wire.send(f.unsubscribe(1, f"{unique}/a", "x", f"{unique}/b")).bytes() == b"\xb0\2\0\1"
    gate.connect().published(f"{unique}/a").published(f"{unique}/b")
    assert wire.ping() == []


def test_mqtt311_3_12_4_1__a_ping_is_answered(gate: Gate) -> None:
    wire = gate.connect().send(b"\xc0\0" * 3)
    assert [wire.bytes() for _ in range(3)] == [b"\xd0\0"] * 3


def test_mqtt311_3_14_1_1__flags_on_disconnect_close_and_the_will_is_published(
    gate: Gate, unique: str
) -> None:
    sub = gate.subscriber(unique)
    for flags in range(1, 16):
        will = (unique, bytes((flags,)), 0, False)
        assert gate.fails(f.packet(14, flags, b""), will=will) == b""
        assert sub.message().payload == bytes((flags,))


def test_mqtt311_3_14_4_3__disconnect_discards_the_will(gate: Gate, unique: str) -> None:
    """The gateway closes, and looks at nothing behind it."""
    sub = gate.subscriber(unique)
    will = (unique, b"will", 0, False)
    assert gate.fails(f.disconnect(), f.publish(unique, b"late"), will=will) == b""
    gate.lasting(unique, will=will).disconnect()
    gate.connect().publish(unique, b"end")
    assert sub.message().payload == b"end"
