"""MQTT 5.0, section 4.8.2: shared subscriptions."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, Wire

MALFORMED = b"\xe0\x01\x81"


def member(gate: Gate, unique: str, qos: int = 2, client_id: str | None = None) -> Wire:
    """A member of the group that shares `unique`, with a session that outlives it."""
    wire = gate.lasting(client_id or f"{unique}-member")
    assert wire.subscribe((f"$share/{unique}/{unique}", qos)) == [qos]
    return wire


def test_mqtt5_4_8_2_1__a_shared_filter_has_a_name(gate: Gate, unique: str) -> None:
    """With one, what the inner filter matches is shared: each message goes to one member."""
    for filter_ in ("$share//t", "$share/"):
        assert gate.fails(f.subscribe(1, (filter_, 0), version=5)) == MALFORMED
    first, second = (gate.subscriber((f"$share/g/{unique}/+", 1)) for _ in range(2))
    pub = gate.connect()
    for i in range(10):
        pub.published(f"{unique}/{i}", bytes((i,)))
    got = [[m.payload[0] for m in map(w.parse_publish, w.ping())] for w in (first, second)]
    assert sorted(got[0] + got[1]) == list(range(10))
    assert got[0] and got[1]


def test_mqtt5_4_8_2_2__the_name_has_no_wildcard_and_a_filter_follows(gate: Gate) -> None:
    for filter_ in ("$share/a+/t", "$share/#/t", "$share/+/t", "$share/g", "$share/g/", "$share/g/a#"):
        assert gate.fails(f.subscribe(1, (filter_, 0), version=5)) == MALFORMED, filter_
    wire = gate.connect()
    assert wire.subscribe(("$share/g/#", 0), ("$share/g/+/x", 1), ("$share/g//", 2)) == [0, 1, 2]
    assert wire.unsubscribe("$share/g/#", "$share/g/+/x", "$share/g//") == [0, 0, 0]


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt5_4_8_2_3__the_granted_qos_counts(gate: Gate, unique: str, granted: int) -> None:
    """Each member's own, though others of the group have another one."""
    low = gate.subscriber((f"$share/{unique}/{unique}", 0))
    wire = gate.subscriber((f"$share/{unique}/{unique}", granted))
    pub = gate.connect()
    for published in (0, 1, 2) * 4:
        pub.publish(unique, bytes((published,)), qos=published, packet_id=1 + published)
        if published:
            pub.next()
        if published == 2:
            pub.pubrel(3).answer(7)
    mine, theirs = wire.ping(), low.ping()
    assert len(mine) + len(theirs) == 12 and mine and theirs
    for message in map(wire.parse_publish, mine):
        assert message.qos == min(message.payload[0], granted)
    assert all(low.parse_publish(packet).qos == 0 for packet in theirs)


def test_mqtt5_4_8_2_4__a_qos_2_message_is_completed_with_the_member_that_has_it(
    gate: Gate, unique: str
) -> None:
    """Though another member is there all the while."""
    wire = member(gate, unique)
    gate.connect().published(unique, b"x", qos=2)
    sent = wire.message()
    wire.close()
    other = member(gate, unique, client_id=f"{unique}-other")
    assert other.ping() == []
    wire = gate.lasting(f"{unique}-member")
    again = wire.message()
    assert (again.payload, again.packet_id, again.dup, again.qos) == (b"x", sent.packet_id, True, 2)
    assert wire.pubrec(again.packet_id).answer(6).packet_id == again.packet_id
    wire.pubcomp(again.packet_id)
    assert wire.ping() == [] and other.ping() == []


def test_mqtt5_4_8_2_5__if_its_session_ends_no_other_member_gets_it(gate: Gate, unique: str) -> None:
    wire = member(gate, unique)
    pub = gate.connect().published(unique, b"x", qos=2)
    wire.message()
    other = member(gate, unique, client_id=f"{unique}-other")
    wire.close()
    assert gate.connect(f"{unique}-member", clean=True).ping() == []
    pub.published(unique, b"end", qos=2)
    assert other.message().payload == b"end"
    assert other.ping() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_8_2_6__what_a_member_refuses_goes_to_no_other(gate: Gate, unique: str, qos: int) -> None:
    wire = member(gate, unique, qos)
    pub = gate.connect().published(unique, b"refused", qos=qos)
    refused = wire.message()
    other = member(gate, unique, qos, f"{unique}-other")
    wire.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, refused.packet_id, 0x97))
    assert wire.ping() == []
    wire.disconnect()
    pub.published(unique, b"end", qos=qos)
    assert other.message().payload == b"end"
    assert other.ping() == []
