"""MQTT 5.0, sections 3.8 to 3.11: SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, props

MALFORMED = b"\xe0\x01\x81"
PROTOCOL_ERROR = b"\xe0\x01\x82"

NO_LOCAL = 4

TOO_DEEP = "/".join("a" * 129)
"""A filter that is one and is refused: it has too many levels."""


def test_mqtt5_3_8_1_1__subscribe_has_the_flags_0010(gate: Gate) -> None:
    for flags in set(range(16)) - {2}:
        assert gate.fails(f.packet(8, flags, b"\0\1\0\0\1t\0")) == MALFORMED


def test_mqtt5_3_8_3_1__a_filter_that_is_no_text_is_malformed(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0", b"\xed\xa0\x80", b"a/\xc0\x80"):
        assert gate.fails(f.packet(8, 2, b"\0\1\0" + f.text(topic) + b"\0")) == MALFORMED


def test_mqtt5_3_8_3_2__subscribe_without_a_filter_ends_the_connection(gate: Gate) -> None:
    assert gate.fails(f.packet(8, 2, b"\0\1\0")) == MALFORMED
    assert gate.fails(f.packet(8, 2, b"\0\1\0" + f.text("t"))) == MALFORMED


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_8_3_3__with_no_local_a_client_does_not_get_its_own(
    gate: Gate, unique: str, qos: int
) -> None:
    """It gets those of others, its own by another filter without the option, and its own kept by the server
    as a retained message.
    """
    wire = gate.connect()
    wire.subscribe((f"{unique}/#", qos | NO_LOCAL))
    wire.publish(f"{unique}/a", b"own", qos=qos, packet_id=1)
    gate.connect().publish(f"{unique}/a", b"other's", qos=qos, packet_id=1)
    got = [packet for packet in (wire.next() for _ in range(1 + bool(qos))) if packet.kind == 3]
    assert [wire.parse_publish(packet).payload for packet in got] == [b"other's"]
    for packet in got:
        message = wire.parse_publish(packet)
        wire.send(f.ack(f.PUBREC if qos == 2 else f.PUBACK, message.packet_id)) if qos else None
    wire.ping()
    wire.subscribe((f"{unique}/b", 0))
    wire.publish(f"{unique}/b", b"own", retain=True)
    assert wire.message().payload == b"own"


def test_mqtt5_3_8_3_4__no_local_on_a_shared_subscription_is_a_protocol_error(gate: Gate) -> None:
    assert gate.fails(f.subscribe(1, ("$share/g/t", NO_LOCAL), version=5)) == PROTOCOL_ERROR


def test_mqtt5_3_8_3_5__reserved_options_are_malformed(gate: Gate) -> None:
    for options in (0x40, 0x80, 0xC0, 0x30, 0x03):
        assert gate.fails(f.subscribe(1, ("t", options), version=5)) == MALFORMED


def test_mqtt5_3_8_4_1__subscribe_is_answered(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    wire.send(f.subscribe(10, (unique, 1), version=5))
    assert wire.bytes() == b"\x90\4\0\x0a\0\1"


def test_mqtt5_3_8_4_2__suback_has_the_packet_id_of_its_subscribe(gate: Gate, unique: str) -> None:
    """Of several that are sent at once too, in their order."""
    wire = gate.lasting(unique)
    ids = (65535, 1, 300, 7)
    wire.send(*[f.subscribe(packet_id, (f"{unique}/{packet_id}", 0), version=5) for packet_id in ids])
    assert [wire.answer(9).packet_id for _ in ids] == list(ids)


def test_mqtt5_3_8_4_3__the_same_filter_again_replaces_the_subscription(gate: Gate, unique: str) -> None:
    """All its options: QoS, no local, retain as published, identifier. It does not become two."""
    wire = gate.connect()
    wire.subscribe((unique, 2 | 8), block=props(subscription_id=3))
    wire.subscribe((unique, 0 | NO_LOCAL | 0x20))
    pub = gate.connect().published(unique, b"kept", qos=2, retain=True)
    got = wire.message()
    assert (got.qos, got.retain, got.props) == (0, False, {})
    wire.publish(unique, b"own")
    assert wire.ping() == []
    wire.subscribe((unique, 1 | 8 | 0x20), block=props(subscription_id=4))
    pub.published(unique, b"new", retain=True)
    got = wire.message()
    assert (got.payload, got.qos, got.retain, got.props) == (b"new", 1, True, {"subscription_id": [4]})
    assert wire.ping() == []
    assert wire.unsubscribe(unique) == [0]
    pub.published(unique, b"unheard")
    assert wire.ping() == []


def test_mqtt5_3_8_4_4__replacing_sends_what_is_retained_and_loses_nothing(gate: Gate, unique: str) -> None:
    """Messages are published all the while that the filter is subscribed again and again."""
    sub = gate.connect()
    sub.subscribe((f"{unique}/#", 1))
    pub = gate.connect().published(f"{unique}/kept", b"kept", retain=True)
    assert sub.message().payload == b"kept"
    for i in range(200):
        pub.publish(f"{unique}/live", bytes((i,)), qos=1, packet_id=i + 1)
        sub.send(f.subscribe(i + 1, (f"{unique}/#", 1 + i % 2), version=5))
    for _ in range(200):
        pub.answer(4)
    live, kept, answers = [], 0, 0
    while answers < 200 or len(live) < 200 or kept < 200:
        packet = sub.next()
        if packet.kind == 9:
            answers += 1
            continue
        message = sub.parse_publish(packet)
        if message.payload == b"kept":
            kept += 1
            assert message.retain
        else:
            live.append(message.payload[0])
            assert not message.retain
    assert live == list(range(200))
    assert sub.ping() == []


def test_mqtt5_3_8_4_5__several_filters_have_one_answer(gate: Gate, unique: str) -> None:
    """The same one twice is like two packets: the later options count."""
    wire = gate.connect()
    filters = [(f"{unique}/a", 0), (f"{unique}/b", 2), (f"{unique}/a", 1)]
    wire.send(f.subscribe(1, *filters, version=5))
    assert wire.bytes() == b"\x90\6\0\1\0\0\2\1"
    assert wire.ping() == []
    gate.connect().published(f"{unique}/a", b"a", qos=2).published(f"{unique}/b", b"b", qos=2)
    assert [(m.payload, m.qos) for m in wire.messages(2)] == [(b"a", 1), (b"b", 2)]


def test_mqtt5_3_8_4_6__suback_has_a_code_for_each_filter(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    for count in (1, 2, 100):
        codes = wire.subscribe(*[(f"{unique}/{i}", i % 3) for i in range(count)])
        assert codes == [i % 3 for i in range(count)]


def test_mqtt5_3_8_4_7__a_code_tells_the_qos_granted_or_the_failure(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    assert wire.subscribe((unique, 2), (TOO_DEEP, 1)) == [2, 0x8F]
    gate.connect().published(unique, b"x", qos=2)
    assert wire.message().qos == 2


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt5_3_8_4_8__delivered_at_the_lower_qos(
    gate: Gate, unique: str, published: int, granted: int
) -> None:
    """Live, waiting and retained messages."""
    live = gate.subscriber((unique, granted))
    pub = gate.connect()
    pub.publish(unique, b"x", qos=published, packet_id=1, retain=True)
    assert live.message().qos == min(published, granted)
    late = gate.connect()
    late.subscribe((unique, granted))
    assert late.message().qos == min(published, granted)


@pytest.mark.parametrize("size", [19, 24, 60])
def test_mqtt5_3_9_2_1__a_reason_string_does_not_make_suback_too_large(
    gate: Gate, unique: str, size: int
) -> None:
    wire = gate.connect(props=props(maximum_packet_size=size))
    wire.send(f.subscribe(1, (TOO_DEEP, 0), (unique, 0), version=5))
    assert len(wire.bytes()) <= size


def test_mqtt5_3_9_2_2__user_properties_do_not_make_suback_too_large(gate: Gate) -> None:
    """There are none at all."""
    wire = gate.connect().send(f.subscribe(1, (TOO_DEEP, 0), ("$share/g/#", 0), version=5))
    assert "user" not in wire.answer(9).props


def test_mqtt5_3_9_3_1__the_codes_are_in_the_order_of_the_filters(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    filters = [(f"{unique}/b", 2), (TOO_DEEP, 2), (f"{unique}/a", 0), (f"{unique}/#", 1), (TOO_DEEP, 0)]
    assert wire.subscribe(*filters) == [2, 0x8F, 0, 1, 0x8F]


def test_mqtt5_3_9_3_2__each_code_is_one_of_subacks(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    codes = wire.subscribe((unique, 0), (unique, 1), (unique, 2), (TOO_DEEP, 0), ("$share/g/#", 1))
    assert set(codes) <= {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}


def test_mqtt5_3_10_1_1__unsubscribe_has_the_flags_0010(gate: Gate) -> None:
    for flags in set(range(16)) - {2}:
        assert gate.fails(f.packet(10, flags, b"\0\1\0\0\1t")) == MALFORMED


def test_mqtt5_3_10_3_1__a_filter_in_unsubscribe_that_is_no_text_is_malformed(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0", b"\xed\xa0\x80"):
        assert gate.fails(f.packet(10, 2, b"\0\1\0" + f.text(topic))) == MALFORMED


def test_mqtt5_3_10_3_2__unsubscribe_without_a_filter_ends_the_connection(gate: Gate) -> None:
    assert gate.fails(f.packet(10, 2, b"\0\1\0")) == MALFORMED


def test_mqtt5_3_10_4_1__a_filter_is_removed_by_exactly_its_own_text(gate: Gate, unique: str) -> None:
    """Not by one that matches it, nor by one it matches, nor in other letters."""
    wire = gate.connect()
    filters = [f"{unique}/+", f"{unique}/#", f"{unique}/a", f"{unique}/A/", f"/{unique}/a"]
    wire.subscribe(*[(name, 0) for name in filters])
    strangers = [f"{unique}/b", f"{unique}/A", f"{unique}/+/", "#", f"{unique}"]
    assert wire.unsubscribe(*strangers) == [0x11] * 5
    assert wire.unsubscribe(*filters) == [0] * 5
    assert wire.unsubscribe(*filters) == [0x11] * 5


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_10_4_2__new_messages_are_no_longer_added(gate: Gate, unique: str, qos: int) -> None:
    wire = gate.subscriber(f"{unique}/a", f"{unique}/b")
    assert wire.unsubscribe(f"{unique}/a") == [0]
    pub = gate.connect()
    pub.publish(f"{unique}/a", b"a", qos=qos, packet_id=1).publish(f"{unique}/b", b"b", qos=qos, packet_id=2)
    assert wire.message().payload == b"b"


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_10_4_3__what_has_begun_is_completed(gate: Gate, unique: str, qos: int) -> None:
    """Over a reconnect too."""
    wire = gate.lasting(unique)
    wire.subscribe((unique, qos))
    gate.connect().published(unique, b"begun", qos=qos)
    message = wire.message()
    assert wire.unsubscribe(unique) == [0]
    wire.close()
    wire = gate.lasting(unique)
    again = wire.message()
    assert (again.payload, again.packet_id, again.qos, again.dup) == (b"begun", message.packet_id, qos, True)
    if qos == 1:
        wire.puback(again.packet_id)
    else:
        assert wire.pubrec(again.packet_id).answer(6).packet_id == again.packet_id
        wire.pubcomp(again.packet_id)
    assert wire.ping() == []
    wire.close()
    assert gate.lasting(unique).ping() == []


def test_mqtt5_3_10_4_4__unsubscribe_is_answered(gate: Gate, unique: str) -> None:
    wire = gate.subscriber(unique)
    wire.send(f.unsubscribe(10, unique, version=5))
    assert wire.bytes() == b"\xb0\4\0\x0a\0\0"


def test_mqtt5_3_10_4_5__also_when_nothing_was_removed(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    wire.send(f.unsubscribe(65535, unique, version=5))
    assert wire.bytes() == b"\xb0\4\xff\xff\0\x11"


def test_mqtt5_3_10_4_6__several_filters_have_one_answer(gate: Gate, unique: str) -> None:
    wire = gate.subscriber(f"{unique}/a", f"{unique}/b")
    wire.send(f.unsubscribe(1, f"{unique}/a", f"{unique}/b", f"{unique}/a", version=5))
    assert wire.bytes() == b"\xb0\6\0\1\0\0\0\x11"
    assert wire.ping() == []


@pytest.mark.parametrize("size", [19, 24, 60])
def test_mqtt5_3_11_2_1__a_reason_string_does_not_make_unsuback_too_large(
    gate: Gate, unique: str, size: int
) -> None:
    wire = gate.connect(props=props(maximum_packet_size=size))
    wire.send(f.unsubscribe(1, unique, TOO_DEEP, version=5))
    assert len(wire.bytes()) <= size


def test_mqtt5_3_11_2_2__user_properties_do_not_make_unsuback_too_large(gate: Gate, unique: str) -> None:
    """There are none at all."""
    wire = gate.connect().send(f.unsubscribe(1, unique, version=5))
    assert "user" not in wire.answer(11).props


def test_mqtt5_3_11_3_1__the_codes_of_unsuback_are_in_the_order_of_the_filters(
    gate: Gate, unique: str
) -> None:
    wire = gate.subscriber(f"{unique}/a", f"{unique}/b")
    assert wire.unsubscribe("x", f"{unique}/b", "y", f"{unique}/a") == [0x11, 0, 0x11, 0]


def test_mqtt5_3_11_3_2__each_code_is_one_of_unsubacks(gate: Gate, unique: str) -> None:
    wire = gate.subscriber(unique)
    codes = wire.unsubscribe(unique, unique, TOO_DEEP, "$share/g/x", "$SYS/#")
    assert set(codes) <= {0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}
