"""Properties across the protocols: each row of the table, what is never trusted, and nonsense."""

from __future__ import annotations

from typing import Any

import pamqp.header
import pytest
from pamqp import commands

from penstock.protocols.properties.translate import (
    amqp091_from_mqtt5,
    mqtt5_from_amqp091,
    routing_key_of,
    topic_of,
)
from tests.reference.mqtt_frames import text

QOS = {0: 0, 1: 2, 2: 2 | 512}


def amqp_of(block: bytes, topic: str = "a/b", flags: int = 0) -> tuple[str, dict[str, Any]]:
    """The routing key and the properties an AMQP client sees, by pamqp."""
    key, properties = amqp091_from_mqtt5(topic.encode(), block, flags)
    size = key[0]
    assert key[1 : 1 + size] == b"amq.topic"
    assert key[1 + size] == len(key) - size - 2
    header = pamqp.header.ContentHeader()
    header.unmarshal(b"\0\x3c\0\0" + bytes(8) + properties)
    assert header.properties is not None
    # pamqp gives cluster_id as "" when it is absent.
    found = {name: value for name, value in dict(header.properties).items() if value not in (None, "")}
    return key[2 + size :].decode(), found


def block_of(exchange: str = "amq.topic", key: str = "a.b", **properties: Any) -> tuple[bytes | None, bytes]:
    """The topic and block an MQTT client sees of what an AMQP client publishes."""
    header = pamqp.header.ContentHeader(properties=commands.Basic.Properties(**properties))
    key_block = b"".join(bytes((len(part.encode()),)) + part.encode() for part in (exchange, key))
    return mqtt5_from_amqp091(key_block, header.marshal()[12:])


def users(*pairs: tuple[str, str]) -> bytes:
    return b"".join(b"\x26" + text(name) + text(value) for name, value in pairs)


def test_a_topic_is_a_routing_key() -> None:
    assert amqp_of(b"", "a/b c/\u00e9")[0] == "a.b c.\u00e9"
    key, properties = amqp_of(b"", "spBv1.0/x")
    assert key == "spBv1.0.x"
    assert properties["headers"]["x-mqtt-topic"] == "spBv1.0/x"
    assert "x-mqtt-topic" not in amqp_of(b"")[1]["headers"]
    long = "\u00e9" * 200
    assert len(routing_key_of(long.encode())) == 254
    assert amqp_of(b"", long)[1]["headers"]["x-mqtt-topic"] == long


@pytest.mark.parametrize("key", ["", "a.*.#", "a+b", "a\0b"])
def test_a_routing_key_that_is_no_topic(key: str) -> None:
    assert topic_of(key.encode()) is None
    assert block_of(key=key) == (None, b"")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_qos_is_the_delivery_mode(qos: int) -> None:
    _, properties = amqp_of(b"", flags=QOS[qos])
    assert properties["delivery_mode"] == (2 if qos else 1)
    assert properties["headers"] == {"x-mqtt-publish-qos": qos}
    assert amqp_of(b"", flags=32)[1]["headers"]["x-mqtt-retain"] is True


def test_each_property_has_its_place() -> None:
    block = (
        b"\x01\x01\x02\0\0\0\x3c\x03"
        + text("text/plain")
        + b"\x08"
        + text("r/t")
        + b"\x09"
        + text("id")
        + users(("k", "v"))
    )
    _, properties = amqp_of(block, flags=2)
    headers = properties.pop("headers")
    assert properties == {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "expiration": "60000",
        "reply_to": "/topic/r.t",
        "correlation_id": "id",
    }
    assert headers == {
        "x-mqtt-publish-qos": 1,
        "x-mqtt-payload-format": 1,
        "x-reply-to-topic": "r.t",
        "k": "v",
    }


def test_binary_correlation_data_is_a_header() -> None:
    headers = amqp_of(b"\x09" + text(b"\xff\0"))[1]["headers"]
    assert bytes(headers["x-correlation-id"]) == b"\xff\0"


def test_amqp_properties_become_user_properties() -> None:
    topic, block = block_of(
        exchange="orders",
        content_type="application/json",
        content_encoding="gzip",
        priority=7,
        correlation_id="c",
        reply_to="q",
        expiration="1500",
        message_id="m",
        message_type="t",
        user_id="guest",
        app_id="app",
        headers={"s": "text", "i": 5, "b": True, "v": None, "f": 1.5, "n": {"deep": 1}, "a": ["x", 2]},
    )
    assert topic == b"a/b"
    assert block == (
        b"\x02\0\0\0\x02\x03"
        + text("application/json")
        + b"\x08"
        + text("$amq/queue/q")
        + b"\x09"
        + text("c")
    ) + users(
        ("a", "x"),
        ("a", "2"),
        ("b", "true"),
        ("f", "1.5"),
        ("i", "5"),
        ("s", "text"),
        ("v", ""),
        ("amqp-content-encoding", "gzip"),
        ("amqp-priority", "7"),
        ("amqp-message-id", "m"),
        ("amqp-type", "t"),
        ("amqp-app-id", "app"),
        ("amqp-user-id", "guest"),
        ("x-exchange", "orders"),
    )


def test_an_mqtt_client_cannot_claim_a_user_id() -> None:
    """RabbitMQ's user-id is what the broker vouches for; a user property of that name stays a header."""
    _, properties = amqp_of(users(("amqp-user-id", "admin"), ("amqp-message-id", "m")))
    assert "user_id" not in properties
    assert properties["message_id"] == "m"
    assert properties["headers"]["amqp-user-id"] == "admin"


def test_a_response_topic_that_is_no_topic_is_left_out() -> None:
    assert block_of(headers={"x-mqtt-response-topic": "a/#"})[1] == b""
    assert block_of(headers={"x-reply-to-topic": "a.\x01"})[1] == b""


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\xff",
        b"\xff\xff\xff",
        b"\x20\0\0\0\0\x10\x01aF",
        b"\x80\0\x05ab",
        b"\x20\0" + b"\xff" * 20,
        b"\x20\0\0\0\0\x03\x01aZ",
    ],
)
def test_a_damaged_header_is_read_as_far_as_it_goes(properties: bytes) -> None:
    assert mqtt5_from_amqp091(b"\0\x01a", properties)[0] == b"a"


def test_a_deep_table_ends() -> None:
    value = b"S\0\0\0\x01x"
    for _ in range(1000):
        inner = b"\x01k" + value
        value = b"F" + len(inner).to_bytes(4, "big") + inner
    table = b"\x01k" + value
    assert mqtt5_from_amqp091(b"\0\x01a", b"\x20\0" + len(table).to_bytes(4, "big") + table) == (b"a", b"")
