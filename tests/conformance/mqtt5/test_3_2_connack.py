"""MQTT 5.0, section 3.2: CONNACK, and what the gateway's limits in it mean."""

from __future__ import annotations

import time
from pathlib import Path

from tests.reference import mqtt_frames as f
from tests.support.brokers import Gateway
from tests.support.mqtt_wire import LIMIT_S, Gate, props, wrong_login


def test_mqtt5_3_2_0_1__connack_is_the_first_packet(gate: Gate, unique: str) -> None:
    """Though messages wait and answers are due: all that was sent with CONNECT in one write."""
    first = gate.lasting(unique)
    first.subscribe((unique, 1))
    first.disconnect()
    gate.connect().published(unique, b"waiting")
    wire = gate.wire()
    connect = f.connect(unique, version=5, clean=False, props=props(session_expiry=300))
    wire.send(connect, b"\xc0\0", wire.frame(unique, b"own", qos=1, packet_id=5))
    assert wire.answer(2).codes == [0]
    assert sorted(wire.next().kind for _ in range(4)) == [3, 3, 4, 13]


def test_mqtt5_3_2_0_2__there_is_one_connack(gate: Gate) -> None:
    wire = gate.connect()
    again = wire.send(b"\xc0\0", f.connect(wire.client_id, version=5)).until_closed()
    assert again == b"\xd0\0" + b"\xe0\1\x82"


def test_mqtt5_3_2_2_1__reserved_flags_of_connack_are_0(gate: Gate, unique: str) -> None:
    for present in (0, 1):
        wire = gate.lasting(unique)
        assert wire.connack.session_present == present
        wire.disconnect()


def test_mqtt5_3_2_2_2__clean_start_1_has_session_present_0(gate: Gate, unique: str) -> None:
    gate.lasting(unique).disconnect()
    wire = gate.connect(unique, clean=True)
    assert (wire.connack.session_present, wire.connack.code) == (0, 0)


def test_mqtt5_3_2_2_3__clean_start_0_says_whether_there_is_a_session(gate: Gate, unique: str) -> None:
    for present in (0, 1):
        wire = gate.lasting(unique)
        assert (wire.connack.session_present, wire.connack.code) == (present, 0)
        wire.disconnect()
    gate.lasting(unique, 0).disconnect()
    assert gate.lasting(unique).connack.session_present == 0


def test_mqtt5_3_2_2_6__a_refusal_has_session_present_0(gate: Gate, unique: str) -> None:
    gate.lasting(unique).disconnect()
    wire = gate.wire()
    answer = wire.connect(unique, clean=False, **wrong_login())
    assert (answer.session_present, answer.code) == (0, 0x86)


def test_mqtt5_3_2_2_7__a_refusal_is_followed_by_the_close(gate: Gate) -> None:
    for packet, answer in (
        (f.connect("c", version=5, **wrong_login()), b"\x20\3\0\x86\0"),
        (f.connect("a\0", version=5), b"\x20\3\0\x81\0"),
        (f.packet(1, 0, f.text("MQTT") + b"\6\2\0\0\0" + f.text("c")), b"\x20\3\0\x84\0"),
    ):
        assert gate.refused(packet) == answer


CONNACK_REASONS = {
    0,
    0x80,
    0x81,
    0x82,
    0x83,
    0x84,
    0x85,
    0x86,
    0x87,
    0x88,
    0x89,
    0x8A,
    0x8C,
    0x90,
    0x95,
    0x97,
}
CONNACK_REASONS |= {0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}


def test_mqtt5_3_2_2_8__connack_has_one_of_its_reason_codes(gate: Gate) -> None:
    will = ("$share/x", b"", 0, False)
    for connect in (
        f.connect("c", version=5),
        f.connect("\x07", version=5),
        f.connect("c", version=5, **wrong_login()),
        f.connect("c", version=5, user="nowhere:guest", password=b"guest"),
        f.connect("c", version=5, will=will),
        f.connect("c", version=5, props=props(authentication_method="none-such")),
        f.connect("c", version=5, props=props(maximum_packet_size=6)),
        f.connect("c", version=5, props=props(receive_maximum=0)),
    ):
        assert gate.wire().send(connect).answer(2).code in CONNACK_REASONS


def test_mqtt5_3_2_2_9__every_qos_is_supported_and_no_maximum_told(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    assert "maximum_qos" not in wire.connack.props
    sub = gate.subscriber(unique)
    wire.published(unique, b"1").published(unique, b"2", qos=2)
    assert [message.qos for message in sub.messages(2)] == [1, 2]


def test_mqtt5_3_2_2_10__subscribe_may_ask_for_any_qos(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    assert wire.subscribe(*[(f"{unique}/{qos}", qos) for qos in (0, 1, 2)]) == [0, 1, 2]


def test_mqtt5_3_2_2_15__a_packet_above_the_servers_maximum_ends_with_0x95(gate: Gate, unique: str) -> None:
    """On what it announces; one of exactly the maximum is taken."""
    sub = gate.subscriber(unique)
    wire = gate.connect()
    (maximum,) = wire.connack.props["maximum_packet_size"]
    payload = bytes(maximum - 4 - 2 - len(unique) - 1)
    packet = wire.frame(unique, payload)
    assert len(packet) == maximum
    wire.send(packet)
    assert sub.message().payload == payload
    head = wire.frame(unique, payload + b"x")[:8]
    assert wire.send(head).until_closed() == b"\xe0\1\x95"


def test_mqtt5_3_2_2_16__an_assigned_client_id_is_no_other_sessions(gate: Gate) -> None:
    kept = [gate.connect("", clean=False, props=props(session_expiry=300)) for _ in range(20)]
    given = [wire.connack.props["assigned_client_id"][0] for wire in kept]
    assert len(set(given)) == 20
    assert all(wire.connack.session_present == 0 for wire in kept)
    for wire in kept:
        assert wire.ping() == []  # nobody was taken over


def test_mqtt5_3_2_2_17__an_alias_above_the_servers_maximum_ends_with_0x94(gate: Gate) -> None:
    wire = gate.connect()
    (maximum,) = wire.connack.props["topic_alias_maximum"]
    wire.publish("t", block=props(topic_alias=maximum))
    assert wire.ping() == []
    wire.publish("t", block=props(topic_alias=maximum + 1))
    assert wire.until_closed() == b"\xe0\1\x94"


def test_mqtt5_3_2_2_18__without_a_maximum_no_alias_is_taken(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings={"mqtt.topic_alias_maximum": "0"}) as gateway:
        gate = Gate(gateway.mqtt_port, 5)
        wire = gate.connect()
        assert wire.connack.props.get("topic_alias_maximum", [0]) == [0]
        assert wire.publish("t", block=props(topic_alias=1)).until_closed() == b"\xe0\1\x94"
        gate.close()


def refusals(gate: Gate, size: int) -> list[bytes]:
    """CONNACKs that refuse, to clients that take packets of this size."""
    block = props(maximum_packet_size=size)
    return [
        gate.refused(f.connect("c", version=5, **wrong_login(), props=block)),
        gate.refused(f.connect("c", version=5, user="nowhere:guest", password=b"guest", props=block)),
        gate.refused(f.connect("c", version=5, will=("$share/x", b"", 0, False), props=block)),
        gate.refused(f.connect("c", version=5, props=block + props(authentication_method="none-such"))),
    ]


def test_mqtt5_3_2_2_19__a_reason_string_does_not_make_connack_too_large(gate: Gate) -> None:
    for size in (5, 20, 40):
        assert all(5 <= len(connack) <= size for connack in refusals(gate, size))


def test_mqtt5_3_2_2_20__user_properties_do_not_make_connack_too_large(gate: Gate) -> None:
    """There are none at all."""
    for block in (b"", props(maximum_packet_size=40)):
        assert "user" not in gate.connect(props=block).connack.props
    for connack in refusals(gate, 1000):
        assert "user" not in gate.wire().parse(f.split(connack)[0][0]).props


def test_mqtt5_3_2_2_21__the_servers_keep_alive_counts_where_one_is_told(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings={"mqtt.keepalive_max_s": "1"}) as gateway:
        gate = Gate(gateway.mqtt_port, 5)
        began = time.monotonic()
        wires = [gate.connect(keep_alive=asked) for asked in (60, 0)]
        for wire in wires:
            assert wire.connack.props["server_keep_alive"] == [1]
            assert wire.until_closed() == b"\xe0\1\x8d"
            assert 1.5 <= time.monotonic() - began < LIMIT_S
        gate.close()


def test_mqtt5_3_2_2_22__the_clients_keep_alive_counts_where_none_is_told(gate: Gate) -> None:
    """Every packet counts as a sign of life; 0 means no limit."""
    ever, short = gate.connect(keep_alive=0), gate.connect(keep_alive=1)
    assert "server_keep_alive" not in short.connack.props
    lively = gate.connect(keep_alive=2)
    for _ in range(14):
        lively.publish("t")
        time.sleep(0.25)  # the passing of time is what is tested
    assert lively.ping() == [] and ever.ping() == []
    assert short.until_closed() == b"\xe0\1\x8d"
