"""Packets of a bridge: made as the gateway's own codec reads them, cut out of any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.mqtt.packets import VersionRefused, connect, decode_connack, packet, split
from penstock.protocols.mqtt.codec import packets


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 40))
def test_packets_are_cut_out_of_any_pieces(bodies: list[bytes], size: int) -> None:
    whole = [packet(0x30, body) for body in bodies]
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
