"""MQTT 5.0, sections 4.7 to 4.13: topics and filters, flow control, authentication, errors."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Closed, Gate, props, wrong_login

MALFORMED = b"\xe0\x01\x81"
PROTOCOL_ERROR = b"\xe0\x01\x82"


def invalid(gate: Gate, filter_: str | bytes) -> None:
    assert gate.fails(f.packet(8, 2, b"\0\1\0" + f.text(filter_) + b"\0")) == MALFORMED
    assert gate.fails(f.packet(10, 2, b"\0\1\0" + f.text(filter_))) == MALFORMED


def test_mqtt5_4_7_0_1__wildcards_are_not_for_topics(gate: Gate) -> None:
    for topic in ("+", "#", "a/+/b", "a/#"):
        assert gate.fails(f.publish(topic, props=b"")) == MALFORMED
        will = f.connect("c", version=5, will=(topic, b"", 0, False))
        assert gate.refused(will) == b"\x20\3\0\x81\0"


def test_mqtt5_4_7_1_1__a_hash_stands_alone_in_the_last_level(gate: Gate, unique: str) -> None:
    """It matches its parent and every level below."""
    for filter_ in ("a#", "a/b#", "#/a", "a/#/b", "##", "a/#b"):
        invalid(gate, filter_)
    topics = [unique, f"{unique}/", f"{unique}/a", f"{unique}/a/b/c", f"{unique}x", f"{unique}//"]
    found = gate.matching(f"{unique}/#", topics, f"end/{unique}")
    assert found == [topic for topic in topics if topic != f"{unique}x"]


def test_mqtt5_4_7_1_2__a_plus_stands_alone_in_its_level(gate: Gate, unique: str) -> None:
    """At any level, and for exactly one."""
    for filter_ in ("a+", "+a", "a/+b/c", "++", "a/b+/#"):
        invalid(gate, filter_)
    topics = [f"{unique}/{rest}" for rest in ("b", "/b", "a/b", "a/c", "a/b/c", "a/a/b", "", "/")]
    for filter_, expected in (
        (f"{unique}/+", ["b", ""]),
        (f"{unique}/+/b", ["/b", "a/b"]),
        (f"{unique}/+/+", ["/b", "a/b", "a/c", "/"]),
        (f"{unique}/+/#", ["b", "/b", "a/b", "a/c", "a/b/c", "a/a/b", "", "/"]),
    ):
        found = gate.matching(filter_, topics, f"end/{unique}/end/x")
        assert found == [f"{unique}/{rest}" for rest in expected], filter_
    topics = [f"x/{unique}", f"/{unique}", f"x/y/{unique}", unique]
    assert gate.matching(f"+/{unique}", topics, f"end/{unique}/end") == topics[:2]


def test_mqtt5_4_7_2_1__a_leading_wildcard_matches_no_dollar_topic(gate: Gate, unique: str) -> None:
    topics = [f"$app/{unique}", f"$/{unique}", f"app/{unique}"]
    for filter_ in ("#", f"+/{unique}", "+/#"):
        found = [t for t in gate.matching(filter_, topics, f"end/{unique}/{len(filter_)}") if unique in t]
        assert found == [f"app/{unique}"], filter_
    assert gate.matching("$app/#", topics, f"end/{unique}/x") == [f"$app/{unique}"]
    gate.connect().published(f"$app/{unique}", b"kept", retain=True)
    assert f"$app/{unique}" not in [message.topic for message in gate.retained("#")]
    gate.connect().published(f"$app/{unique}", b"", retain=True)  # other tests subscribe to all of $app


def test_mqtt5_4_7_3_1__topics_and_filters_are_not_empty(gate: Gate) -> None:
    invalid(gate, "")
    assert gate.fails(f.publish("", props=b"")) == PROTOCOL_ERROR
    will = f.connect("c", version=5, will=("", b"", 0, False))
    assert gate.refused(will) == b"\x20\3\0\x81\0"


def test_mqtt5_4_7_3_2__topics_and_filters_have_no_nul(gate: Gate) -> None:
    invalid(gate, "a\0b")
    assert gate.fails(f.publish("a\0b", props=b"")) == MALFORMED


def test_mqtt5_4_7_3_3__topics_and_filters_of_65535_bytes_are_taken(gate: Gate, unique: str) -> None:
    topic = unique + "é" * ((65535 - len(unique)) // 2) + "x" * ((65535 - len(unique)) % 2)
    assert len(topic.encode()) == 65535
    sub = gate.subscriber(topic)
    gate.connect().publish(topic, b"long")
    assert (message := sub.message()).topic == topic and message.payload == b"long"


def test_mqtt5_4_7_3_4__topics_and_filters_are_compared_as_they_are(gate: Gate, unique: str) -> None:
    """No letters are made equal: case, composition, width, empty levels, spaces."""
    topics = [
        f"{unique}/{rest}"
        for rest in ("ä", "a\u0308", "Ä", "A", "a", "ａ", "a ", " a", "a/", "/a", "a//", "\ufeffa", "a\u200d")
    ]
    for topic in topics:
        assert gate.matching(topic, topics, f"end/{unique}") == [topic]


def test_mqtt5_4_9_0_1__the_quota_starts_within_the_receive_maximum(gate: Gate, unique: str) -> None:
    for maximum in (1, 2, 5):
        sub = gate.connect(props=props(receive_maximum=maximum))
        sub.subscribe((unique, 1))
        pub = gate.connect()
        for _ in range(10):
            pub.published(unique)
        assert len(sub.ping()) == maximum
        sub.close()


def test_mqtt5_4_9_0_2__at_a_quota_of_0_nothing_above_qos_0_is_sent(gate: Gate, unique: str) -> None:
    """It is taken up by what is sent again on the next connection too, and by what is retained."""
    wire = gate.lasting(unique, props=props(receive_maximum=2))
    wire.subscribe((f"{unique}/#", 2))
    pub = gate.connect()
    for i in range(5):
        pub.published(f"{unique}/{i}", bytes((i,)), qos=1 + i % 2)
    wire.messages(2)
    assert wire.ping() == []
    wire.close()
    wire = gate.lasting(unique, props=props(receive_maximum=1))
    got = wire.message()
    assert got.payload == b"\0" and wire.ping() == []
    pub.published(f"other/{unique}", b"kept", retain=True)
    assert wire.subscribe((f"other/{unique}", 1)) == [1]
    assert wire.ping() == []
    wire.puback(got.packet_id)
    assert wire.message().qos > 0
    assert wire.ping() == []


def test_mqtt5_4_9_0_3__at_a_quota_of_0_other_packets_are_answered(gate: Gate, unique: str) -> None:
    sub = gate.connect(props=props(receive_maximum=1))
    sub.subscribe((unique, 1))
    pub = gate.connect().published(unique).published(unique)
    sub.message()
    sub.publish(f"{unique}/x", qos=1, packet_id=1)
    assert sub.answer(4).packet_id == 1
    sub.publish(f"{unique}/x", qos=2, packet_id=2)
    assert sub.answer(5).packet_id == 2
    assert sub.pubrel(2).answer(7).packet_id == 2
    assert sub.subscribe((f"{unique}/y", 1)) == [1]
    assert sub.unsubscribe(f"{unique}/y") == [0]
    # The gateway's own quota, spent by the client, keeps nothing else back either.
    (maximum,) = pub.connack.props["receive_maximum"]
    pub.send(*[pub.frame(f"{unique}/x", qos=2, packet_id=i + 1) for i in range(maximum)])
    for _ in range(maximum):
        pub.answer(5)
    assert pub.subscribe((f"{unique}/y", 1)) == [1]
    pub.publish(f"{unique}/y", b"0")
    assert pub.message().payload == b"0"


def test_mqtt5_4_12_0_1__an_unknown_authentication_method_is_refused(gate: Gate) -> None:
    connect = f.connect("c", version=5, props=props(authentication_method="none-such"))
    assert gate.refused(connect) == b"\x20\3\0\x8c\0"


def test_mqtt5_4_12_0_6__without_a_method_there_is_none_in_connack_and_no_auth(gate: Gate) -> None:
    for login in ({}, {"user": "guest", "password": b"guest"}):
        wire = gate.connect(**login)
        assert "authentication_method" not in wire.connack.props
        assert "authentication_data" not in wire.connack.props
        assert wire.ping() == []


def test_mqtt5_4_12_0_7__auth_without_a_method_in_connect_is_a_protocol_error(gate: Gate) -> None:
    for packet in (b"\xf0\0", f.packet(15, 0, b"\x18\0"), f.packet(15, 0, b"\x19\0")):
        assert gate.fails(packet) == PROTOCOL_ERROR
    method = props(authentication_method="SCRAM-SHA-256")
    again = f.packet(15, 0, b"\x19" + f.varint(len(method)) + method)
    assert gate.fails(again) == PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (b"\x30\xff\xff\xff\xff\x01", MALFORMED),
        (f.packet(3, 0, f.text("t") + b"\5"), MALFORMED),
        (f.publish("t", props=b"\x7e\0"), MALFORMED),
        (f.publish("t", props=b"\x02\0\0"), MALFORMED),
        (f.publish("t", props=props(message_expiry=[1, 1])), PROTOCOL_ERROR),
        (f.publish("t", props=props(session_expiry=1)), MALFORMED),
        (f.publish("t", props=props(response_topic="")), PROTOCOL_ERROR),
        (f.subscribe(1, ("t", 0), version=5, props=props(subscription_id=0)), PROTOCOL_ERROR),
        (f.subscribe(1, ("t", 0), version=5, props=props(subscription_id=[1, 2])), PROTOCOL_ERROR),
        (f.subscribe(1, ("t", 0), version=5, props=props(content_type="x")), MALFORMED),
        (f.packet(4, 0, b"\1"), MALFORMED),
        (f.packet(12, 0, b"x"), MALFORMED),
        (f.packet(2, 0, b"\0\0\0"), PROTOCOL_ERROR),
        (f.packet(9, 0, b"\0\1\0\0"), PROTOCOL_ERROR),
        (f.packet(13, 0, b""), PROTOCOL_ERROR),
    ],
    ids=["length", "block", "unknown-property", "cut-property", "twice", "foreign", "response", "id-0"]
    + ["two-ids", "foreign-subscribe", "puback", "ping-body", "connack", "suback", "pingresp"],
)
def test_mqtt5_4_13_1_1__malformed_packets_and_protocol_errors_close(
    gate: Gate, packet: bytes, answer: bytes
) -> None:
    assert gate.fails(packet) == answer


def test_mqtt5_4_13_2_1__a_reason_from_0x80_on_closes(gate: Gate, unique: str) -> None:
    """One that the gateway sends, and one that the client sends."""
    assert gate.refused(f.connect("c", version=5, **wrong_login())) == b"\x20\3\0\x86\0"
    assert gate.fails(f.publish("#", props=b"")) == MALFORMED
    assert gate.fails(f.disconnect(0x80)) == b""
    # But in an acknowledgement it concerns only what it answers.
    wire = gate.connect()
    wire.publish("$SYS/x", qos=1, packet_id=1)
    assert wire.answer(4).code == 0x87
    assert wire.ping() == []
    wire.send(f.disconnect(0x83))
    with pytest.raises(Closed):
        wire.next()
