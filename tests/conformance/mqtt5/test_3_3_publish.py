"""MQTT 5.0, section 3.3: PUBLISH."""

from __future__ import annotations

import time

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, Message, encode, payloads, props

MALFORMED = b"\xe0\x01\x81"
PROTOCOL_ERROR = b"\xe0\x01\x82"

NO_LOCAL, RETAIN_AS_PUBLISHED = 4, 8
HANDLING = (0x00, 0x10, 0x20)


def forwarded(gate: Gate, unique: str, block: bytes) -> Message:
    """The message that a subscriber gets when it is published with these properties."""
    sub = gate.subscriber(unique)
    gate.connect().publish(unique, b"payload", block=block)
    return sub.message()


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_1_1__a_message_sent_again_has_dup(gate: Gate, unique: str, qos: int) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, qos))
    gate.connect().published(unique, b"x", qos=qos)
    sent = first.message()
    assert not sent.dup
    first.close()
    again = gate.lasting(unique).message()
    assert (again.dup, again.qos, again.packet_id) == (True, qos, sent.packet_id)


def test_mqtt5_3_3_1_2__qos_0_never_has_dup(gate: Gate, unique: str) -> None:
    assert gate.fails(f.publish("t", dup=True, props=b"")) == MALFORMED
    sub = gate.lasting(unique)
    sub.subscribe((unique, 0))
    pub = gate.connect().publish(unique, b"1", qos=1, packet_id=1, dup=True).publish(unique, b"0")
    assert [m.dup for m in sub.messages(2)] == [False, False]
    sub.close()
    sub = gate.lasting(unique)
    pub.publish(unique, b"x", qos=2, packet_id=2, dup=True)
    assert not sub.message().dup


def test_mqtt5_3_3_1_3__dup_is_not_passed_on(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    pub = gate.connect()
    pub.publish(unique, b"1", qos=1, packet_id=1, dup=True)
    pub.publish(unique, b"2", qos=2, packet_id=2, dup=True)
    assert [(m.payload, m.dup) for m in sub.messages(2)] == [(b"1", False), (b"2", False)]


def test_mqtt5_3_3_1_4__qos_3_is_malformed(gate: Gate) -> None:
    for flags in (6, 14):
        assert gate.fails(f.packet(3, flags, f.text("t") + b"\0\1\0")) == MALFORMED


def test_mqtt5_3_3_1_5__a_retained_message_replaces_the_one_before(gate: Gate, unique: str) -> None:
    pub = gate.connect()
    pub.published(unique, b"old", retain=True, block=props(content_type="old", response_topic="r"))
    pub.published(unique, b"new", qos=2, retain=True, block=props(content_type="new"))
    (kept,) = gate.retained(unique)
    assert (kept.payload, kept.qos, kept.retain) == (b"new", 2, True)
    assert kept.props == {"content_type": [b"new"]}
    pub.publish(unique, b"at 0", retain=True)
    pub.ping()
    assert [(m.payload, m.qos) for m in gate.retained(unique)] == [(b"at 0", 0)]


def test_mqtt5_3_3_1_6__an_empty_retained_message_removes_the_one_before(gate: Gate, unique: str) -> None:
    """And it is delivered itself to those who are subscribed."""
    sub = gate.subscriber(unique)
    pub = gate.connect().published(unique, b"kept", retain=True).published(unique, b"", retain=True)
    assert sub.payloads(2) == [b"kept", b""]
    assert gate.retained(unique) == []
    pub.ping()


def test_mqtt5_3_3_1_7__an_empty_retained_message_is_not_kept(gate: Gate, unique: str) -> None:
    gate.connect().published(unique, b"", retain=True, block=props(content_type="x"))
    assert gate.retained(unique) == []


def test_mqtt5_3_3_1_8__without_retain_nothing_that_is_retained_changes(gate: Gate, unique: str) -> None:
    pub = gate.connect()
    pub.published(unique, b"x")
    assert gate.retained(unique) == []
    pub.published(unique, b"kept", retain=True).published(unique, b"other").published(unique, b"")
    assert payloads(gate.retained(unique)) == [b"kept"]


def handled(gate: Gate, unique: str, handling: int) -> list[list[bytes]]:
    """The retained messages after a first SUBSCRIBE, and after a second one with the same filter."""
    gate.connect().published(f"{unique}/a", b"a", retain=True).published(f"{unique}/b", b"b", retain=True)
    sub = gate.connect()
    found = []
    for _ in range(2):
        sub.subscribe((f"{unique}/+", 1 | HANDLING[handling]))
        found.append(sorted(sub.parse_publish(packet).payload for packet in sub.ping()))
    return found


def test_mqtt5_3_3_1_9__retain_handling_0_sends_what_is_retained(gate: Gate, unique: str) -> None:
    assert handled(gate, unique, 0) == [[b"a", b"b"], [b"a", b"b"]]


def test_mqtt5_3_3_1_10__retain_handling_1_sends_it_to_new_subscriptions(gate: Gate, unique: str) -> None:
    assert handled(gate, unique, 1) == [[b"a", b"b"], []]


def test_mqtt5_3_3_1_11__retain_handling_2_sends_none_of_it(gate: Gate, unique: str) -> None:
    assert handled(gate, unique, 2) == [[], []]


def as_published(gate: Gate, unique: str, option: int) -> list[bool]:
    sub = gate.connect()
    sub.subscribe((unique, 2 | option))
    pub = gate.connect()
    pub.published(unique, b"1", retain=True).published(unique, b"2")
    pub.published(unique, b"3", qos=2, retain=True).publish(unique, b"4", retain=True)
    return [message.retain for message in sub.messages(4)]


def test_mqtt5_3_3_1_12__without_retain_as_published_retain_is_0(gate: Gate, unique: str) -> None:
    assert as_published(gate, unique, 0) == [False] * 4


def test_mqtt5_3_3_1_13__with_retain_as_published_retain_is_the_publishers(gate: Gate, unique: str) -> None:
    assert as_published(gate, unique, RETAIN_AS_PUBLISHED) == [True, False, True, True]


def test_mqtt5_3_3_2_1__the_topic_is_the_first_field_and_text(gate: Gate) -> None:
    assert gate.fails(f.packet(3, 0, b"")) == MALFORMED
    assert gate.fails(f.packet(3, 0, b"\0")) == MALFORMED
    assert gate.fails(f.packet(3, 0, b"\0\5abc")) == MALFORMED
    assert gate.fails(f.publish(b"\xc3\x28", props=b"")) == MALFORMED


def test_mqtt5_3_3_2_2__a_topic_with_a_wildcard_is_malformed(gate: Gate) -> None:
    for topic in ("#", "+", "a/#", "a/+/b", "a#", "+a"):
        assert gate.fails(f.publish(topic, props=b"")) == MALFORMED


def test_mqtt5_3_3_2_3__the_topic_that_comes_matches_the_filter(gate: Gate, unique: str) -> None:
    """It is the topic as it was published, and what matches no filter does not come."""
    sub = gate.subscriber(f"{unique}/+/c", f"{unique}/end")
    pub = gate.connect()
    for topic in ("a/b", "a.b/c", "/c", "b/c/d", "a+b"[:1] + "/c", "end"):
        pub.publish(f"{unique}/{topic}")
    topics = [message.topic.removeprefix(unique + "/") for message in sub.messages(4)]
    assert topics == ["a.b/c", "/c", "a/c", "end"]


@pytest.mark.parametrize("value", [0, 1])
def test_mqtt5_3_3_2_4__the_payload_format_is_forwarded(gate: Gate, unique: str, value: int) -> None:
    block = props(payload_format=value)
    assert forwarded(gate, unique, block).props == {"payload_format": [value]}
    assert gate.fails(f.publish("t", props=props(payload_format=2))) == PROTOCOL_ERROR


def test_mqtt5_3_3_2_5__an_expired_message_is_deleted(gate: Gate, unique: str) -> None:
    """For a session that is away, behind a full window, and what is retained."""
    away = gate.lasting(unique)
    away.subscribe((unique, 1))
    away.disconnect()
    busy = gate.connect(props=props(receive_maximum=1))
    busy.subscribe((unique, 1))
    pub = gate.connect()
    for payload, expiry in ((b"first", 60), (b"over", 1), (b"at once", 0), (b"last", 60)):
        pub.published(unique, payload, block=props(message_expiry=expiry))
    pub.published(unique + "/r", b"retained", retain=True, block=props(message_expiry=3))
    first = busy.message()
    assert payloads(gate.retained(unique + "/r")) == [b"retained"]
    time.sleep(3.1)  # the passing of time is what is tested
    busy.puback(first.packet_id)
    assert (first.payload, busy.message().payload) == (b"first", b"last")
    assert gate.lasting(unique).payloads(2) == [b"first", b"last"]
    assert gate.retained(unique + "/r") == []


def test_mqtt5_3_3_2_6__the_expiry_counts_down_while_it_waits(gate: Gate, unique: str) -> None:
    away = gate.lasting(unique)
    away.subscribe((unique, 1))
    live = gate.subscriber(unique)
    away.disconnect()
    block = props(message_expiry=100, content_type="x")
    gate.connect().published(unique, b"m", retain=True, block=block)
    first = live.message().props
    assert first["content_type"] == [b"x"] and 90 < first["message_expiry"][0] <= 100
    time.sleep(1.1)  # the passing of time is what is tested
    (kept,) = gate.retained(unique)
    for waited in (gate.lasting(unique).message(), kept):
        assert 60 < waited.props["message_expiry"][0] <= 99


def test_mqtt5_3_3_2_7__aliases_end_with_their_connection(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    pub = gate.lasting(unique)
    pub.publish(unique, b"1", block=props(topic_alias=1)).publish("", b"2", block=props(topic_alias=1))
    assert sub.payloads(2) == [b"1", b"2"]
    pub.disconnect()
    pub = gate.lasting(unique)
    assert pub.publish("", b"3", block=props(topic_alias=1)).until_closed() == PROTOCOL_ERROR
    # Towards the client too: a new connection gets the topic again.
    for _ in range(2):
        taking = gate.lasting(unique, props=props(topic_alias_maximum=5))
        taking.subscribe((unique, 0))
        gate.connect().publish(unique, b"x").publish(unique, b"x")
        got = taking.messages(2)
        assert [m.topic for m in got] == [unique, ""]
        assert got[0].props == got[1].props == {"topic_alias": [1]}
        taking.disconnect()


def test_mqtt5_3_3_2_8__alias_0_ends_with_0x94(gate: Gate) -> None:
    assert gate.fails(f.publish("t", props=props(topic_alias=0))) == b"\xe0\1\x94"


def test_mqtt5_3_3_2_9__an_alias_above_the_servers_maximum_ends_with_0x94(gate: Gate) -> None:
    for alias in (65, 65535):
        assert gate.fails(f.publish("t", props=props(topic_alias=alias))) == b"\xe0\1\x94"


def test_mqtt5_3_3_2_11__no_alias_is_above_the_clients_maximum(gate: Gate, unique: str) -> None:
    """One that is sent without its topic was sent with it before."""
    sub = gate.connect(props=props(topic_alias_maximum=2))
    sub.subscribe((f"{unique}/#", 1))
    pub = gate.connect()
    for topic in "abcabcddab":
        pub.published(f"{unique}/{topic}", topic.encode())
    known: dict[int, str] = {}
    for message in sub.messages(10):
        (alias,) = message.props.get("topic_alias", [0])
        assert alias <= 2
        topic = known.setdefault(alias, message.topic) if alias else message.topic
        assert message.topic in ("", topic)
        assert topic == f"{unique}/{message.payload.decode()}"
    assert len(known) == 2


def test_mqtt5_3_3_2_12__every_alias_up_to_the_maximum_is_taken(gate: Gate, unique: str) -> None:
    """Also out of order, and for another topic than before; the alias itself is not passed on."""
    sub = gate.subscriber(f"{unique}/#")
    pub = gate.connect()
    (maximum,) = pub.connack.props["topic_alias_maximum"]
    for alias in range(maximum, 0, -1):
        pub.publish(f"{unique}/{alias}", b"", block=props(topic_alias=alias))
    pub.publish(f"{unique}/again", b"", block=props(topic_alias=3))
    for alias in (1, 3, maximum):
        pub.publish("", b"", block=props(content_type="x", topic_alias=alias))
    got = sub.messages(maximum + 4)
    topics = [message.topic.removeprefix(unique + "/") for message in got]
    assert topics == [*map(str, range(maximum, 0, -1)), "again", "1", "again", str(maximum)]
    assert all(message.props == {} for message in got[:-3])
    assert all(message.props == {"content_type": [b"x"]} for message in got[-3:])


def test_mqtt5_3_3_2_13__a_response_topic_that_is_no_text_is_malformed(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0"):
        assert gate.fails(f.publish("t", props=props(response_topic=topic))) == MALFORMED


def test_mqtt5_3_3_2_14__a_response_topic_with_a_wildcard_is_malformed(gate: Gate) -> None:
    for topic in ("#", "a/+"):
        assert gate.fails(f.publish("t", props=props(response_topic=topic))) == MALFORMED


def test_mqtt5_3_3_2_15__the_response_topic_is_forwarded(gate: Gate, unique: str) -> None:
    assert forwarded(gate, unique, props(response_topic="ответ/a b")).props == {
        "response_topic": ["ответ/a b".encode()]
    }


def test_mqtt5_3_3_2_16__the_correlation_data_are_forwarded(gate: Gate, unique: str) -> None:
    for data in (b"", b"\xff\0\xfe", bytes(65535)):
        assert forwarded(gate, unique, props(correlation_data=data)).props == {"correlation_data": [data]}


def test_mqtt5_3_3_2_17__user_properties_are_forwarded(gate: Gate, unique: str) -> None:
    users = [("k", "v"), ("", ""), ("ключ", "\U0001f511"), ("long", "x" * 65535)]
    assert forwarded(gate, unique, props(user=users)).props == {"user": users}


def test_mqtt5_3_3_2_18__user_properties_keep_their_order(gate: Gate, unique: str) -> None:
    """Repeated names too, and with other properties between them."""
    users = [("b", "1"), ("a", "1"), ("b", "1"), ("b", "0"), ("a", "1")]
    block = props(user=users[:2]) + props(content_type="x") + props(user=users[2:])
    assert forwarded(gate, unique, block).props == {"user": users, "content_type": [b"x"]}


def test_mqtt5_3_3_2_19__a_content_type_that_is_no_text_is_malformed(gate: Gate) -> None:
    for value in (b"\xff", b"\0"):
        assert gate.fails(f.publish("t", props=props(content_type=value))) == MALFORMED


def test_mqtt5_3_3_2_20__the_content_type_is_forwarded(gate: Gate, unique: str) -> None:
    for value in ("", "application/json", "é" * 300):
        assert forwarded(gate, unique, props(content_type=value)).props == {"content_type": [value.encode()]}


def test_mqtt5_3_3_4_1__a_publish_is_answered_as_its_qos_demands(gate: Gate, unique: str) -> None:
    """With a subscriber, and without one, which the reason code says."""
    pub = gate.connect()
    pub.publish(unique)
    assert pub.ping() == []
    pub.publish(unique, qos=1, packet_id=5)
    assert pub.bytes() == f.ack(f.PUBACK, 5, 0x10)
    pub.publish(unique, qos=2, packet_id=6)
    assert pub.bytes() == f.ack(f.PUBREC, 6, 0x10)
    gate.subscriber(unique)
    pub.publish(unique, qos=1, packet_id=5)
    assert pub.bytes() == f.ack(f.PUBACK, 5)
    pub.publish(unique, qos=2, packet_id=7)
    assert pub.bytes() == f.ack(f.PUBREC, 7)


def overlapping(gate: Gate, unique: str, published: int) -> Message:
    """The one message that comes to a client with three filters that match."""
    sub = gate.connect()
    sub.subscribe((f"{unique}/#", 0), block=props(subscription_id=7))
    sub.subscribe((f"{unique}/+", 2), block=props(subscription_id=268_435_455))
    sub.subscribe((f"{unique}/a", 1))
    gate.connect().publish(f"{unique}/a", b"once", qos=published, packet_id=1)
    message = sub.message()
    assert sub.ping() == []
    return message


@pytest.mark.parametrize("published", [0, 1, 2])
def test_mqtt5_3_3_4_2__the_highest_qos_of_overlapping_subscriptions_counts(
    gate: Gate, unique: str, published: int
) -> None:
    assert overlapping(gate, unique, published).qos == published


def test_mqtt5_3_3_4_3__the_identifiers_of_overlapping_subscriptions_are_sent(
    gate: Gate, unique: str
) -> None:
    """Of those that match and have one, and of no others; from what is retained too."""
    sub = gate.connect()
    gate.connect().published(f"{unique}/b", b"kept", retain=True)
    sub.subscribe((f"{unique}/a", 1), block=props(subscription_id=1))
    sub.subscribe((f"{unique}/+", 1), block=props(subscription_id=2))
    kept = sub.message()
    assert (kept.topic, kept.props) == (f"{unique}/b", {"subscription_id": [2]})
    sub.subscribe((f"{unique}/c", 1))
    pub = gate.connect()
    for topic in "ab":
        pub.publish(f"{unique}/{topic}")
    assert [sorted(m.props["subscription_id"]) for m in sub.messages(2)] == [[1, 2], [2]]
    sub.subscribe((f"{unique}/+", 0x20))
    pub.publish(f"{unique}/c")
    assert sub.message().props == {}


def test_mqtt5_3_3_4_4__one_copy_has_the_identifiers_of_all(gate: Gate, unique: str) -> None:
    assert sorted(overlapping(gate, unique, 1).props["subscription_id"]) == [7, 268_435_455]


def test_mqtt5_3_3_4_6__a_clients_subscription_identifier_is_a_protocol_error(gate: Gate) -> None:
    assert gate.fails(f.publish("t", props=props(subscription_id=1))) == PROTOCOL_ERROR


def test_mqtt5_3_3_4_7__more_than_the_receive_maximum_ends_with_0x93(gate: Gate, unique: str) -> None:
    """QoS 2 messages hold their places until PUBCOMP, which makes room if it is for one of them."""
    wire = gate.connect()
    (maximum,) = wire.connack.props["receive_maximum"]
    wire.send(*[wire.frame(unique, qos=2, packet_id=i + 1) for i in range(maximum)])
    for _ in range(maximum):
        wire.answer(5)
    wire.pubrel(1)
    wire.answer(7)
    wire.publish(unique, qos=1, packet_id=maximum + 1)
    wire.answer(4)
    wire.publish(unique, qos=2, packet_id=maximum + 2)
    wire.answer(5)
    assert wire.pubrel(60_000).answer(7).code == 0x92
    assert wire.publish(unique, qos=2, packet_id=maximum + 3).until_closed() == b"\xe0\1\x93"


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_4_9__no_more_is_under_way_than_the_client_takes(gate: Gate, unique: str, qos: int) -> None:
    """A QoS 2 message counts until PUBCOMP, or until a PUBREC that refuses it."""
    sub = gate.connect(props=props(receive_maximum=3))
    sub.subscribe((unique, qos))
    pub = gate.connect()
    for i in range(6):
        pub.published(unique, bytes((i,)), qos=qos)
    got = sub.messages(3)
    assert sub.ping() == []
    if qos == 1:
        sub.puback(got[0].packet_id)
    else:
        sub.pubrec(got[0].packet_id)
        assert [encode(packet) for packet in sub.ping()] == [f.ack(f.PUBREL, got[0].packet_id)]
        sub.pubcomp(got[0].packet_id)
    assert sub.message().payload == b"\3"
    assert sub.ping() == []
    sub.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, got[1].packet_id, 0x80))
    assert sub.message().payload == b"\4"
    assert sub.ping() == []


def test_mqtt5_3_3_4_10__other_packets_do_not_wait_for_a_full_window(gate: Gate, unique: str) -> None:
    """Nor does a message at QoS 0 that comes after those which wait."""
    sub = gate.connect(props=props(receive_maximum=1))
    sub.subscribe((unique, 2), (f"{unique}/0", 0))
    pub = gate.connect().published(unique, b"1", qos=2).published(unique, b"2", qos=2)
    first = sub.message()
    assert sub.ping() == []
    assert sub.subscribe((f"{unique}/b", 1)) == [1]
    assert sub.unsubscribe(f"{unique}/b") == [0]
    sub.publish(unique + "/x", qos=1, packet_id=3)
    assert sub.answer(4).packet_id == 3
    sub.pubrec(first.packet_id)
    assert sub.answer(6).packet_id == first.packet_id
    pub.ping()
