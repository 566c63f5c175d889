"""Packets of a bridge: made as paho and the gateway's own codec read them, cut out of any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.mqtt.packets import (
    Publish,
    VersionRefused,
    acknowledged,
    connect,
    decode_connack,
    decode_publish,
    encode_publish,
    packet,
    reason_of,
    split,
    translated,
)
from penstock.protocols.mqtt.codec import packets
from penstock.protocols.mqtt.codec.packets import PUBREC

_PUBLISHES = st.builds(
    Publish,
    flags=st.sampled_from([0, 1]),
    topic=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    packet_id=st.just(b""),
    properties=st.sampled_from([b"\x00", b"\x05\x02\x00\x00\x00\x09"]),
    payload=st.binary(max_size=300),
) | st.builds(
    Publish,
    flags=st.sampled_from([2, 3, 4, 12]),
    topic=st.just("a/b"),
    packet_id=st.binary(min_size=2, max_size=2),
    properties=st.just(b"\x00"),
    payload=st.binary(max_size=300),
)


@given(_PUBLISHES)
def test_a_publish_comes_back(publish: Publish) -> None:
    assert decode_publish(encode_publish(publish, is_5=True), is_5=True) == publish
    in_3 = decode_publish(encode_publish(publish, is_5=False), is_5=False)
    assert in_3 == Publish(publish.flags, publish.topic, publish.packet_id, b"\x00", publish.payload)


@given(st.lists(_PUBLISHES, max_size=5), st.integers(1, 40))
def test_packets_are_cut_out_of_any_pieces(publishes: list[Publish], size: int) -> None:
    whole = [encode_publish(one, is_5=True) for one in publishes]
    stream, found, rest = b"".join(whole), [], b""
    for at in range(0, len(stream), size):
        rest += stream[at : at + size]
        more, used = split(rest)
        found += more
        rest = rest[used:]
    assert found == whole and rest == b""


def test_bytes_that_are_no_packet_are_refused() -> None:
    with pytest.raises(LinkError):
        split(b"\x30\xff\xff\xff\xff\xff")
    with pytest.raises(LinkError):
        decode_publish(packet(0x30, b"\x00\x02\xff\xfe"), is_5=False)


@pytest.mark.parametrize("level", [3, 4, 5, 0x83, 0x84])
def test_the_gateway_reads_a_connect(level: int) -> None:
    made = connect(
        level,
        "me",
        user="u",
        password="p",
        clean=False,
        keepalive_s=9,
        receive_maximum=7,
        will=("state", b"0"),
    )
    (found,), _ = split(made)
    read = packets.decode_connect(found[2:], found[0] & 0x0F)
    assert (read.client_id, read.user_name, read.password, read.clean_start) == ("me", "u", b"p", False)
    assert read.bridge is (level > 0x7F) and read.keep_alive_s == 9
    assert read.will is not None and (read.will.topic, read.will.retain) == ("state", True)
    if level == 5:
        assert read.properties == {"session_expiry_s": 0xFFFFFFFF, "receive_maximum": 7}


@pytest.mark.parametrize("is_5", [False, True])
def test_a_connack_is_read(is_5: bool) -> None:
    version = packets.MQTT_5 if is_5 else packets.MQTT_3_1_1
    properties = {"receive_maximum": 9, "maximum_packet_size": 99, "assigned_client_id": "x"} if is_5 else {}
    read = decode_connack(packets.encode_connack(version, True, 0, properties), is_5=is_5)
    assert read.session_present
    if is_5:
        assert (read.receive_maximum, read.maximum_packet_size, read.maximum_qos) == (9, 99, 2)
    with pytest.raises(VersionRefused):
        decode_connack(packet(0x20, b"\x00\x01"), is_5=False)
    with pytest.raises(LinkError, match="user name or password is wrong"):
        decode_connack(packet(0x20, b"\x00\x04"), is_5=False)


def test_reasons_are_for_mqtt_5_only() -> None:
    refused = packet(PUBREC << 4, b"\x00\x07\x97\x00")
    assert reason_of(refused, is_5=True) == 0x97 and reason_of(refused[:4], is_5=False) == 0
    assert translated(refused, from_5=True, to_5=False) == acknowledged(PUBREC, b"\x00\x07")
    assert translated(refused, from_5=True, to_5=True) == refused
