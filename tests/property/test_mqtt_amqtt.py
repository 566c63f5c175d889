"""Our codec against amqtt's, another project's: each decodes the MQTT 3.1.1 packets of the other.

amqtt speaks no other version. It encodes the packets that only clients send; we encode those of servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload, ConnectVariableHeader
from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.mqtt.packet import MQTTFixedHeader
from amqtt.mqtt.pingreq import PingReqPacket
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.mqtt.subscribe import SubscribePacket
from amqtt.mqtt.unsubscribe import UnsubscribePacket
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.mqtt.codec import packets
from penstock.protocols.mqtt.codec._deliver import Deliverer
from penstock.protocols.mqtt.codec._packet_ids import Inflight
from penstock.protocols.mqtt.codec.reasons import V3_RETURN_CODES
from penstock.protocols.mqtt.endpoint import PINGRESP
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.protocols.properties.translate import mqtt5_from_amqp091
from tests.reference import mqtt_frames as f
from tests.support.mqtt_streams import run_kernel

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), min_size=1, max_size=24)
LEVEL = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="+#/$"), max_size=8)
TOPIC = st.lists(LEVEL, min_size=1, max_size=3).map(lambda levels: "r/" + "/".join(levels))
FILTER = st.lists(LEVEL | st.just("+"), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels) or "x", "/".join([*levels, "#"])])
)
ID = st.integers(1, 65535)
QOS = st.integers(0, 2)
PAYLOAD = st.binary(max_size=300)


def theirs(data: bytes) -> list[Any]:
    """The packets that amqtt decodes from a stream; it must consume all bytes."""

    async def decode() -> list[Any]:
        reader, found = BufferReader(data), []
        while (header := await MQTTFixedHeader.from_stream(reader)) is not None:
            found.append(await packet_class(header).from_stream(reader, fixed_header=header))
        return found

    return asyncio.run(decode())


def ours(packet: Any, kind: int) -> tuple[int, bytes]:
    """(flags, body) of a packet that amqtt encodes, as our scanner hands it on."""
    (whole,), rest = f.split(packet.to_bytes())
    assert whole.kind == kind and rest == b""
    return whole.flags, whole.body


@st.composite
def connects(draw: st.DrawFn) -> ConnectPacket:
    will, user = draw(st.booleans()), draw(st.booleans())
    head = ConnectVariableHeader(keep_alive=draw(st.integers(0, 65535)))
    head.clean_session_flag = draw(st.booleans())
    head.will_flag = will
    if will:
        head.will_qos = draw(QOS)
        head.will_retain_flag = draw(st.booleans())
    head.username_flag = user
    head.password_flag = user and draw(st.booleans())
    body = ConnectPayload(draw(TEXT))
    if will:
        body.will_topic, body.will_message = draw(TOPIC), draw(PAYLOAD)
    if user:
        body.username, body.password = draw(TEXT), draw(TEXT)
    return ConnectPacket(variable_header=head, payload=body)


@given(connects())
def test_a_connect_of_amqtt(packet: ConnectPacket) -> None:
    flags, body = ours(packet, 1)
    found = packets.decode_connect(body, flags)
    head, said = packet.variable_header, packet.payload
    assert head is not None and said is not None
    assert (found.version, found.client_id) == (4, said.client_id)
    assert (found.clean_start, found.keep_alive_s) == (head.clean_session_flag, head.keep_alive)
    assert found.user_name == (said.username if head.username_flag else None)
    password = said.password.encode() if head.password_flag and said.password is not None else None
    assert found.password == password
    if not head.will_flag:
        assert found.will is None
        return
    assert found.will is not None
    will = found.will
    assert (will.topic, will.payload) == (said.will_topic, said.will_message)
    assert (will.qos, will.retain) == (head.will_qos, head.will_retain_flag)


@given(ID, st.lists(st.tuples(FILTER, QOS), min_size=1, max_size=5))
def test_a_subscribe_of_amqtt(packet_id: int, lines: list[tuple[str, int]]) -> None:
    flags, body = ours(SubscribePacket.build(lines, packet_id), 8)
    found = packets.decode_subscribe(body, flags, 4)
    assert found.packet_id == packet_id
    assert [(line.topic, line.qos) for line in found.filters] == lines


@given(ID, st.lists(FILTER, min_size=1, max_size=5))
def test_an_unsubscribe_of_amqtt(packet_id: int, filters: list[str]) -> None:
    flags, body = ours(UnsubscribePacket.build(filters, packet_id), 10)
    found = packets.decode_unsubscribe(body, flags, 4)
    assert (found.packet_id, found.filters) == (packet_id, filters)


def test_the_packets_of_amqtt_that_say_nothing_more() -> None:
    flags, body = ours(DisconnectPacket(), 14)
    assert packets.decode_disconnect(body, flags, 4).reason == 0
    assert run_kernel(PingReqPacket().to_bytes(), [], 4).events == [(12, 0, b"")]
    (pong,) = theirs(PINGRESP)
    assert type(pong).__name__ == "PingRespPacket"


MESSAGE = st.tuples(TOPIC, PAYLOAD, QOS, st.booleans())


@given(st.lists(MESSAGE, min_size=1, max_size=5), st.lists(st.integers(0, 10**6), max_size=5))
def test_messages_of_amqtt_and_our_acknowledgements(
    messages: list[tuple[str, bytes, int, bool]], cuts: list[int]
) -> None:
    """Each at QoS 2 is released at once: more than a few under way are refused."""
    stream, answers = b"", []
    for packet_id, (topic, payload, qos, retain) in enumerate(messages, 1):
        packet = PublishPacket.build(topic, payload, packet_id if qos else None, False, qos, retain)
        stream += packet.to_bytes()
        if qos == 1:
            answers.append(("PubackPacket", packet_id))
        elif qos == 2:
            stream += PubrelPacket.build(packet_id).to_bytes()
            answers += [("PubrecPacket", packet_id), ("PubcompPacket", packet_id)]
    seen = run_kernel(stream, sorted(cut % (len(stream) + 1) for cut in cuts), 4)
    assert seen.fault == 0
    assert seen.records == [
        (topic.encode(), b"", payload, (0, 2, 2 | 512)[qos] | (32 if retain else 0))
        for topic, payload, qos, retain in messages
    ]
    assert [(type(packet).__name__, packet.packet_id) for packet in theirs(seen.answers)] == answers


@given(st.sampled_from([PubackPacket, PubrecPacket, PubcompPacket]), ID)
def test_an_acknowledgement_of_amqtt(kind: type[Any], packet_id: int) -> None:
    """Of something that we did not send: only PUBREC has an answer then, which amqtt reads."""
    seen = run_kernel(kind.build(packet_id).to_bytes(), [], 4)
    assert seen.fault == 0 and seen.events == []
    answered = [(type(packet).__name__, packet.packet_id) for packet in theirs(seen.answers)]
    assert answered == ([("PubrelPacket", packet_id)] if kind is PubrecPacket else [])


@given(MESSAGE, ID, st.booleans())
def test_our_messages(message: tuple[str, bytes, int, bool], packet_id: int, duplicate: bool) -> None:
    topic, payload, qos, retain = message
    out = OutBuffer()
    deliverer = Deliverer(Inflight(), out, 4, lambda tags: None, mqtt5_from_amqp091)
    duplicate = duplicate and qos > 0
    assert deliverer.publish(topic.encode(), b"", payload, qos, retain, b"", packet_id, duplicate, 0)
    (found,) = theirs(out.take())
    assert (found.topic_name, found.data, found.qos) == (topic, payload, qos)
    assert (found.retain_flag, found.dup_flag) == (retain, duplicate)
    assert found.packet_id == (packet_id if qos else None)


@given(st.booleans(), st.sampled_from(sorted(V3_RETURN_CODES.items())))
def test_our_connack(session_present: bool, told: tuple[int, int]) -> None:
    reason, code = told
    (found,) = theirs(packets.encode_connack(4, session_present, reason, {}))
    assert (found.session_parent, found.return_code) == (session_present, code)


def _codes(packet: Any) -> list[int]:
    codes: list[int] = packet.payload.return_codes
    return codes


@given(ID, st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1, max_size=9))
def test_our_suback_and_unsuback(packet_id: int, codes: list[int]) -> None:
    (granted,) = theirs(packets.encode_suback(4, packet_id, codes, {}))
    assert (granted.variable_header.packet_id, _codes(granted)) == (packet_id, codes)
    (done,) = theirs(packets.encode_unsuback(4, packet_id, codes, {}))
    assert (type(done).__name__, done.variable_header.packet_id) == ("UnsubackPacket", packet_id)


@given(st.integers(0, 268_435_455))
def test_the_length_of_a_packet(size: int) -> None:
    """amqtt's and the reference that the kernels are held against."""
    header = MQTTFixedHeader(3, 0, size)
    encoded: Callable[[], bytes] = header.to_bytes
    assert f.read_varint(encoded(), 1) == (size, len(encoded()))
