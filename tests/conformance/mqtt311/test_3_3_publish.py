"""MQTT 3.1.1, sections 3.3 to 3.7: PUBLISH and its acknowledgements."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, payloads

each_qos = pytest.mark.parametrize("qos", [1, 2])


@each_qos
def test_mqtt311_3_3_1_1__a_message_sent_again_has_dup(gate: Gate, unique: str, qos: int) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, qos))
    gate.connect().published(unique, qos=qos)
    sent = first.message()
    assert not sent.dup
    first.close()
    again = gate.lasting(unique).message()
    assert (again.dup, again.packet_id) == (True, sent.packet_id)


def test_mqtt311_3_3_1_2__qos_0_never_has_dup(gate: Gate, unique: str) -> None:
    assert gate.fails(f.publish("t", dup=True)) == b""
    sub = gate.subscriber((unique, 0))
    gate.connect().publish(unique, qos=1, packet_id=1, dup=True).publish(unique)
    assert [message.dup for message in sub.messages(2)] == [False, False]


def test_mqtt311_3_3_1_3__dup_is_not_passed_on(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    pub = gate.connect()
    pub.publish(unique, qos=1, packet_id=1, dup=True).publish(unique, qos=2, packet_id=2, dup=True)
    assert [(message.qos, message.dup) for message in sub.messages(2)] == [(1, False), (2, False)]


def test_mqtt311_3_3_1_4__qos_3_closes(gate: Gate) -> None:
    for flags in (6, 7, 14):
        assert gate.fails(f.packet(3, flags, f.text("t") + b"\0\1")) == b""


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_3_1_5__a_retained_message_is_kept_with_its_qos(gate: Gate, unique: str, qos: int) -> None:
    pub = gate.connect().publish(unique, b"kept", qos=qos, packet_id=1, retain=True)
    pub.next() if qos else pub.ping()
    assert [(m.payload, m.qos) for m in gate.retained(unique)] == [(b"kept", qos)]


def test_mqtt311_3_3_1_6__a_new_subscription_gets_the_last_of_each_topic(gate: Gate, unique: str) -> None:
    """And so does a new client of the same filter."""
    pub = gate.connect()
    for topic, payload in (("a", b"old"), ("b", b"b"), ("a", b"a"), ("b/c", b"no")):
        pub.published(f"{unique}/{topic}", payload, retain=True)
    for _ in range(2):
        assert sorted(payloads(gate.retained(f"{unique}/+"))) == [b"a", b"b"]


def test_mqtt311_3_3_1_7__a_retained_message_at_qos_0_replaces_the_one_before(
    gate: Gate, unique: str
) -> None:
    pub = gate.connect().published(unique, b"at 1", retain=True)
    pub.publish(unique, b"at 0", retain=True).ping()
    assert [(m.payload, m.qos) for m in gate.retained(unique)] == [(b"at 0", 0)]


def test_mqtt311_3_3_1_8__what_a_new_subscription_brings_has_retain(gate: Gate, unique: str) -> None:
    gate.connect().published(unique, b"kept", retain=True)
    assert [message.retain for message in gate.retained(unique)] == [True]


def test_mqtt311_3_3_1_9__what_matches_an_established_subscription_has_no_retain(
    gate: Gate, unique: str
) -> None:
    """Nor has what waited for a client that was away."""
    sub = gate.subscriber(unique)
    away = gate.lasting(unique)
    away.subscribe((unique, 1))
    away.disconnect()
    gate.connect().published(unique, b"1", retain=True).published(unique, b"2", qos=2, retain=True)
    assert [message.retain for message in sub.messages(2)] == [False, False]
    assert [message.retain for message in gate.lasting(unique).messages(2)] == [False, False]


def test_mqtt311_3_3_1_10__an_empty_one_is_delivered_and_removes_the_one_before(
    gate: Gate, unique: str
) -> None:
    sub = gate.subscriber(unique)
    gate.connect().published(unique, b"kept", retain=True).published(unique, b"", retain=True)
    assert sub.payloads(2) == [b"kept", b""]
    assert gate.retained(unique) == []


def test_mqtt311_3_3_1_11__an_empty_one_is_not_kept(gate: Gate, unique: str) -> None:
    gate.connect().published(unique, b"", retain=True)
    assert gate.retained(unique) == []


def test_mqtt311_3_3_1_12__without_retain_nothing_that_is_retained_changes(gate: Gate, unique: str) -> None:
    pub = gate.connect().published(unique, b"not kept")
    assert gate.retained(unique) == []
    pub.published(unique, b"kept", retain=True).published(unique, b"other").published(unique, b"")
    assert payloads(gate.retained(unique)) == [b"kept"]


def test_mqtt311_3_3_2_1__the_topic_is_the_first_field_and_text(gate: Gate) -> None:
    for body in (b"", b"\0", b"\0\5abc", f.text(b"\xff")):
        assert gate.fails(f.packet(3, 0, body)) == b""


def test_mqtt311_3_3_2_2__a_topic_with_a_wildcard_closes(gate: Gate) -> None:
    for topic in ("#", "+", "a/#", "a/+/b", "a#"):
        assert gate.fails(f.publish(topic)) == b""


def test_mqtt311_3_3_2_3__the_topic_that_comes_matches_the_filter(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(f"{unique}/+/c", f"{unique}/end")
    pub = gate.connect()
    for topic in ("a/b", "a.b/c", "/c", "b/c/d", "end"):
        pub.publish(f"{unique}/{topic}")
    assert [m.topic.removeprefix(unique) for m in sub.messages(3)] == ["/a.b/c", "//c", "/end"]


def test_mqtt311_3_3_4_1__a_publish_is_answered_as_its_qos_demands(gate: Gate, unique: str) -> None:
    pub = gate.connect()
    for _ in range(2):
        assert pub.publish(unique).ping() == []
        assert pub.publish(unique, qos=1, packet_id=5).bytes() == b"\x40\2\0\5"
        assert pub.publish(unique, qos=2, packet_id=6).bytes() == b"\x50\2\0\6"
        assert pub.pubrel(6).bytes() == b"\x70\2\0\6"
        gate.subscriber(unique)


@pytest.mark.parametrize("published", [0, 1, 2])
def test_mqtt311_3_3_5_1__the_highest_qos_of_overlapping_subscriptions_counts(
    gate: Gate, unique: str, published: int
) -> None:
    sub = gate.subscriber((f"{unique}/#", 0), (f"{unique}/+", 2), (f"{unique}/a", 1))
    gate.connect().publish(f"{unique}/a", qos=published, packet_id=1)
    assert sub.message().qos == published
    assert sub.ping() == []


def test_mqtt311_3_3_5_2__a_publish_that_is_not_allowed_is_acknowledged(gate: Gate, unique: str) -> None:
    """And the connection stays."""
    pub = gate.connect()
    assert pub.publish("$SYS/x", qos=1, packet_id=5).bytes() == b"\x40\2\0\5"
    assert pub.publish("$SYS/x", qos=2, packet_id=6).bytes() == b"\x50\2\0\6"
    assert pub.pubrel(6).bytes() == b"\x70\2\0\6"
    assert pub.publish("$SYS/x").ping() == []


def test_mqtt311_3_6_1_1__pubrel_has_the_flags_0010(gate: Gate, unique: str) -> None:
    for flags in set(range(16)) - {2}:
        assert gate.fails(f.packet(6, flags, b"\0\1")) == b""
    sub = gate.subscriber(unique)
    gate.connect().published(unique, qos=2)
    packet_id = sub.message().packet_id
    assert sub.pubrec(packet_id).bytes() == b"\x62\2" + packet_id.to_bytes(2, "big")
