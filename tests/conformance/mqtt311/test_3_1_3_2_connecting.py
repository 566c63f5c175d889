"""MQTT 3.1.1, sections 3.1 and 3.2: CONNECT and CONNACK."""

from __future__ import annotations

import time

import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker
from tests.support.mqtt_wire import Gate, wrong_login

NAME = f.text("MQTT")
NOT_AUTHORIZED, BAD_LOGIN, REJECTED, BAD_LEVEL = b"\x20\2\0\5", b"\x20\2\0\4", b"\x20\2\0\2", b"\x20\2\0\1"


def raw_connect(flags: int, payload: bytes) -> bytes:
    """A CONNECT from its flags on; keep alive 0."""
    return f.packet(1, 0, NAME + bytes((4, flags, 0, 0)) + payload)


def test_mqtt311_3_1_0_1__another_first_packet_closes(gate: Gate) -> None:
    for packet in (b"\xc0\0", f.publish("t"), f.subscribe(1, ("t", 0)), b"\xe0\0"):
        assert gate.refused(packet) == b""


def test_mqtt311_3_1_0_2__a_second_connect_closes(gate: Gate) -> None:
    assert gate.fails(f.connect("c")) == b""


def test_mqtt311_3_1_2_1__another_protocol_name_is_not_processed(gate: Gate, unique: str) -> None:
    for name in ("MQTX", "mqtt", "", "MQTTT"):
        connect = f.packet(1, 0, f.text(name) + b"\4\2\0\0" + f.text(unique))
        assert gate.refused(connect) == b""


def test_mqtt311_3_1_2_2__an_unknown_level_is_refused_with_1(gate: Gate) -> None:
    # 0x84 is a bridge of Mosquitto, by 3.1.1.
    for level in (0, 1, 2, 3, 0x83, 0x85):
        assert gate.refused(f.packet(1, 0, NAME + bytes((level, 2, 0, 0)) + f.text("c"))) == BAD_LEVEL


def test_mqtt311_3_1_2_3__the_reserved_flag_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x03, f.text("c"))) == b""


def test_mqtt311_3_1_2_4__clean_session_0_is_resumed_or_made_and_kept(
    own_broker: Broker, unique: str
) -> None:
    """Over a restart of the gateway too."""
    gate = Gate(own_broker.mqtt_port, 4)
    first = gate.lasting(unique)
    assert first.connack.session_present == 0
    first.subscribe((unique, 1))
    first.close()
    own_broker.restart()
    gate.connect().published(unique, b"x")
    again = gate.lasting(unique)
    assert again.connack.session_present == 1
    assert again.message().payload == b"x"
    gate.close()


def test_mqtt311_3_1_2_5__qos_1_and_2_messages_are_kept_while_it_is_away(gate: Gate, unique: str) -> None:
    wire = gate.lasting(unique)
    wire.subscribe((unique, 2))
    wire.disconnect()
    gate.connect().published(unique, b"1").published(unique, b"2", qos=2)
    assert [(m.payload, m.qos) for m in gate.lasting(unique).messages(2)] == [(b"1", 1), (b"2", 2)]


def test_mqtt311_3_1_2_6__clean_session_1_discards_and_is_not_used_again(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, 2))
    gate.connect().published(unique, b"under way", qos=2)
    first.message()
    first.close()
    clean = gate.connect(unique)
    assert clean.connack.session_present == 0
    gate.connect().published(unique, b"unheard", qos=2)
    assert clean.ping() == []
    clean.subscribe((unique, 2))
    clean.close()
    last = gate.lasting(unique)
    assert last.connack.session_present == 0
    gate.connect().published(unique, b"unheard", qos=2)
    assert last.ping() == []


def test_mqtt311_3_1_2_7__retained_messages_stay_when_a_session_ends(gate: Gate, unique: str) -> None:
    pub = gate.connect(unique)
    pub.published(unique, b"kept", retain=True)
    pub.close()
    gate.connect(unique).disconnect()
    assert [message.payload for message in gate.retained(unique)] == [b"kept"]


def test_mqtt311_3_1_2_8__a_will_is_published_when_the_connection_ends_without_disconnect(
    gate: Gate, unique: str
) -> None:
    """The network is gone, a protocol error, a take-over, and of a session that stays too."""
    sub = gate.subscriber(unique)
    gate.connect(will=(unique, b"lost", 1, False)).close()
    assert sub.message().payload == b"lost"
    assert gate.fails(f.publish("#"), will=(unique, b"fault", 1, False)) == b""
    assert sub.message().payload == b"fault"
    gate.lasting(unique, will=(unique, b"taken", 1, False))
    gate.lasting(unique)
    assert sub.message().payload == b"taken"


@pytest.mark.parametrize("fields", [b"", f.text("topic")], ids=["neither", "no-message"])
def test_mqtt311_3_1_2_9__a_will_flag_without_a_will_closes(gate: Gate, fields: bytes) -> None:
    assert gate.refused(raw_connect(0x06, f.text("c") + fields)) == b""


def test_mqtt311_3_1_2_10__a_will_is_forgotten_once_published_or_disconnected(
    gate: Gate, unique: str
) -> None:
    sub = gate.subscriber(unique)
    gate.lasting(unique, will=(unique, b"once", 1, False)).close()
    assert sub.message().payload == b"once"
    gate.lasting(unique, will=(unique, b"never", 1, False)).disconnect()
    gate.lasting(unique).close()
    gate.connect(unique).publish(unique, b"end")
    assert sub.message().payload == b"end"


def test_mqtt311_3_1_2_11__will_fields_without_the_flag_close(gate: Gate) -> None:
    for flags, fields in ((0x0A, b""), (0x22, b""), (0x02, f.text("topic") + f.text("message"))):
        assert gate.refused(raw_connect(flags, f.text("c") + fields)) == b""


def test_mqtt311_3_1_2_12__without_a_will_none_is_published(gate: Gate, unique: str) -> None:
    """Nor the one of an earlier connection."""
    sub = gate.subscriber("#")
    gate.lasting(unique, will=(unique, b"will", 0, False)).disconnect()
    gate.lasting(unique).close()
    gate.connect().publish(unique, b"end")
    while (message := sub.message()).topic != unique:
        pass
    assert message.payload == b"end"


def test_mqtt311_3_1_2_13__will_qos_without_a_will_closes(gate: Gate) -> None:
    for qos in (1, 2, 3):
        assert gate.refused(raw_connect(0x02 | qos << 3, f.text("c"))) == b""


def test_mqtt311_3_1_2_14__will_qos_3_closes(gate: Gate, unique: str) -> None:
    assert gate.refused(raw_connect(0x1E, f.text("c") + f.text("t") + f.text("m"))) == b""
    sub = gate.subscriber(unique)
    for qos in (0, 1, 2):
        gate.connect(will=(unique, b"will", qos, False)).close()
        assert sub.message().qos == qos


def test_mqtt311_3_1_2_15__will_retain_without_a_will_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x22, f.text("c"))) == b""


def will_retain(gate: Gate, unique: str, retain: bool) -> list[bytes]:
    sub = gate.subscriber(unique)
    gate.connect(will=(unique, b"will", 1, retain)).close()
    assert not sub.message().retain
    return [message.payload for message in gate.retained(unique)]


def test_mqtt311_3_1_2_16__a_will_without_retain_is_not_retained(gate: Gate, unique: str) -> None:
    assert will_retain(gate, unique, False) == []


def test_mqtt311_3_1_2_17__a_will_with_retain_is_retained(gate: Gate, unique: str) -> None:
    assert will_retain(gate, unique, True) == [b"will"]


def test_mqtt311_3_1_2_18__a_user_name_without_its_flag_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x02, f.text("c") + f.text("guest"))) == b""


def test_mqtt311_3_1_2_19__a_user_name_flag_without_a_user_name_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x82, f.text("c"))) == b""


def test_mqtt311_3_1_2_20__a_password_without_its_flag_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x82, f.text("c") + f.text("guest") * 2)) == b""


def test_mqtt311_3_1_2_21__a_password_flag_without_a_password_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0xC2, f.text("c") + f.text("guest"))) == b""


def test_mqtt311_3_1_2_22__a_password_without_a_user_name_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x42, f.text("c") + f.text("guest"))) == b""


def test_mqtt311_3_1_2_24__silence_of_one_and_a_half_keep_alives_closes(gate: Gate, unique: str) -> None:
    """With a will; whatever is sent counts as a sign of life, and 0 is for ever."""
    sub = gate.subscriber(unique)
    began = time.monotonic()
    wire, ever = gate.connect(keep_alive=1, will=(unique, b"will", 0, False)), gate.connect(keep_alive=0)
    assert wire.until_closed() == b""
    assert time.monotonic() - began >= 1.5
    assert sub.message().payload == b"will"
    lively = gate.connect(keep_alive=2)
    for _ in range(14):
        time.sleep(0.25)  # the passing of time is what is tested
        lively.publish("t")
    assert lively.ping() == [] and ever.ping() == []


def test_mqtt311_3_1_3_1__the_payload_is_in_its_order(gate: Gate, unique: str) -> None:
    """Everything that CONNECT can hold, each with a value that would not pass in another's place."""
    sub = gate.subscriber(unique)
    payload = f.text(unique + "id") + f.text(unique) + f.text(b"\xff\xfe") + f.text("guest") * 2
    wire = gate.wire().send(raw_connect(0xC4, payload))
    assert wire.answer(2).codes == [0]
    wire.close()
    assert sub.message().payload == b"\xff\xfe"
    assert gate.lasting(unique + "id").connack.session_present == 1


def test_mqtt311_3_1_3_2__the_client_id_names_the_session(gate: Gate, unique: str) -> None:
    gate.lasting(unique).disconnect()
    assert gate.lasting(unique.upper()).connack.session_present == 0
    assert gate.lasting(unique).connack.session_present == 1


def test_mqtt311_3_1_3_3__a_connect_without_a_client_id_closes(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x02, b"")) == b""


def test_mqtt311_3_1_3_4__a_client_id_that_is_no_text_closes(gate: Gate) -> None:
    for client_id in (b"\xff", b"\xed\xa0\x80"):
        assert gate.refused(raw_connect(0x02, f.text(client_id))) == b""


def test_mqtt311_3_1_3_5__letters_and_digits_up_to_23_make_a_client_id(gate: Gate) -> None:
    """And much longer ones with other letters, as every server of today takes them."""
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for client_id in ("1", letters[1:24], letters[24:47], letters[40:], "-/ключ \U0001f511" * 100):
        assert gate.connect(client_id).connack.codes == [0]


def test_mqtt311_3_1_3_6__an_empty_client_id_is_replaced_by_a_unique_one(gate: Gate, unique: str) -> None:
    """Several clients without one do not take each other's session."""
    wires = [gate.connect("") for _ in range(5)]
    for wire in wires:
        wire.subscribe((unique, 0))
    gate.connect("").publish(unique, b"all")
    assert [wire.message().payload for wire in wires] == [b"all"] * 5


def test_mqtt311_3_1_3_8__an_empty_client_id_without_clean_session_is_refused_with_2(gate: Gate) -> None:
    assert gate.refused(f.connect("", clean=False)) == REJECTED


def test_mqtt311_3_1_3_9__a_client_id_that_is_refused_gets_2(gate: Gate) -> None:
    for client_id in ("a\nb", "\x7f", "\x85"):
        assert gate.refused(f.connect(client_id)) == REJECTED


def test_mqtt311_3_1_3_10__a_will_topic_that_is_no_text_closes(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0b"):
        assert gate.refused(raw_connect(0x06, f.text("c") + f.text(topic) + f.text("m"))) == b""


def test_mqtt311_3_1_3_11__a_user_name_that_is_no_text_closes(gate: Gate) -> None:
    for name in (b"\xff", b"a\0b"):
        assert gate.refused(raw_connect(0xC2, f.text("c") + f.text(name) + f.text("p"))) == b""


@pytest.mark.parametrize(
    "packet",
    [
        f.packet(1, 0, NAME + b"\4"),
        f.packet(1, 0, NAME + b"\4\2\0"),
        raw_connect(0x02, b"\0\5abc"),
        raw_connect(0x02, f.text("c") + b"x"),
        raw_connect(0x06, f.text("c") + f.text("a/#") + f.text("m")),
        raw_connect(0x06, f.text("c") + f.text("") + f.text("m")),
        b"\x11" + f.connect("c")[1:],
    ],
    ids=["no-flags", "no-keep-alive", "long-id", "surplus", "will-wildcard", "will-empty", "flags"],
)
def test_mqtt311_3_1_4_1__a_connect_of_another_form_closes_without_connack(gate: Gate, packet: bytes) -> None:
    assert gate.refused(packet) == b""


def test_mqtt311_3_1_4_2__the_older_connection_is_closed(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    second = gate.lasting(unique)
    assert first.until_closed() == b""
    assert second.connack.session_present == 1
    assert second.ping() == []


def test_mqtt311_3_1_4_3__clean_session_is_processed_at_a_take_over(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, 1))
    second = gate.connect(unique)
    assert second.connack.session_present == 0
    gate.connect().published(unique)
    assert second.ping() == []


def test_mqtt311_3_1_4_4__connack_0_answers_an_accepted_connect(gate: Gate) -> None:
    assert gate.wire().send(f.connect("")).bytes() == b"\x20\2\0\0"
    assert gate.wire().send(f.connect("", user="guest", password=b"guest")).bytes() == b"\x20\2\0\0"


def test_mqtt311_3_1_4_5__nothing_behind_a_refused_connect_is_processed(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    refused = f.connect("c", **wrong_login())
    assert gate.refused(refused + f.publish(unique, b"unheard") + b"\xc0\0") == BAD_LOGIN
    gate.connect().publish(unique, b"end")
    assert sub.message().payload == b"end"


def test_mqtt311_3_2_0_1__connack_is_the_first_packet(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, 1))
    first.disconnect()
    gate.connect().published(unique, b"waiting")
    wire = gate.wire().send(f.connect(unique, clean=False), b"\xc0\0", f.publish("t", qos=1, packet_id=5))
    assert wire.bytes() == b"\x20\2\1\0"
    assert sorted(wire.next().kind for _ in range(3)) == [3, 4, 13]


def test_mqtt311_3_2_2_1__clean_session_1_has_session_present_0(gate: Gate, unique: str) -> None:
    gate.lasting(unique).disconnect()
    assert gate.wire().send(f.connect(unique)).bytes() == b"\x20\2\0\0"


def test_mqtt311_3_2_2_2__clean_session_0_with_a_session_has_session_present_1(
    gate: Gate, unique: str
) -> None:
    gate.lasting(unique).disconnect()
    assert gate.wire().send(f.connect(unique, clean=False)).bytes() == b"\x20\2\1\0"


def test_mqtt311_3_2_2_3__clean_session_0_without_one_has_session_present_0(gate: Gate, unique: str) -> None:
    assert gate.wire().send(f.connect(unique, clean=False)).bytes() == b"\x20\2\0\0"


REFUSALS = {
    "level": (f.packet(1, 0, NAME + b"\3\2\0\0" + f.text("c")), BAD_LEVEL),
    "client id": (f.connect("", clean=False), REJECTED),
    "password": (f.connect("c", **wrong_login()), BAD_LOGIN),
    "vhost": (f.connect("c", user="nowhere:guest", password=b"guest"), NOT_AUTHORIZED),
    "will": (f.connect("c", will=("$share/x", b"", 0, False)), NOT_AUTHORIZED),
}


def test_mqtt311_3_2_2_4__a_refusal_has_session_present_0(gate: Gate, unique: str) -> None:
    """Though there is a session."""
    gate.lasting(unique).disconnect()
    wrong = f.connect(unique, clean=False, **wrong_login())
    assert gate.refused(wrong) == BAD_LOGIN


@pytest.mark.parametrize("name", REFUSALS)
def test_mqtt311_3_2_2_5__a_refusal_is_followed_by_the_close(gate: Gate, name: str) -> None:
    packet, answer = REFUSALS[name]
    assert gate.refused(packet) == answer


def test_mqtt311_3_2_2_6__where_no_return_code_fits_there_is_no_connack(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x02, f.text("c") + b"surplus")) == b""
    assert gate.refused(b"\x10\xff\xff\xff\x7f") == b""
