"""The packets off the hot path: read to the last byte, written as the specification says; amqtt's codec
agrees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt.connack import ConnackPacket
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload, ConnectVariableHeader
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.mqtt.suback import SubackPacket
from amqtt.mqtt.subscribe import SubscribePacket
from amqtt.mqtt.unsuback import UnsubackPacket
from amqtt.mqtt.unsubscribe import UnsubscribePacket

from penstock.protocols.mqtt.codec import packets
from penstock.protocols.mqtt.codec.properties import (
    PROPERTIES,
    decode_properties,
    decode_varint,
    encode_properties,
    encode_varint,
)
from penstock.protocols.mqtt.codec.reasons import ConnectRefused, Malformed, MqttError
from tests.reference import mqtt_frames as f


def body_of(packet: bytes) -> tuple[bytes, int]:
    ((found,), rest) = f.split(packet)
    assert not rest
    return found.body, found.flags


def by_amqtt(kind: Any, packet: bytes) -> Any:
    """The packet as amqtt reads it."""

    async def read() -> Any:
        reader = BufferReader(packet)
        header = await MQTTFixedHeader.from_stream(reader)
        return await kind.from_stream(reader, fixed_header=header)

    return asyncio.run(read())


# amqtt as the peer


@pytest.mark.parametrize("will", [None, ("w/t", b"bye", 2, True), ("w", b"", 0, False)])
@pytest.mark.parametrize("login", [(None, None), ("user", None), ("user", b"secret")])
def test_amqtt_s_connect_is_read(
    will: tuple[str, bytes, int, bool] | None, login: tuple[str | None, bytes | None]
) -> None:
    header = ConnectVariableHeader(keep_alive=77, proto_name="MQTT", proto_level=4)
    header.clean_session_flag = True
    payload = ConnectPayload(client_id="client\u00e9")
    if will is not None:
        header.will_flag = True
        header.will_qos = will[2]
        header.will_retain_flag = will[3]
        payload.will_topic, payload.will_message = will[0], will[1]
    if login[0] is not None:
        header.username_flag = True
        payload.username = login[0]
    if login[1] is not None:
        header.password_flag = True
        payload.password = login[1].decode()
    raw = ConnectPacket(variable_header=header, payload=payload).to_bytes()
    connect = packets.decode_connect(*body_of(raw))
    assert (connect.client_id, connect.clean_start, connect.keep_alive_s) == ("client\u00e9", True, 77)
    assert (connect.user_name, connect.password) == login
    found = connect.will
    assert (None if found is None else (found.topic, found.payload, found.qos, found.retain)) == will


def test_amqtt_s_subscribe_and_unsubscribe_are_read() -> None:
    raw = SubscribePacket.build([("a/b", 0), ("#", 2)], packet_id=300).to_bytes()
    packet = packets.decode_subscribe(*body_of(raw), 4)
    assert (packet.packet_id, [(line.topic, line.qos) for line in packet.filters]) == (
        300,
        [("a/b", 0), ("#", 2)],
    )
    raw = UnsubscribePacket.build(["a/b", "#"], packet_id=300).to_bytes()
    assert packets.decode_unsubscribe(*body_of(raw), 4).filters == ["a/b", "#"]


def test_amqtt_reads_what_we_send() -> None:
    connack = by_amqtt(ConnackPacket, packets.encode_connack(4, True, 0, {}))
    assert (connack.session_parent, connack.return_code) == (1, 0)
    suback = by_amqtt(SubackPacket, packets.encode_suback(4, 7, [0, 1, 2, 0x8F], {}))
    assert suback.variable_header.packet_id == 7
    assert suback.payload.return_codes == [0, 1, 2, 0x80]
    assert (
        by_amqtt(UnsubackPacket, packets.encode_unsuback(4, 9, [0, 0x11], {})).variable_header.packet_id == 9
    )


# Every prefix

USER = b"\x26" + f.text("k") + f.text("v")

CASES: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "connect": (
        lambda body: packets.decode_connect(body, 0),
        f.connect("id", user="u", password=b"p", will=("w", b"m", 1, True)),
    ),
    "connect 5.0": (
        lambda body: packets.decode_connect(body, 0),
        f.connect(
            "id",
            version=5,
            user="u",
            password=b"p",
            will=("w", b"m", 1, True),
            will_props=b"\x18\0\0\0\5" + USER,
            props=b"\x11\0\0\0\5\x21\0\7" + USER,
        ),
    ),
    "disconnect": (lambda body: packets.decode_disconnect(body, 0, 5), f.disconnect(0, USER)),
    "auth": (lambda body: packets.decode_auth(body, 0), f.packet(15, 0, b"\x18" + b"\x04\x15" + f.text("x"))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_packet_is_read_whole_or_not_at_all(name: str) -> None:
    decode, packet = CASES[name]
    body, _ = body_of(packet)
    decode(body)
    whole = {"disconnect": {0, 1}, "auth": {0, 1}}.get(name, set())
    for end in range(len(body)):
        if end in whole:
            decode(body[:end])
            continue
        with pytest.raises(MqttError):
            decode(body[:end])
    with pytest.raises(MqttError):
        decode(body + b"\0")


@pytest.mark.parametrize("version", [4, 5])
def test_subscribe_and_unsubscribe_end_where_a_filter_ends(version: int) -> None:
    for decode, packet in (
        (packets.decode_subscribe, f.subscribe(1, ("a", 1), ("bc", 2), version=version)),
        (packets.decode_unsubscribe, f.unsubscribe(1, "a", "bc", version=version)),
    ):
        body, flags = body_of(packet)
        right = []
        for end in range(len(body) + 1):
            try:
                right.append((end, len(decode(body[:end], flags, version).filters)))
            except MqttError:
                continue
        last = 5 if decode is packets.decode_subscribe else 4
        assert right == [(len(body) - last, 1), (len(body), 2)]


# Properties


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455])
def test_variable_byte_integers_come_back(value: int) -> None:
    raw = encode_varint(value)
    assert raw == f.varint(value)
    assert decode_varint(raw, 0, len(raw)) == (value, len(raw))
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            decode_varint(raw, 0, end)


def test_a_variable_byte_integer_has_bounds() -> None:
    for raw in (b"\x80\x00", b"\xff\x80\x00", b"\xff\xff\xff\xff\x01"):
        with pytest.raises(Malformed):
            decode_varint(raw, 0, len(raw))
    with pytest.raises(ValueError, match="268435456"):
        encode_varint(268435456)


@pytest.mark.parametrize("identifier", PROPERTIES)
def test_every_property_comes_back_where_it_is_allowed_and_nowhere_else(identifier: int) -> None:
    entry = PROPERTIES[identifier]
    value: Any = {"text": "text", "binary": b"\0\xff", "pair": ("k", "v"), "varint": 300}.get(entry.kind, 1)
    given = {entry.name: [value, value] if entry.repeats else value}
    raw = encode_properties(given)
    assert raw[1] == identifier
    for packet in (
        "CONNECT",
        "CONNACK",
        "PUBLISH",
        "WILL",
        "PUBACK",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "DISCONNECT",
        "AUTH",
    ):
        if packet in entry.packets:
            assert decode_properties(raw, 0, len(raw), packet) == (given, len(raw))
        else:
            with pytest.raises(MqttError) as refused:
                decode_properties(raw, 0, len(raw), packet)
            assert refused.value.reason == 0x81


def test_the_table_has_every_property_of_the_specification() -> None:
    assert set(PROPERTIES) == f.KNOWN
    assert {i for i, p in PROPERTIES.items() if "PUBLISH" in p.packets} - {0x0B} == f.IN_PUBLISH
    assert {i for i, p in PROPERTIES.items() if "PUBACK" in p.packets} == f.IN_ACK


def test_a_3_x_client_is_told_only_what_it_has_words_for() -> None:
    assert packets.encode_refusal(4, 0x86) == b"\x20\x02\x00\x04"
    assert packets.encode_refusal(4, 0x8C) == b""
    assert packets.encode_refusal(5, 0x8C) == b"\x20\x03\x00\x8c\x00"
    # 3.1 has no session present.
    assert packets.encode_connack(3, True, 0, {}) == b"\x20\x02\x00\x00"


def test_random_bytes_raise_nothing_else() -> None:
    import random

    seed = random.Random(5)
    for _ in range(20_000):
        body = seed.randbytes(seed.randrange(40))
        if seed.random() < 0.7:
            body = f.text("MQTT") + bytes((seed.choice((4, 5)), seed.randrange(256) & 0xFE, 0, 0)) + body
        for decode in (
            lambda b: packets.decode_connect(b, 0),
            lambda b: packets.decode_subscribe(b, 2, 5),
            lambda b: packets.decode_unsubscribe(b, 2, 4),
            lambda b: packets.decode_disconnect(b, 0, 5),
            lambda b: packets.decode_auth(b, 0),
        ):
            try:
                decode(body)
            except (MqttError, ConnectRefused):
                continue
