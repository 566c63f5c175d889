"""The translation is total, and MQTT properties come back from AMQP as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.properties.translate import amqp091_from_mqtt5, mqtt5_from_amqp091
from tests.reference import mqtt_frames as f

NAMES = st.sampled_from(
    [
        "k",
        "k",
        "other",
        "",
        "x-mqtt-retain",
        "x-exchange",
        "BCC",
        "x-mqtt-user-property-order",
        "amqp-message-id",
        "amqp-timestamp",
        "amqp-priority",
        "amqp-user-id",
        "amqp-content-encoding",
        "n" * 300,
    ]
) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
VALUES = st.sampled_from(["", "utf-8", "7", "007", "256", "-1", "18446744073709551616", "v" * 300]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
TOPICS = st.text(st.sampled_from("ab./ $\u00e9"), min_size=1, max_size=300)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    parts = []
    if draw(st.booleans()):
        parts.append(bytes((1, draw(st.integers(0, 1)))))
    if draw(st.booleans()):
        parts.append(b"\x02" + draw(st.sampled_from([0, 1, 60, 2**32 - 1])).to_bytes(4, "big"))
    if draw(st.booleans()):
        parts.append(b"\x03" + f.text(draw(VALUES)))
    if draw(st.booleans()):
        topics = TOPICS | st.sampled_from(
            ["$amq/queue/q", "$amq/queue/", "$amq/queue//topic/x", "$amq/queue/" + "q" * 300]
        )
        parts.append(b"\x08" + f.text(draw(topics)))
    if draw(st.booleans()):
        parts.append(b"\x09" + f.text(draw(st.binary(max_size=300))))
    parts += [
        b"\x26" + f.text(n) + f.text(v) for n, v in draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    ]
    return b"".join(draw(st.permutations(parts)))


@given(TOPICS, blocks(), st.sampled_from([0, 2, 2 | 512, 32]))
def test_mqtt_properties_come_back(topic: str, block: bytes, flags: int) -> None:
    key, properties = amqp091_from_mqtt5(topic.encode(), block, flags)
    back = mqtt5_from_amqp091(key, properties)[1]
    assert f.parse_block(back, f.IN_PUBLISH) == f.parse_block(block, f.IN_PUBLISH)


@given(st.binary(max_size=60), st.binary(max_size=200), st.integers(0, 65535))
def test_nothing_makes_it_raise(key: bytes, block: bytes, flags: int) -> None:
    made, properties = amqp091_from_mqtt5(key, block, flags)
    for topic, translated in (mqtt5_from_amqp091(key, block), mqtt5_from_amqp091(made, properties)):
        if topic is not None:
            f.check_text(topic)
            f.parse_block(translated, f.IN_PUBLISH)


@given(st.integers(0, 65535), st.binary(max_size=300), st.data())
def test_a_header_with_any_values_makes_a_valid_block(flags: int, rest: bytes, data: st.DataObject) -> None:
    kinds = b"SxtVTDFAbBsuIilLfd"
    entries = data.draw(
        st.lists(st.tuples(st.binary(max_size=5), st.sampled_from(kinds), st.binary(max_size=12)))
    )
    table = b"".join(bytes((len(n),)) + n + bytes((k,)) + v for n, k, v in entries)
    properties = (flags | 0x2000).to_bytes(2, "big") + len(table).to_bytes(4, "big") + table + rest
    topic, block = mqtt5_from_amqp091(b"\0\x03a.b", properties)
    assert topic == b"a/b"
    f.parse_block(block, f.IN_PUBLISH)
