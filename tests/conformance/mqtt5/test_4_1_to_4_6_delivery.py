"""MQTT 5.0, sections 4.1 to 4.6: sessions, QoS, retries, and the order of messages."""

from __future__ import annotations

import time

import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker
from tests.support.mqtt_wire import Closed, Gate, Wire, encode, props

each_qos = pytest.mark.parametrize("qos", [1, 2])


def away(gate: Gate, unique: str, qos: int = 2, **options: object) -> Wire:
    """A client with a lasting session that is subscribed to `unique`."""
    wire = gate.lasting(unique, **options)  # type: ignore[arg-type]
    wire.subscribe((unique, qos))
    return wire


def test_mqtt5_4_1_0_1__a_session_is_kept_while_it_is_connected(gate: Gate, unique: str) -> None:
    """Its expiry starts when the connection is closed, and starts anew each time."""
    wire = away(gate, unique, expiry_s=3)
    time.sleep(3.2)  # the passing of time is what is tested
    gate.connect().published(unique, b"x")
    assert wire.message().payload == b"x"
    wire.close()
    wire = gate.lasting(unique, 3)
    assert wire.connack.session_present == 1
    time.sleep(3.2)  # the passing of time is what is tested
    assert wire.message().dup
    assert wire.unsubscribe(unique) == [0]


def test_mqtt5_4_1_0_2__a_session_is_discarded_when_it_has_expired(gate: Gate, unique: str) -> None:
    """Also where DISCONNECT made the time shorter; with the connection itself when it is 0."""
    gate.lasting(unique + "0", 0).close()
    gate.lasting(unique + "1", 1).close()
    gate.lasting(unique + "2", 300).disconnect(0, props(session_expiry=1))
    gate.lasting(unique + "3", 1).disconnect(0, props(session_expiry=300))
    time.sleep(1.2)  # the passing of time is what is tested
    present = [gate.lasting(f"{unique}{i}").connack.session_present for i in range(4)]
    assert present == [0, 0, 0, 1]


def test_mqtt5_4_2_1__a_stream_of_bytes_is_the_transport(gate: Gate, unique: str) -> None:
    """TCP, however the bytes are cut."""
    sub = gate.subscriber(unique)
    wire = gate.wire()
    packets = f.connect("", version=5) + wire.frame(unique, b"cut", qos=1, packet_id=1) + b"\xc0\0"
    for i in range(len(packets)):
        wire.send(packets[i : i + 1])
    assert wire.next().kind == 2
    assert sorted(wire.next().kind for _ in range(2)) == [4, 13]
    assert sub.message().payload == b"cut"


def test_mqtt5_4_3_1_1__qos_0_is_sent_without_dup_and_packet_id(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    gate.connect().publish(unique, b"payload")
    assert encode(sub.next()) == f.publish(unique, b"payload", props=b"")


def new_messages(gate: Gate, unique: str, qos: int) -> list[int]:
    """The packet ids of messages under way together, after others that were acknowledged."""
    sub = gate.subscriber((unique, qos))
    pub = gate.connect()
    for _ in range(3):
        pub.published(unique, qos=qos)
        message = sub.message()
        if qos == 1:
            sub.puback(message.packet_id)
        else:
            sub.pubrec(message.packet_id).answer(6)
            sub.pubcomp(message.packet_id)
    for _ in range(20):
        pub.published(unique, qos=qos)
    got = sub.messages(20)
    assert all(message.qos == qos and not message.dup for message in got)
    return [message.packet_id for message in got]


def test_mqtt5_4_3_2_1__qos_1_takes_an_unused_packet_id(gate: Gate, unique: str) -> None:
    ids = new_messages(gate, unique, 1)
    assert len(set(ids)) == 20 and 0 not in ids


def test_mqtt5_4_3_2_2__qos_1_is_sent_with_its_id_and_without_dup(gate: Gate, unique: str) -> None:
    sub = gate.subscriber((unique, 1))
    gate.connect().published(unique, b"payload")
    packet = sub.next()
    (packet_id,) = {sub.parse_publish(packet).packet_id}
    assert encode(packet) == f.publish(unique, b"payload", qos=1, packet_id=packet_id, props=b"")


def test_mqtt5_4_3_2_3__qos_1_is_unacknowledged_until_puback(gate: Gate, unique: str) -> None:
    wire = away(gate, unique, 1)
    pub = gate.connect().published(unique, b"1").published(unique, b"2")
    first, second = wire.messages(2)
    wire.puback(first.packet_id)
    wire.ping()
    wire.close()
    for _ in range(2):
        wire = gate.lasting(unique)
        again = wire.message()
        assert (again.payload, again.packet_id) == (b"2", second.packet_id)
        assert wire.ping() == []
        wire.close()
    pub.ping()


def test_mqtt5_4_3_2_4__qos_1_is_answered_with_puback(gate: Gate, unique: str) -> None:
    """Having taken the message: it is delivered."""
    sub = gate.subscriber(unique)
    pub = gate.connect()
    pub.publish(unique, b"x", qos=1, packet_id=4711)
    assert pub.bytes() == f.ack(f.PUBACK, 4711)
    assert sub.message().payload == b"x"


def test_mqtt5_4_3_2_5__after_puback_the_id_is_a_new_messages(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    pub = gate.connect()
    for dup in (False, False, True):
        pub.publish(unique, b"x", qos=1, packet_id=5, dup=dup)
        assert pub.answer(4).packet_id == 5
    assert len(sub.messages(3)) == 3


def test_mqtt5_4_3_3_1__qos_2_takes_an_unused_packet_id(gate: Gate, unique: str) -> None:
    ids = new_messages(gate, unique, 2)
    assert len(set(ids)) == 20 and 0 not in ids


def test_mqtt5_4_3_3_2__qos_2_is_sent_with_its_id_and_without_dup(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    gate.connect().published(unique, b"payload", qos=2)
    packet = sub.next()
    packet_id = sub.parse_publish(packet).packet_id
    assert encode(packet) == f.publish(unique, b"payload", qos=2, packet_id=packet_id, props=b"")


def test_mqtt5_4_3_3_3__qos_2_is_unacknowledged_until_pubrec(gate: Gate, unique: str) -> None:
    wire = away(gate, unique)
    gate.connect().published(unique, b"1", qos=2)
    sent = wire.message()
    wire.close()
    for _ in range(2):
        wire = gate.lasting(unique)
        again = wire.message()
        assert (again.payload, again.packet_id, again.dup) == (b"1", sent.packet_id, True)
        wire.close()


def test_mqtt5_4_3_3_4__pubrec_is_answered_with_pubrel(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    gate.connect().published(unique, qos=2)
    packet_id = sub.message().packet_id
    assert sub.pubrec(packet_id).bytes() == f.ack(f.PUBREL, packet_id)
    gate.connect().published(unique, qos=2)
    assert sub.pubrec(sub.message().packet_id, 0x80).ping() == []


def test_mqtt5_4_3_3_5__pubrel_is_unacknowledged_until_pubcomp(gate: Gate, unique: str) -> None:
    wire = away(gate, unique)
    gate.connect().published(unique, qos=2)
    packet_id = wire.message().packet_id
    wire.pubrec(packet_id).answer(6)
    wire.close()
    for _ in range(2):
        wire = gate.lasting(unique)
        assert wire.bytes() == f.ack(f.PUBREL, packet_id)
        if _ == 0:
            wire.close()
    wire.pubcomp(packet_id).ping()
    wire.close()
    assert gate.lasting(unique).ping() == []


def test_mqtt5_4_3_3_6__after_pubrel_the_publish_is_not_sent_again(own_broker: Broker, unique: str) -> None:
    """Not on the next connection, nor after the gateway was killed; the PUBREL is."""
    gate = Gate(own_broker.mqtt_port, 5)
    wire = away(gate, unique)
    gate.connect().published(unique, qos=2)
    packet_id = wire.message().packet_id
    wire.pubrec(packet_id).answer(6)
    own_broker.kill9()
    own_broker.start()
    for _ in range(2):
        wire = gate.lasting(unique)
        assert [encode(packet) for packet in wire.ping()] == [f.ack(f.PUBREL, packet_id)]
        wire.close()
    gate.close()


def test_mqtt5_4_3_3_7__a_message_that_was_sent_does_not_expire(gate: Gate, unique: str) -> None:
    """Its time is over when the client is back, and it comes again. One that was never sent does not come."""
    wire = away(gate, unique, props=props(receive_maximum=1))
    pub = gate.connect()
    for payload in (b"sent", b"unsent"):
        pub.published(unique, payload, qos=2, block=props(message_expiry=2))
    sent = wire.message()
    wire.close()
    time.sleep(2.2)  # the passing of time is what is tested
    wire = gate.lasting(unique)
    again = wire.message()
    assert (again.payload, again.packet_id, again.dup) == (b"sent", sent.packet_id, True)
    assert wire.pubrec(again.packet_id).answer(6).packet_id == sent.packet_id
    wire.pubcomp(sent.packet_id)
    assert wire.ping() == []


def test_mqtt5_4_3_3_8__qos_2_is_answered_with_pubrec(gate: Gate, unique: str) -> None:
    """Having taken the message: it is delivered before PUBREL."""
    sub = gate.subscriber(unique)
    pub = gate.connect()
    pub.publish(unique, b"x", qos=2, packet_id=4711)
    assert pub.bytes() == f.ack(f.PUBREC, 4711)
    assert sub.message().payload == b"x"


def test_mqtt5_4_3_3_9__after_a_refusal_the_id_is_a_new_messages(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    pub = gate.connect()
    pub.publish("$SYS/x", b"refused", qos=2, packet_id=3)
    assert pub.answer(5).code == 0x87
    pub.publish(unique, b"taken", qos=2, packet_id=3)
    assert pub.answer(5).code == 0
    assert sub.message().payload == b"taken"


def test_mqtt5_4_3_3_10__the_same_id_before_pubrel_is_delivered_once(own_broker: Broker, unique: str) -> None:
    """On this connection, on the next one, and after the gateway was killed."""
    gate = Gate(own_broker.mqtt_port, 5)
    away(gate, unique).disconnect()
    pub = gate.lasting(unique + "-pub")

    def again() -> None:
        pub.publish(unique, b"once", qos=2, packet_id=3, dup=True)
        assert pub.answer(5).packet_id == 3

    pub.publish(unique, b"once", qos=2, packet_id=3)
    pub.answer(5)
    again()
    pub.close()
    pub = gate.lasting(unique + "-pub")
    again()
    own_broker.kill9()
    own_broker.start()
    pub = gate.lasting(unique + "-pub")
    again()
    pub.pubrel(3).answer(7)
    wire = gate.lasting(unique)
    assert wire.message().payload == b"once"
    assert wire.ping() == []
    gate.close()


def test_mqtt5_4_3_3_11__pubrel_is_answered_with_pubcomp(gate: Gate, unique: str) -> None:
    gate.subscriber(unique)
    pub = gate.connect()
    pub.publish(unique, qos=2, packet_id=258)
    pub.answer(5)
    assert pub.pubrel(258).bytes() == b"\x70\2\1\2"
    assert pub.pubrel(258).bytes() == b"\x70\3\1\2\x92"


def test_mqtt5_4_3_3_12__after_pubcomp_the_id_is_a_new_messages(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    pub = gate.connect()
    for _ in range(3):
        pub.publish(unique, b"x", qos=2, packet_id=5, dup=_ == 2)
        pub.answer(5)
        pub.pubrel(5).answer(7)
    assert len(sub.messages(3)) == 3


def test_mqtt5_4_3_3_13__the_exchange_goes_on_though_the_message_has_expired(gate: Gate, unique: str) -> None:
    """Towards the publisher, though nobody gets it."""
    wire = away(gate, unique)
    wire.disconnect()
    pub = gate.connect()
    pub.publish(unique, b"x", qos=2, packet_id=5, block=props(message_expiry=1))
    assert pub.answer(5).code == 0
    time.sleep(1.2)  # the passing of time is what is tested
    pub.publish(unique, b"x", qos=2, packet_id=5, dup=True, block=props(message_expiry=1))
    assert pub.answer(5).code == 0
    assert pub.pubrel(5).answer(7).code == 0
    assert gate.lasting(unique).ping() == []


@each_qos
def test_mqtt5_4_4_0_1__what_is_unacknowledged_comes_again_on_resuming_and_only_then(
    gate: Gate, unique: str, qos: int
) -> None:
    wire = away(gate, unique, qos)
    pub = gate.connect()
    for payload in (b"1", b"2", b"3"):
        pub.published(unique, payload, qos=qos)
    sent = wire.messages(3)
    time.sleep(0.5)  # the passing of time is what is tested
    assert wire.ping() == []
    wire.close()
    pub.published(unique, b"4", qos=qos)
    wire = gate.lasting(unique)
    again = wire.messages(4)
    assert [(m.payload, m.packet_id, m.dup) for m in again[:3]] == [
        (m.payload, m.packet_id, True) for m in sent
    ]
    assert (again[3].payload, again[3].dup) == (b"4", False)
    assert again[3].packet_id not in [m.packet_id for m in sent]
    assert wire.ping() == []
    wire.close()
    # A clean start resumes nothing.
    assert gate.connect(unique, clean=True).ping() == []


@each_qos
def test_mqtt5_4_4_0_2__what_was_refused_is_not_sent_again(gate: Gate, unique: str, qos: int) -> None:
    wire = away(gate, unique, qos)
    gate.connect().published(unique, b"1", qos=qos).published(unique, b"2", qos=qos)
    first, _ = wire.messages(2)
    wire.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, first.packet_id, 0x83))
    assert wire.ping() == []
    wire.close()
    wire = gate.lasting(unique)
    assert wire.message().payload == b"2"
    assert wire.ping() == []


def test_mqtt5_4_5_0_1__a_message_is_added_to_every_session_that_subscribes(gate: Gate, unique: str) -> None:
    """Connected or not, and by whatever filter."""
    filters = (f"a/{unique}", f"+/{unique}", f"a/{unique}/#", f"+/{unique}/#")
    sessions = []
    for i, name in enumerate(filters):
        wire = gate.lasting(f"{unique}-{i}")
        wire.subscribe((name, 1))
        sessions.append(wire)
    for wire in sessions[::2]:
        wire.disconnect()
    gate.connect().published(f"a/{unique}", b"x")
    for i, wire in enumerate(sessions):
        wire = gate.lasting(f"{unique}-{i}") if i % 2 == 0 else wire
        assert wire.message().payload == b"x"


@each_qos
def test_mqtt5_4_6_0_1__messages_come_again_in_their_first_order(gate: Gate, unique: str, qos: int) -> None:
    """Whichever of them were acknowledged, on each reconnect, and before new ones."""
    wire = away(gate, unique, qos)
    pub = gate.connect()
    for i in range(20):
        pub.published(unique, bytes((i,)), qos=qos)
    sent = wire.messages(20)
    for message in sent[1:20:3]:
        wire.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, message.packet_id, 0x80))
    wire.ping()
    left = [message.payload for i, message in enumerate(sent) if i % 3 != 1]
    for _ in range(3):
        wire.close()
        pub.published(unique, b"new", qos=qos)
        wire = gate.lasting(unique)
        assert wire.payloads(len(left)) == left
        left.append(b"new")
        assert wire.message().payload == b"new"


def answers_in_order(gate: Gate, unique: str, qos: int) -> list[int]:
    """The packet ids of the answers to messages that need different care, in their order."""
    gate.lasting(unique).subscribe((f"{unique}/durable", 2))
    gate.subscriber(f"{unique}/fleeting")
    pub = gate.lasting(unique + "-pub")
    topics = [f"{unique}/durable", f"{unique}/fleeting", f"{unique}/nobody", "$SYS/refused"]
    ids = list(range(100, 0, -1))
    pub.send(
        *[pub.frame(topics[i % 4], b"x", qos=qos, packet_id=i, retain=i % 4 == 2 and i % 5 == 0) for i in ids]
    )
    found = [pub.answer(4 if qos == 1 else 5).packet_id for _ in ids]
    assert pub.ping() == []
    assert sorted(found) == sorted(ids)
    return found


def test_mqtt5_4_6_0_2__pubacks_are_in_the_order_of_the_messages(gate: Gate, unique: str) -> None:
    assert answers_in_order(gate, unique, 1) == list(range(100, 0, -1))


def test_mqtt5_4_6_0_3__pubrecs_are_in_the_order_of_the_messages(gate: Gate, unique: str) -> None:
    assert answers_in_order(gate, unique, 2) == list(range(100, 0, -1))


def test_mqtt5_4_6_0_4__pubrels_are_in_the_order_of_the_pubrecs(gate: Gate, unique: str) -> None:
    wire = away(gate, unique)
    pub = gate.connect()
    for i in range(10):
        pub.published(unique, bytes((i,)), qos=2)
    ids = [message.packet_id for message in wire.messages(10)]
    order = ids[::-2] + ids[::2]
    wire.send(*[f.ack(f.PUBREC, packet_id) for packet_id in order])
    assert [wire.answer(6).packet_id for _ in order] == order


def in_order(gate: Gate, unique: str, qos: int) -> None:
    live, behind = gate.lasting(unique + "1"), gate.lasting(unique + "2")
    for wire in (live, behind):
        wire.subscribe((f"{unique}/+", qos))
    behind.disconnect()
    first, second = gate.connect(), gate.connect()
    for start in range(0, 300, 100):
        for pub, topic in ((first, "a"), (second, "b")):
            frames = [
                pub.frame(f"{unique}/{topic}", i.to_bytes(2, "big"), qos=qos, packet_id=i + 1)
                for i in range(start, start + 100)
            ]
            pub.send(*frames)
    received: dict[str, list[int]] = {}

    def collect(wire: Wire) -> None:
        received.clear()
        for _ in range(600):
            message = wire.message()
            received.setdefault(message.topic, []).append(int.from_bytes(message.payload, "big"))
            if qos == 1:
                wire.puback(message.packet_id)

    collect(live)
    assert list(received.values()) == [list(range(300))] * 2
    if qos:
        collect(gate.lasting(unique + "2"))
        assert list(received.values()) == [list(range(300))] * 2


@pytest.mark.parametrize("qos", [0, 1])
def test_mqtt5_4_6_0_5__messages_of_one_client_arrive_in_their_order(
    gate: Gate, unique: str, qos: int
) -> None:
    in_order(gate, unique, qos)


def test_mqtt5_4_6_0_6__every_topic_is_ordered(gate: Gate, unique: str) -> None:
    """At QoS 2 too, and whatever the topic is called."""
    for topic in (f"{unique}/a/b", f"/{unique}", f"$app/{unique}", f"{unique}//"):
        sub = gate.subscriber(topic)
        pub = gate.connect()
        pub.send(*[pub.frame(topic, bytes((i,)), qos=2, packet_id=i + 1) for i in range(100)])
        assert sub.payloads(100) == [bytes((i,)) for i in range(100)]
        with pytest.raises(Closed):
            while True:
                sub.send(f.disconnect()).next()
