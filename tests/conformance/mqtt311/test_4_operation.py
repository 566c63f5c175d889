"""MQTT 3.1.1, chapter 4 and 7.1: sessions, QoS, order, topics and filters, errors."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker
from tests.support.mqtt_wire import Gate, Wire, encode

each_qos = pytest.mark.parametrize("qos", [1, 2])


def away(gate: Gate, unique: str, qos: int = 2) -> Wire:
    """A client with a lasting session that is subscribed to `unique`."""
    wire = gate.lasting(unique)
    wire.subscribe((unique, qos))
    return wire


def test_mqtt311_4_1_0_1__session_state_is_kept_as_long_as_the_session(
    own_broker: Broker, unique: str
) -> None:
    """Subscriptions, what waits, what is under way in both directions; over a kill of the gateway too."""
    gate = Gate(own_broker.mqtt_port, 4)
    wire = away(gate, unique)
    gate.connect().published(unique, b"sent", qos=2)
    sent = wire.message()
    wire.publish(unique + "/x", qos=2, packet_id=9)
    assert wire.answer(5).packet_id == 9
    gate.connect().published(unique, b"waiting", qos=2)
    wire.next()
    own_broker.kill9()
    own_broker.start()
    wire = gate.lasting(unique)
    assert wire.connack.session_present == 1
    again = wire.messages(2)
    assert [(m.payload, m.dup) for m in again] == [(b"sent", True), (b"waiting", True)]
    assert again[0].packet_id == sent.packet_id
    wire.publish(unique + "/x", qos=2, packet_id=9, dup=True)
    assert wire.answer(5).packet_id == 9
    gate.connect().published(unique, b"live")
    assert wire.message().payload == b"live"
    gate.close()


def test_mqtt311_4_1_0_2__a_session_lasts_as_long_as_its_connection(gate: Gate, unique: str) -> None:
    """A clean one too."""
    wire = gate.connect()
    wire.subscribe((unique, 1))
    pub = gate.connect()
    for i in range(20):
        pub.published(unique, bytes((i,)))
        assert wire.message().payload == bytes((i,))
        wire.puback(i + 1)
    assert wire.ping() == []


def test_mqtt311_4_3_1_1__qos_0_is_sent_without_dup(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    gate.connect().publish(unique, b"payload")
    assert encode(sub.next()) == f.publish(unique, b"payload")


def test_mqtt311_4_3_2_1__qos_1_is_sent_until_puback(gate: Gate, unique: str) -> None:
    wire = away(gate, unique, 1)
    gate.connect().published(unique, b"1").published(unique, b"2")
    packets = [wire.next() for _ in range(2)]
    first, second = [wire.parse_publish(packet).packet_id for packet in packets]
    assert first != second
    assert encode(packets[0]) == f.publish(unique, b"1", qos=1, packet_id=first)
    wire.puback(first).ping()
    wire.close()
    for _ in range(2):
        wire = gate.lasting(unique)
        assert [encode(packet) for packet in wire.ping()] == [
            f.publish(unique, b"2", qos=1, packet_id=second, dup=True)
        ]
        wire.close()


def test_mqtt311_4_3_2_2__qos_1_is_answered_and_its_id_is_then_a_new_messages(
    gate: Gate, unique: str
) -> None:
    sub = gate.subscriber(unique)
    pub = gate.connect()
    for dup in (False, True, False):
        assert pub.publish(unique, qos=1, packet_id=5, dup=dup).bytes() == f.ack(f.PUBACK, 5)
    sub.messages(3)


def test_mqtt311_4_3_3_1__qos_2_is_sent_until_pubrec_and_released_until_pubcomp(
    own_broker: Broker, unique: str
) -> None:
    """On the next connections and over a kill of the gateway."""
    gate = Gate(own_broker.mqtt_port, 4)
    wire = away(gate, unique)
    gate.connect().published(unique, b"x", qos=2)
    packet = wire.next()
    packet_id = wire.parse_publish(packet).packet_id
    assert encode(packet) == f.publish(unique, b"x", qos=2, packet_id=packet_id)

    def resumed() -> Wire:
        wire.close()
        return gate.lasting(unique)

    for kill in (False, True):
        if kill:
            own_broker.kill9()
            own_broker.start()
        wire = resumed()
        assert wire.bytes() == f.publish(unique, b"x", qos=2, packet_id=packet_id, dup=True)
    assert wire.pubrec(packet_id).bytes() == f.ack(f.PUBREL, packet_id)
    for kill in (False, True):
        if kill:
            own_broker.kill9()
            own_broker.start()
        wire = resumed()
        assert [encode(packet) for packet in wire.ping()] == [f.ack(f.PUBREL, packet_id)]
    wire.pubcomp(packet_id).ping()
    assert resumed().ping() == []
    gate.close()


def test_mqtt311_4_3_3_2__qos_2_is_taken_once(own_broker: Broker, unique: str) -> None:
    """PUBREC for every copy, over a reconnect and a kill of the gateway; after PUBCOMP the id is new."""
    gate = Gate(own_broker.mqtt_port, 4)
    away(gate, unique).disconnect()
    pub = gate.lasting(unique + "-pub")
    for kill in (None, False, True):
        if kill:
            own_broker.kill9()
            own_broker.start()
        if kill is not None:
            pub.close()
            pub = gate.lasting(unique + "-pub")
        for dup in (kill is not None, True):
            assert pub.publish(unique, b"once", qos=2, packet_id=3, dup=dup).bytes() == f.ack(f.PUBREC, 3)
    assert pub.pubrel(3).bytes() == f.ack(f.PUBCOMP, 3)
    assert pub.pubrel(3).bytes() == f.ack(f.PUBCOMP, 3)
    assert pub.publish(unique, b"new", qos=2, packet_id=3).bytes() == f.ack(f.PUBREC, 3)
    wire = gate.lasting(unique)
    assert wire.payloads(2) == [b"once", b"new"]
    assert wire.ping() == []
    gate.close()


@each_qos
def test_mqtt311_4_4_0_1__what_is_unacknowledged_comes_again_on_resuming(
    gate: Gate, unique: str, qos: int
) -> None:
    wire = away(gate, unique, qos)
    pub = gate.connect().published(unique, b"1", qos=qos).published(unique, b"2", qos=qos)
    sent = wire.messages(2)
    assert wire.ping() == []
    wire.close()
    pub.published(unique, b"3", qos=qos)
    again = gate.lasting(unique).messages(3)
    assert [(m.packet_id, m.dup) for m in again[:2]] == [(m.packet_id, True) for m in sent]
    assert (again[2].payload, again[2].dup) == (b"3", False)


def test_mqtt311_4_5_0_1__a_message_is_added_to_every_session_that_subscribes(
    gate: Gate, unique: str
) -> None:
    topic = f"a/{unique}"
    sessions = []
    for i, name in enumerate((topic, f"+/{unique}", f"{topic}/#", f"+/{unique}/#")):
        wire = gate.lasting(f"{unique}-{i}")
        wire.subscribe((name, 1))
        sessions.append(wire)
    sessions[0].disconnect()
    gate.connect().published(topic, b"x")
    sessions[0] = gate.lasting(f"{unique}-0")
    assert [wire.message().payload for wire in sessions] == [b"x"] * 4


@each_qos
def test_mqtt311_4_6_0_1__messages_come_again_in_their_first_order(gate: Gate, unique: str, qos: int) -> None:
    wire = away(gate, unique, qos)
    pub = gate.connect()
    for i in range(20):
        pub.published(unique, bytes((i,)), qos=qos)
    sent = wire.messages(20)
    if qos == 1:
        wire.send(*[f.ack(f.PUBACK, message.packet_id) for message in sent[1::3]])
        wire.ping()
        sent = [message for i, message in enumerate(sent) if i % 3 != 1]
    for _ in range(2):
        wire.close()
        wire = gate.lasting(unique)
        assert wire.payloads(len(sent)) == [message.payload for message in sent]
        assert wire.ping() == []


def answers(gate: Gate, unique: str, qos: int) -> list[int]:
    """The packet ids of the answers to messages that need different care, in their order."""
    gate.lasting(unique).subscribe((f"{unique}/durable", 2))
    gate.subscriber(f"{unique}/fleeting")
    pub = gate.lasting(unique + "-pub")
    topics = [f"{unique}/durable", f"{unique}/fleeting", f"{unique}/nobody", "$SYS/refused"]
    pub.send(*[f.publish(topics[i % 4], qos=qos, packet_id=i) for i in range(100, 0, -1)])
    return [pub.answer(4 if qos == 1 else 5).packet_id for _ in range(100)]


def test_mqtt311_4_6_0_2__pubacks_are_in_the_order_of_the_messages(gate: Gate, unique: str) -> None:
    assert answers(gate, unique, 1) == list(range(100, 0, -1))


def test_mqtt311_4_6_0_3__pubrecs_are_in_the_order_of_the_messages(gate: Gate, unique: str) -> None:
    assert answers(gate, unique, 2) == list(range(100, 0, -1))


def test_mqtt311_4_6_0_4__pubrels_are_in_the_order_of_the_pubrecs(gate: Gate, unique: str) -> None:
    wire = away(gate, unique)
    pub = gate.connect()
    for _ in range(10):
        pub.published(unique, qos=2)
    ids = [message.packet_id for message in wire.messages(10)][::-1]
    wire.send(*[f.ack(f.PUBREC, packet_id) for packet_id in ids])
    assert [wire.answer(6).packet_id for _ in ids] == ids


def test_mqtt311_4_6_0_5__every_topic_is_ordered(gate: Gate, unique: str) -> None:
    for topic in (f"{unique}/a", f"/{unique}", f"$app/{unique}", f"{unique}//"):
        sub = gate.subscriber(topic)
        pub = gate.connect()
        pub.send(*[f.publish(topic, bytes((i,)), qos=2, packet_id=i + 1) for i in range(100)])
        assert sub.payloads(100) == [bytes((i,)) for i in range(100)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_4_6_0_6__messages_of_one_client_arrive_in_their_order(
    gate: Gate, unique: str, qos: int
) -> None:
    """On one topic, of each of two clients that publish at once."""
    sub = gate.subscriber(unique)
    pubs = [gate.connect(), gate.connect()]
    for start in range(0, 200, 50):
        for who, pub in enumerate(pubs):
            for i in range(start, start + 50):
                pub.publish(unique, bytes((who, i)), qos=qos, packet_id=i + 1)
    got = sub.payloads(400)
    for who in range(2):
        assert [payload[1] for payload in got if payload[0] == who] == list(range(200))


def invalid(gate: Gate, filter_: str) -> None:
    assert gate.fails(f.subscribe(1, (filter_, 0))) == b""
    assert gate.fails(f.unsubscribe(1, filter_)) == b""


def test_mqtt311_4_7_1_1__wildcards_are_not_for_topics(gate: Gate) -> None:
    for topic in ("+", "#", "a/+/b", "a/#"):
        assert gate.fails(f.publish(topic)) == b""
        assert gate.refused(f.connect("c", will=(topic, b"", 0, False))) == b""


def test_mqtt311_4_7_1_2__a_hash_stands_alone_in_the_last_level(gate: Gate, unique: str) -> None:
    for filter_ in ("a#", "a/b#", "#/a", "a/#/b", "##"):
        invalid(gate, filter_)
    topics = [unique, f"{unique}/", f"{unique}/a", f"{unique}/a/b/c", f"{unique}x"]
    assert gate.matching(f"{unique}/#", topics, f"end/{unique}") == topics[:-1]


def test_mqtt311_4_7_1_3__a_plus_stands_alone_in_its_level(gate: Gate, unique: str) -> None:
    for filter_ in ("a+", "+a", "a/+b/c", "++", "a/b+/#"):
        invalid(gate, filter_)
    topics = [f"{unique}/{rest}" for rest in ("b", "/b", "a/b", "a/b/c", "")]
    for filter_, expected in (("+", ["b", ""]), ("+/b", ["/b", "a/b"]), ("+/+", ["/b", "a/b"])):
        found = gate.matching(f"{unique}/{filter_}", topics, f"end/{unique}")
        assert found == [f"{unique}/{rest}" for rest in expected]


def test_mqtt311_4_7_2_1__a_leading_wildcard_matches_no_dollar_topic(gate: Gate, unique: str) -> None:
    topics = [f"$app/{unique}", f"app/{unique}"]
    for filter_ in ("#", f"+/{unique}", "+/#"):
        found = [t for t in gate.matching(filter_, topics, f"end/{unique}/{len(filter_)}") if unique in t]
        assert found == topics[1:], filter_
    assert gate.matching("$app/#", topics, f"end/{unique}/x") == topics[:1]


def test_mqtt311_4_7_3_1__topics_and_filters_are_not_empty(gate: Gate) -> None:
    invalid(gate, "")
    assert gate.fails(f.publish("")) == b""


def test_mqtt311_4_7_3_2__topics_and_filters_have_no_nul(gate: Gate) -> None:
    invalid(gate, "a\0b")
    assert gate.fails(f.publish("a\0b")) == b""


def test_mqtt311_4_7_3_3__topics_and_filters_of_65535_bytes_are_taken(gate: Gate, unique: str) -> None:
    topic = unique + "x" * (65535 - len(unique))
    sub = gate.subscriber(topic)
    gate.connect().publish(topic, b"long")
    assert sub.message().topic == topic


def test_mqtt311_4_7_3_4__topics_and_filters_are_compared_as_they_are(gate: Gate, unique: str) -> None:
    """No letters are made equal: case, composition, width, empty levels, spaces."""
    topics = [f"{unique}/{rest}" for rest in ("ä", "a\u0308", "Ä", "A", "a", "ａ", "a ", " a", "a/", "/a")]
    for topic in topics:
        assert gate.matching(topic, topics, f"end/{unique}") == [topic]


@pytest.mark.parametrize(
    "packet",
    [
        b"\x30\xff\xff\xff\xff\x01",
        b"\xc0\x80\x00",
        b"\x30\xff\xff\xff\x7f",
        f.packet(4, 0, b"\1"),
        f.packet(4, 0, b"\0\1\0"),
        f.packet(12, 0, b"x"),
        f.packet(2, 0, b"\0\0"),
        f.packet(9, 0, b"\0\1\0"),
        f.packet(13, 0, b""),
        f.packet(14, 0, b"\0"),
        f.packet(15, 0, b""),
    ],
    ids=["length", "long-length", "too-large", "puback", "puback-long", "ping-body", "connack", "suback"]
    + ["pingresp", "disconnect-body", "auth"],
)
def test_mqtt311_4_8_0_1__a_protocol_violation_closes(gate: Gate, unique: str, packet: bytes) -> None:
    """As if the network had failed: the will is published."""
    sub = gate.subscriber(unique)
    assert gate.fails(packet, will=(unique, b"will", 0, False)) == b""
    assert sub.message().payload == b"will"


def test_mqtt311_7_1_1_1__a_stream_of_bytes_is_the_transport(gate: Gate, unique: str) -> None:
    """TCP, however the bytes are cut."""
    sub = gate.subscriber(unique)
    wire = gate.wire()
    packets = f.connect("") + f.publish(unique, b"cut", qos=1, packet_id=1) + b"\xc0\0"
    for i in range(len(packets)):
        wire.send(packets[i : i + 1])
    assert wire.next().kind == 2
    assert sorted(wire.next().kind for _ in range(2)) == [4, 13]
    assert sub.message().payload == b"cut"
