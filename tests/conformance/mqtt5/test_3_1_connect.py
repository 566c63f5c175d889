"""MQTT 5.0, section 3.1: CONNECT."""

from __future__ import annotations

import time

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import LIMIT_S, Gate, Wire, payloads, props, wrong_login

MALFORMED = b"\x20\3\0\x81\0"
PROTOCOL_ERROR = b"\x20\3\0\x82\0"
NAME = f.text("MQTT")


def raw_connect(flags: int, payload: bytes, *, block: bytes = b"\0") -> bytes:
    """A CONNECT from its flags on; keep alive 0."""
    return f.packet(1, 0, NAME + bytes((5, flags, 0, 0)) + block + payload)


def gone(wire: Wire) -> None:
    """The client vanishes."""
    wire.close()


def test_mqtt5_3_1_0_1__another_first_packet_closes_without_a_byte(gate: Gate) -> None:
    for packet in (b"\xc0\0", f.publish("t", props=b""), f.subscribe(1, ("t", 0), version=5), b"\xf0\0"):
        assert gate.refused(packet) == b""


def test_mqtt5_3_1_0_2__a_second_connect_is_a_protocol_error(gate: Gate) -> None:
    wire = gate.connect()
    assert wire.send(f.connect(wire.client_id, version=5)).until_closed() == b"\xe0\1\x82"


def test_mqtt5_3_1_2_1__another_protocol_name_closes(gate: Gate) -> None:
    for name in ("MQTTX", "mqtt", "", "HTTP"):
        assert gate.refused(f.packet(1, 0, f.text(name) + b"\5\2\0\0\0" + f.text("c"))) == b""


def test_mqtt5_3_1_2_2__an_unknown_version_is_refused_with_0x84(gate: Gate) -> None:
    for level in (6, 100, 127):
        packet = f.packet(1, 0, NAME + bytes((level, 2, 0, 0, 0)) + f.text("c"))
        assert gate.refused(packet) == b"\x20\3\0\x84\0"


def test_mqtt5_3_1_2_3__the_reserved_flag_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x03, f.text("c"))) == MALFORMED


def test_mqtt5_3_1_2_4__clean_start_discards_the_session(gate: Gate, unique: str) -> None:
    """Its subscriptions, what waited for it, and what was under way."""
    first = gate.lasting(unique)
    first.subscribe((unique, 2))
    pub = gate.connect().published(unique, b"under way")
    first.message()
    gone(first)
    pub.published(unique, b"waiting")
    again = gate.connect(unique, clean=True, props=props(session_expiry=300))
    assert again.connack.session_present == 0
    pub.published(unique, b"live")
    assert again.ping() == []
    assert again.unsubscribe(unique) == [0x11]


def test_mqtt5_3_1_2_5__clean_start_0_resumes_the_session(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, 1))
    gone(first)
    gate.connect().published(unique, b"waiting")
    again = gate.lasting(unique)
    assert again.connack.session_present == 1
    assert again.message().payload == b"waiting"


def test_mqtt5_3_1_2_6__clean_start_0_without_a_session_makes_one(gate: Gate, unique: str) -> None:
    wire = gate.lasting(unique)
    assert wire.connack.session_present == 0
    wire.disconnect()
    assert gate.lasting(unique).connack.session_present == 1


def test_mqtt5_3_1_2_7__a_will_is_kept_with_the_session(gate: Gate, unique: str) -> None:
    """The will of the connection that is lost is published, with all that it had."""
    sub = gate.subscriber(unique)
    block = props(content_type="text/plain", user=[("a", "1"), ("a", "2")])
    gone(gate.connect(will=(unique, b"gone", 2, False), will_props=block))
    got = sub.message()
    assert (got.payload, got.qos, got.retain) == (b"gone", 2, False)
    assert got.props == {"content_type": [b"text/plain"], "user": [("a", "1"), ("a", "2")]}


class TestWhenTheWillIsPublished:
    def test_mqtt5_3_1_2_8__at_once_without_a_delay(self, gate: Gate, unique: str) -> None:
        sub = gate.subscriber(unique)
        gone(gate.connect(will=(unique, b"will", 0, False)))
        assert sub.message().payload == b"will"

    def test_mqtt5_3_1_2_8__also_after_a_protocol_error(self, gate: Gate, unique: str) -> None:
        sub = gate.subscriber(unique)
        wire = gate.connect(will=(unique, b"will", 0, False))
        assert wire.send(f.publish("a/#", props=b"")).until_closed() == b"\xe0\1\x81"
        assert sub.message().payload == b"will"

    @pytest.mark.parametrize("reason", [0x04, 0x80, 0x81, 0x93])
    def test_mqtt5_3_1_2_8__also_after_a_disconnect_with_another_reason_than_0(
        self, gate: Gate, unique: str, reason: int
    ) -> None:
        sub = gate.subscriber(unique)
        gate.connect(will=(unique, b"will", 0, False)).disconnect(reason)
        assert sub.message().payload == b"will"

    def test_mqtt5_3_1_2_8__after_its_delay(self, gate: Gate, unique: str) -> None:
        sub = gate.subscriber(unique)
        client = gate.lasting(unique, will=(unique, b"will", 0, False), will_props=props(will_delay=1))
        began = time.monotonic()
        gone(client)
        assert sub.message().payload == b"will"
        assert 1 <= time.monotonic() - began < LIMIT_S

    def test_mqtt5_3_1_2_8__when_the_session_ends_before_the_delay(self, gate: Gate, unique: str) -> None:
        sub = gate.subscriber(unique)
        client = gate.lasting(unique, 1, will=(unique, b"will", 0, False), will_props=props(will_delay=60))
        began = time.monotonic()
        gone(client)
        assert sub.message().payload == b"will"
        assert 1 <= time.monotonic() - began < LIMIT_S

    def test_mqtt5_3_1_2_8__when_a_clean_start_ends_the_session_before_the_delay(
        self, gate: Gate, unique: str
    ) -> None:
        sub = gate.subscriber(unique)
        gone(gate.lasting(unique, will=(unique, b"will", 0, False), will_props=props(will_delay=60)))
        gate.connect(unique, clean=True)
        assert sub.message().payload == b"will"


@pytest.mark.parametrize(
    "payload",
    [
        f.text("c"),
        f.text("c") + b"\0",
        f.text("c") + b"\0" + f.text("topic"),
        f.text("c") + f.text("topic") + f.text("message"),
    ],
    ids=["nothing", "properties", "topic", "no-properties"],
)
def test_mqtt5_3_1_2_9__a_will_flag_without_a_will_is_malformed(gate: Gate, payload: bytes) -> None:
    assert gate.refused(raw_connect(0x06, payload)) == MALFORMED


def test_mqtt5_3_1_2_10__a_will_is_forgotten_once_published_or_disconnected(gate: Gate, unique: str) -> None:
    """It is not published again when the session, which is still there, has another connection that ends."""
    sub = gate.subscriber(unique)
    gone(gate.lasting(unique, will=(unique, b"once", 0, False)))
    assert sub.message().payload == b"once"
    gate.lasting(unique, will=(unique, b"never", 0, False)).disconnect()
    gone(gate.lasting(unique))
    gate.connect(unique, clean=True).publish(unique, b"end")
    assert sub.message().payload == b"end"


def test_mqtt5_3_1_2_11__will_qos_without_a_will_is_malformed(gate: Gate) -> None:
    for qos in (1, 2, 3):
        assert gate.refused(raw_connect(0x02 | qos << 3, f.text("c"))) == MALFORMED


def test_mqtt5_3_1_2_12__will_qos_3_is_malformed(gate: Gate, unique: str) -> None:
    will = b"\0" + f.text("t") + f.text("m")
    assert gate.refused(raw_connect(0x1E, f.text("c") + will)) == MALFORMED
    sub = gate.subscriber(unique)
    for qos in (0, 1, 2):
        gone(gate.connect(will=(unique, b"will", qos, False)))
        assert sub.message().qos == qos


def test_mqtt5_3_1_2_13__will_retain_without_a_will_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x22, f.text("c"))) == MALFORMED


def test_mqtt5_3_1_2_14__a_will_without_retain_is_not_retained(gate: Gate, unique: str) -> None:
    sub = gate.connect()
    sub.subscribe((unique, 8))
    gone(gate.connect(will=(unique, b"will", 1, False)))
    assert not sub.message().retain
    assert gate.retained(unique) == []


def test_mqtt5_3_1_2_15__a_will_with_retain_is_retained(gate: Gate, unique: str) -> None:
    sub = gate.connect()
    sub.subscribe((unique, 8))
    gone(gate.connect(will=(unique, b"will", 1, True)))
    assert sub.message().retain
    (kept,) = gate.retained(unique)
    assert (kept.payload, kept.qos, kept.retain) == (b"will", 1, True)


def test_mqtt5_3_1_2_16__a_user_name_without_its_flag_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x02, f.text("c") + f.text("guest"))) == MALFORMED


def test_mqtt5_3_1_2_17__a_user_name_flag_without_a_user_name_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x82, f.text("c"))) == MALFORMED


def test_mqtt5_3_1_2_18__a_password_without_its_flag_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x82, f.text("c") + f.text("guest") + f.text("guest"))) == MALFORMED


def test_mqtt5_3_1_2_19__a_password_flag_without_a_password_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0xC2, f.text("c") + f.text("guest"))) == MALFORMED


def test_mqtt5_3_1_2_22__silence_of_one_and_a_half_keep_alives_ends_the_connection(
    gate: Gate, unique: str
) -> None:
    """As if the network had failed: the will is published."""
    sub = gate.subscriber(unique)
    began = time.monotonic()
    wire = gate.connect(keep_alive=1, will=(unique, b"will", 0, False))
    assert wire.until_closed() == b"\xe0\1\x8d"
    assert 1.5 <= time.monotonic() - began < LIMIT_S
    assert sub.message().payload == b"will"


def test_mqtt5_3_1_2_23__a_session_with_an_expiry_outlives_its_connection(gate: Gate, unique: str) -> None:
    for expiry_s in (300, 0xFFFFFFFF):
        gone(gate.lasting(unique, expiry_s))
        assert gate.lasting(unique, expiry_s).connack.session_present == 1
    gate.lasting(unique, 0).disconnect()
    assert gate.lasting(unique, 300).connack.session_present == 0


def test_mqtt5_3_1_2_24__no_packet_is_above_the_clients_maximum(gate: Gate, unique: str) -> None:
    """One byte more is not sent, at every QoS and from what is retained; answers are no exception."""
    size = 100
    sub = gate.connect(props=props(maximum_packet_size=size))
    room = size - 2 - 2 - len(unique) - 1
    pub = gate.connect()
    for qos in (0, 1, 2):
        payload_size = room - (2 if qos else 0)
        sub.subscribe((unique, qos))
        pub.publish(unique, bytes(payload_size + 1), qos=qos, packet_id=qos)
        pub.publish(unique, bytes(payload_size), qos=qos, packet_id=qos + 3)
        packet = sub.next()
        assert 2 + len(packet.body) == size
        if qos:
            sub.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, sub.parse_publish(packet).packet_id))
        if qos == 2:
            sub.answer(6)
    pub.publish(unique, bytes(room + 1), retain=True)
    sub.subscribe((unique, 0))
    assert sub.ping() == []
    many = [(f"{unique}/{i}", 0) for i in range(size)]
    assert sub.send(f.subscribe(2, *many, version=5)).until_closed() == b"\xe0\1\x95"
    for size, answer in ((5, b"\x20\3\0\x95\0"), (4, b"")):
        assert gate.refused(f.connect("c", version=5, props=props(maximum_packet_size=size))) == answer


def test_mqtt5_3_1_2_25__a_message_that_is_too_large_counts_as_sent(gate: Gate, unique: str) -> None:
    """It takes no place in the client's window and does not come again on the next connection."""
    limits = props(maximum_packet_size=100, receive_maximum=1)
    sub = gate.lasting(unique, props=limits)
    sub.subscribe((unique, 1))
    pub = gate.connect()
    for payload in (bytes(200), b"small", bytes(300), b"next"):
        pub.published(unique, payload)
    message = sub.message()
    assert message.payload == b"small"
    sub.puback(message.packet_id)
    message = sub.message()
    assert message.payload == b"next"
    sub.puback(message.packet_id)
    sub.disconnect()
    assert gate.lasting(unique).ping() == []


def aliases_to(gate: Gate, unique: str, **limits: int) -> list[int]:
    """The aliases in what a client gets that takes this."""
    sub = gate.connect(props=props(**limits))
    sub.subscribe((f"{unique}/#", 0))
    pub = gate.connect()
    for i in range(5):
        pub.publish(f"{unique}/{i}", b"x").publish(f"{unique}/{i}", b"x")
    return [message.props.get("topic_alias", [0])[0] for message in sub.messages(10)]


def test_mqtt5_3_1_2_26__aliases_stay_within_the_clients_maximum(gate: Gate, unique: str) -> None:
    assert max(aliases_to(gate, unique, topic_alias_maximum=2)) <= 2
    assert min(aliases_to(gate, unique + "x", topic_alias_maximum=5)) >= 1


def test_mqtt5_3_1_2_27__no_alias_for_a_client_that_takes_none(gate: Gate, unique: str) -> None:
    assert set(aliases_to(gate, unique)) == {0}
    assert set(aliases_to(gate, unique + "x", topic_alias_maximum=0)) == {0}


def test_mqtt5_3_1_2_28__no_response_information_unless_asked_for(gate: Gate) -> None:
    for block in (b"", props(request_response_information=0)):
        assert "response_information" not in gate.connect(props=block).connack.props


def test_mqtt5_3_1_2_29__no_reason_strings_on_acknowledgements_for_a_client_that_wants_none(
    gate: Gate, unique: str
) -> None:
    wire = gate.connect(problems=True, props=props(request_problem_information=0))
    wire.publish("$SYS/x", qos=1, packet_id=1)
    refused = wire.answer(4)
    assert (refused.code, refused.props) == (0x87, {})
    wire.publish("$SYS/x", qos=2, packet_id=2)
    refused = wire.answer(5)
    assert (refused.code, refused.props) == (0x87, {})
    wire.pubrel(9)
    unknown = wire.answer(7)
    assert (unknown.code, unknown.props) == (0x92, {})
    wire.pubrec(9)
    unknown = wire.answer(6)
    assert (unknown.code, unknown.props) == (0x92, {})
    wire.send(f.subscribe(3, ("/".join("a" * 200), 0), version=5))
    suback = wire.answer(9)
    assert (suback.code, suback.props) == (0x8F, {})
    wire.send(f.unsubscribe(4, unique, version=5))
    unsuback = wire.answer(11)
    assert (unsuback.code, unsuback.props) == (0x11, {})


def test_mqtt5_3_1_3_1__the_payload_is_in_its_order(gate: Gate, unique: str) -> None:
    """Everything that CONNECT can hold, each with a value that would not pass in another's place."""
    sub = gate.subscriber(unique)
    wire = gate.wire()
    will = props(will_delay=0) + props(content_type="w")
    payload = f.text(unique) + f.varint(len(will)) + will + f.text(unique) + f.text(b"\xff\xfe")
    payload += f.text("guest") + f.text("guest")
    wire.send(raw_connect(0xC6, payload))
    assert wire.answer(2).codes == [0]
    gone(wire)
    got = sub.message()
    assert (got.payload, got.props) == (b"\xff\xfe", {"content_type": [b"w"]})


def test_mqtt5_3_1_3_2__the_client_id_names_the_session(gate: Gate, unique: str) -> None:
    gate.lasting(unique).disconnect()
    assert gate.lasting(unique.upper()).connack.session_present == 0
    assert gate.lasting(unique + "x").connack.session_present == 0
    assert gate.lasting(unique).connack.session_present == 1


def test_mqtt5_3_1_3_3__a_connect_without_a_client_id_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x02, b"")) == MALFORMED


def test_mqtt5_3_1_3_4__a_client_id_that_is_no_text_is_malformed(gate: Gate) -> None:
    assert gate.refused(raw_connect(0x02, f.text(b"\xff"))) == MALFORMED
    assert gate.connect("ключ-\U0001f511-" + "x" * 1000).connack.codes == [0]


def test_mqtt5_3_1_3_5__letters_and_digits_up_to_23_make_a_client_id(gate: Gate) -> None:
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for client_id in ("0", letters[:23], letters[23:46], letters[39:]):
        assert gate.connect(client_id).connack.codes == [0]


def test_mqtt5_3_1_3_6__an_empty_client_id_is_replaced_by_a_unique_one(gate: Gate) -> None:
    given = {gate.connect("", clean=clean).connack.props["assigned_client_id"][0] for clean in (1, 1, 0, 0)}
    assert len(given) == 4 and b"" not in given


def test_mqtt5_3_1_3_7__the_assigned_client_id_is_told_and_is_the_sessions(gate: Gate) -> None:
    wire = gate.connect("", clean=False, props=props(session_expiry=300))
    (given,) = wire.connack.props["assigned_client_id"]
    wire.disconnect()
    again = gate.lasting(given.decode())
    assert again.connack.session_present == 1
    assert "assigned_client_id" not in again.connack.props


def test_mqtt5_3_1_3_8__a_client_id_with_control_characters_is_refused_with_0x85(gate: Gate) -> None:
    for client_id in ("a\nb", "\x7f", "\x85"):
        assert gate.refused(f.connect(client_id, version=5)) == b"\x20\3\0\x85\0"


def test_mqtt5_3_1_3_9__a_client_that_is_back_within_the_delay_leaves_no_will(
    gate: Gate, unique: str
) -> None:
    sub = gate.subscriber(unique)
    gone(gate.lasting(unique, will=(unique, b"will", 0, False), will_props=props(will_delay=3)))
    back = gate.lasting(unique)
    time.sleep(3.3)  # the passing of time is what is tested
    back.publish(unique, b"end")
    assert sub.message().payload == b"end"


def test_mqtt5_3_1_3_10__the_user_properties_of_a_will_keep_their_order(gate: Gate, unique: str) -> None:
    users = [("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("a", "0")]
    sub = gate.subscriber(unique)
    gone(gate.connect(will=(unique, b"", 0, False), will_props=props(user=users)))
    assert sub.message().props == {"user": users}


def test_mqtt5_3_1_3_11__a_will_topic_that_is_no_text_is_malformed(gate: Gate) -> None:
    for topic in (b"\xff", b"a\0b", b"\xed\xa0\x80"):
        will = b"\0" + f.text(topic) + f.text("m")
        assert gate.refused(raw_connect(0x06, f.text("c") + will)) == MALFORMED


def test_mqtt5_3_1_3_12__a_user_name_that_is_no_text_is_malformed(gate: Gate) -> None:
    for name in (b"\xff", b"a\0b"):
        assert gate.refused(raw_connect(0xC2, f.text("c") + f.text(name) + f.text("p"))) == MALFORMED


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (raw_connect(0x02, f.text("c"))[:-1], None),
        (f.packet(1, 0, NAME + b"\5"), MALFORMED),
        (f.packet(1, 0, NAME + b"\5\2\0"), MALFORMED),
        (raw_connect(0x02, b"\0\5abc"), MALFORMED),
        (raw_connect(0x02, f.text("c") + b"x"), MALFORMED),
        (raw_connect(0x02, f.text("c"), block=b"\x02\x7e\0"), MALFORMED),
        (raw_connect(0x02, f.text("c"), block=b"\x05\x11\0\0"), MALFORMED),
        (raw_connect(0x02, f.text("c"), block=b"\x02\x01\0"), MALFORMED),
        (raw_connect(0x02, f.text("c"), block=b"\x0a" + props(session_expiry=[1, 1])), PROTOCOL_ERROR),
        (raw_connect(0x02, f.text("c"), block=b"\x03" + props(receive_maximum=0)), PROTOCOL_ERROR),
        (raw_connect(0x02, f.text("c"), block=b"\x05" + props(maximum_packet_size=0)), PROTOCOL_ERROR),
        (
            raw_connect(0x02, f.text("c"), block=b"\x02" + props(request_problem_information=2)),
            PROTOCOL_ERROR,
        ),
        (
            raw_connect(0x02, f.text("c"), block=b"\x02" + props(request_response_information=2)),
            PROTOCOL_ERROR,
        ),
        (raw_connect(0x02, f.text("c"), block=b"\x04" + props(authentication_data=b"x")), PROTOCOL_ERROR),
        (
            raw_connect(0x06, f.text("c") + b"\x05" + props(session_expiry=1) + f.text("t") * 2),
            MALFORMED,
        ),
        (
            raw_connect(0x06, f.text("c") + b"\x02" + props(payload_format=2) + f.text("t") * 2),
            PROTOCOL_ERROR,
        ),
        (raw_connect(0x06, f.text("c") + b"\0" + f.text("a/#") + f.text("m")), MALFORMED),
        (raw_connect(0x06, f.text("c") + b"\0" + f.text("") + f.text("m")), MALFORMED),
        (b"\x11" + f.connect("c", version=5)[1:], MALFORMED),
    ],
    ids=["incomplete", "no-flags", "no-keep-alive", "long-id", "surplus", "unknown-property"]
    + ["cut-property", "foreign-property", "twice", "receive-maximum-0", "packet-size-0", "problem-2"]
    + ["response-2", "data-without-method", "foreign-in-will", "format-2", "will-wildcard", "will-empty"]
    + ["flags"],
)
def test_mqtt5_3_1_4_1__a_connect_of_another_form_closes(
    gate: Gate, packet: bytes, answer: bytes | None
) -> None:
    if answer is None:  # cut off by the client's own close: nothing is answered
        wire = gate.wire().send(packet)
        wire.socket.shutdown(1)
        assert wire.until_closed() == b""
        return
    assert gate.refused(packet) == answer


def test_mqtt5_3_1_4_2__a_wrong_login_is_refused(gate: Gate) -> None:
    for login in (wrong_login(), {"user": "guest", "password": b"wrong"}, {"user": "guest"}):
        assert gate.refused(f.connect("c", version=5, **login)) == b"\x20\3\0\x86\0"
    nowhere = f.connect("c", version=5, user="no-such-vhost:guest", password=b"guest")
    assert gate.refused(nowhere) == b"\x20\3\0\x87\0"


def test_mqtt5_3_1_4_3__the_older_connection_is_told_0x8e_and_closed(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    second = gate.lasting(unique)
    assert first.until_closed() == b"\xe0\1\x8e"
    assert second.connack.session_present == 1
    assert second.ping() == []


def test_mqtt5_3_1_4_4__clean_start_is_processed_at_a_take_over(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    first.subscribe((unique, 1))
    second = gate.connect(unique, clean=True)
    assert second.connack.session_present == 0
    assert first.until_closed() == b"\xe0\1\x8e"
    assert second.unsubscribe(unique) == [0x11]


def test_mqtt5_3_1_4_5__connack_0_answers_an_accepted_connect(gate: Gate) -> None:
    wire = gate.wire().send(f.connect("", version=5))
    assert wire.answer(2).codes == [0]
    # The gateway processes packets that were sent after CONNECT without waiting.
    wire = gate.wire().send(f.connect("", version=5) + b"\xc0\0")
    assert [wire.next().kind, wire.next().kind] == [2, 13]


def test_mqtt5_3_1_4_6__nothing_behind_a_refused_connect_is_processed(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    refused = f.connect("c", version=5, **wrong_login())
    wire = gate.wire().send(refused + f.publish(unique, b"unheard", props=b"") + b"\xc0\0")
    assert wire.until_closed() == b"\x20\3\0\x86\0"
    gate.connect().publish(unique, b"end")
    assert payloads([sub.message()]) == [b"end"]
