"""The packets off the hot path: CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH and what answers them.

Decoders take the body of one whole packet (what follows the fixed header) and the fixed header's flags where
these matter; they read it to its last byte or raise. Encoders give the whole packet. PUBLISH and its
acknowledgements are the kernels' (`_scan`, `_deliver`).

Mistakes in CONNECT are answered here too, since only the decoder knows which dialect the peer speaks:
`decode_connect` raises `ConnectRefused` with the bytes to send before the close.

    CONNECT       text protocol name | u8 level | u8 flags | u16 keep alive | [properties] | text client id
                  | [[will properties] text topic, binary payload] | [text user name] | [binary password]
    SUBSCRIBE     u16 packet id | [properties] | (text filter, u8 options)...
    UNSUBSCRIBE   u16 packet id | [properties] | (text filter)...
    DISCONNECT, AUTH   [u8 reason [properties]]            [..] with properties: 5.0 only

Source: MQTT 3.1.1 and 5.0, chapter 3; MQTT 3.1 for level 3.
"""

from __future__ import annotations

import functools
import re
from dataclasses import field
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.codec import reasons
from penstock.protocols.mqtt.codec._connect import Connect
from penstock.protocols.mqtt.codec.properties import (
    Properties,
    decode_binary,
    decode_properties,
    decode_text,
    encode_block,
    encode_properties,
    encode_varint,
)
from penstock.protocols.mqtt.codec.reasons import ConnectRefused, Malformed, MqttError, Violation

__all__ = [
    "PINGRESP",
    "Connect",
    "Disconnect",
    "Filter",
    "Subscribe",
    "Unsubscribe",
    "Will",
    "check_topic",
    "decode_auth",
    "decode_connect",
    "decode_disconnect",
    "decode_subscribe",
    "decode_unsubscribe",
    "encode_auth",
    "encode_connack",
    "encode_disconnect",
    "encode_refusal",
    "encode_suback",
    "encode_unsuback",
]

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP_TYPE: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

PINGRESP: Final = bytes((PINGRESP_TYPE << 4, 0))

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NOT_IN_TOPICS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f+#]")

MQTT_3_1: Final = 3
MQTT_3_1_1: Final = 4
MQTT_5: Final = 5


@dataclass(slots=True)
class Will:
    """The message published for a client that goes without saying so."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int = 0
    block: bytes = b""
    """The properties the message will have, as a record keeps them (no length, no will delay)."""
    expiry_s: int | None = None


@dataclass(slots=True)
class Filter:
    """One line of SUBSCRIBE: a topic filter and its options (mqtt5:3.8.3.1)."""

    topic: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """SUBSCRIBE: at least one filter; `subscription_id` is 0 when there is none."""

    packet_id: int
    filters: list[Filter]
    subscription_id: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Unsubscribe:
    """UNSUBSCRIBE: at least one filter."""

    packet_id: int
    filters: list[str]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT from a client."""

    reason: int = reasons.SUCCESS
    properties: Properties = field(default_factory=dict)


# CONNECT


def decode_connect(body: bytes, flags: int) -> Connect:
    """Read a CONNECT.

    Raises:
        ConnectRefused: it is not one that can be accepted; `connack` is the answer, b"" = close at once
            (mqtt311:3.1.4-1, mqtt5:3.1.4-2).

    """
    version = 0
    try:
        if flags and not body.startswith((b"\0\4MQTT", b"\0\6MQIsdp")):
            raise Malformed("CONNECT with fixed header flags")  # perhaps no MQTT at all
        version, bridge = _decode_level(body)
        if flags and version != MQTT_3_1:
            raise Malformed("CONNECT with fixed header flags")
        connect = _decode_connect(body, version)
        connect.bridge = bridge
        return connect
    except ConnectRefused:
        raise
    except MqttError as error:
        # Of what 3.x can get wrong here only the client id has a return code (mqtt311:3.1.3-9).
        told = version == MQTT_5 or error.reason == reasons.CLIENT_ID_NOT_VALID
        answer = encode_refusal(version, error.reason) if told else b""
        raise ConnectRefused(error.message, error.reason, answer) from error


def _decode_level(body: bytes) -> tuple[int, bool]:
    """The protocol level, and whether a bridge connects: one of Mosquitto's sets the highest bit with 3.x."""
    name, at = decode_binary(body, 0, len(body))
    if at >= len(body):
        raise Malformed("CONNECT without a protocol level")
    level = body[at]
    if (name, level) in ((b"MQTT", MQTT_3_1_1), (b"MQTT", MQTT_5), (b"MQIsdp", MQTT_3_1)):
        return level, False
    if (name, level) in ((b"MQTT", MQTT_3_1_1 | 0x80), (b"MQIsdp", MQTT_3_1 | 0x80)):
        return level & 0x7F, True
    if name not in (b"MQTT", b"MQIsdp"):
        raise ConnectRefused("not MQTT", reasons.UNSUPPORTED_VERSION, b"")
    # A newer client reads a 5.0 CONNACK, an older one a 3.1.1 one.
    dialect = MQTT_5 if MQTT_5 < level < 0x80 else MQTT_3_1_1
    refusal = encode_refusal(dialect, reasons.UNSUPPORTED_VERSION)
    raise ConnectRefused(f"protocol level {level}", reasons.UNSUPPORTED_VERSION, refusal)


def _decode_connect(body: bytes, version: int) -> Connect:
    end = len(body)
    at = 2 + (body[0] << 8 | body[1]) + 1
    if end - at < 3:
        raise Malformed("CONNECT is cut off")
    flags = body[at]
    keep_alive_s = body[at + 1] << 8 | body[at + 2]
    at += 3
    if flags & 0x01 and version != MQTT_3_1:  # 3.1: "bit 0 is not used"
        raise Malformed("CONNECT with the reserved flag")  # mqtt5:3.1.2-3
    properties: Properties = {}
    if version == MQTT_5:
        properties, at = decode_properties(body, at, end, "CONNECT")
        if "authentication_data" in properties and "authentication_method" not in properties:
            raise Violation("authentication data without a method")
    client_id, at = decode_text(body, at, end)
    will, at = _decode_will(body, at, end, version, flags)
    user_name = password = None
    if flags & 0x80:
        user_name, at = decode_text(body, at, end)
    if flags & 0x40:
        if version < MQTT_5 and user_name is None:
            raise Malformed("a password without a user name")  # mqtt311:3.1.2-22
        password, at = decode_binary(body, at, end)
    if at != end:
        raise Malformed("CONNECT is longer than its fields")
    clean_start = bool(flags & 0x02)
    if _CONTROL.search(client_id):
        raise Violation("a client id with control characters", reasons.CLIENT_ID_NOT_VALID)
    if not client_id and (version == MQTT_3_1 or (version == MQTT_3_1_1 and not clean_start)):
        answer = encode_refusal(version, reasons.CLIENT_ID_NOT_VALID)  # mqtt311:3.1.3-8
        raise ConnectRefused("an empty client id", reasons.CLIENT_ID_NOT_VALID, answer)
    return Connect(version, client_id, clean_start, keep_alive_s, user_name, password, will, properties)


def _decode_will(body: bytes, at: int, end: int, version: int, flags: int) -> tuple[Will | None, int]:
    qos = flags >> 3 & 3
    retain = bool(flags & 0x20)
    if not flags & 0x04:
        if qos or retain:
            raise Malformed("will flags without a will")  # mqtt5:3.1.2-11, mqtt5:3.1.2-13
        return None, at
    if qos == 3:
        raise Malformed("will QoS 3")  # mqtt5:3.1.2-12
    properties: Properties = {}
    if version == MQTT_5:
        properties, at = decode_properties(body, at, end, "WILL")
        if "response_topic" in properties:
            check_topic(properties["response_topic"])
    topic, at = decode_text(body, at, end)
    check_topic(topic)
    payload, at = decode_binary(body, at, end)
    delay_s = properties.pop("will_delay_s", 0)
    expiry_s = properties.get("message_expiry_s")
    return Will(topic, payload, qos, retain, delay_s, encode_block(properties), expiry_s), at


def check_topic(topic: str) -> None:
    """A topic name: not empty, no wildcard, no control character.

    Raises:
        Malformed: it is not one.

    """
    if not topic:
        raise Malformed("an empty topic")  # mqtt5:4.7.3-1
    # The specification allows control characters to be refused (mqtt5:1.5.4), and they are in filters' way.
    if _NOT_IN_TOPICS.search(topic):
        raise Malformed("a topic with a wildcard or control character")


# SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH


def _decode_packet_id(body: bytes) -> int:
    if len(body) < 2:
        raise Malformed("the packet ends before its packet id")
    packet_id = body[0] << 8 | body[1]
    if not packet_id:
        raise Violation("packet id 0")  # mqtt5:2.2.1-3
    return packet_id


def decode_subscribe(body: bytes, flags: int, version: int) -> Subscribe:
    """Read a SUBSCRIBE. Whether a filter is one is left to the session, which answers for each."""
    if flags != 2:
        raise Malformed("SUBSCRIBE with wrong fixed header flags")  # mqtt5:3.8.1-1
    packet_id = _decode_packet_id(body)
    at = 2
    end = len(body)
    properties: Properties = {}
    subscription_id = 0
    if version == MQTT_5:
        properties, at = decode_properties(body, at, end, "SUBSCRIBE")
        identifiers = properties.get("subscription_ids", [0])
        if len(identifiers) > 1:
            raise Violation("two subscription identifiers")
        subscription_id = identifiers[0]
    filters = []
    while at < end:
        topic, at = decode_text(body, at, end)
        if at >= end:
            raise Malformed("a filter without options")
        filters.append(_decode_options(topic, body[at], version))
        at += 1
    if not filters:
        raise Malformed("SUBSCRIBE without a filter")  # mqtt5:3.8.3-2
    return Subscribe(packet_id, filters, subscription_id, properties)


def _decode_options(topic: str, options: int, version: int) -> Filter:
    qos = options & 3
    if qos == 3:
        raise Malformed("a subscription with QoS 3")
    if version < MQTT_5:
        if options & 0xFC:
            raise Malformed("subscription options that 3.1.1 does not have")  # mqtt311:3.8.3-4
        return Filter(topic, qos)
    handling = options >> 4 & 3
    if options & 0xC0 or handling == 3:
        raise Malformed("reserved subscription options")  # mqtt5:3.8.3-5
    return Filter(topic, qos, bool(options & 4), bool(options & 8), handling)


def decode_unsubscribe(body: bytes, flags: int, version: int) -> Unsubscribe:
    """Read an UNSUBSCRIBE."""
    if flags != 2:
        raise Malformed("UNSUBSCRIBE with wrong fixed header flags")  # mqtt5:3.10.1-1
    packet_id = _decode_packet_id(body)
    at = 2
    end = len(body)
    properties: Properties = {}
    if version == MQTT_5:
        properties, at = decode_properties(body, at, end, "UNSUBSCRIBE")
    filters = []
    while at < end:
        topic, at = decode_text(body, at, end)
        filters.append(topic)
    if not filters:
        raise Malformed("UNSUBSCRIBE without a filter")  # mqtt5:3.10.3-2
    return Unsubscribe(packet_id, filters, properties)


_DISCONNECT_REASONS: Final = frozenset(
    (0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99)
)


def decode_disconnect(body: bytes, flags: int, version: int) -> Disconnect:
    """Read a DISCONNECT."""
    if flags:
        raise Malformed("DISCONNECT with fixed header flags")  # mqtt5:3.14.1-1
    reason, properties = _decode_reason(body, version, "DISCONNECT")
    if reason not in _DISCONNECT_REASONS:
        raise Violation(f"DISCONNECT with reason 0x{reason:02x}")
    return Disconnect(reason, properties)


def decode_auth(body: bytes, flags: int) -> tuple[int, Properties]:
    """Read an AUTH; gives its reason and properties."""
    if flags:
        raise Malformed("AUTH with fixed header flags")  # mqtt5:3.15.1-1
    reason, properties = _decode_reason(body, MQTT_5, "AUTH")
    if reason not in (reasons.SUCCESS, reasons.CONTINUE_AUTHENTICATION, reasons.REAUTHENTICATE):
        raise Violation(f"AUTH with reason 0x{reason:02x}")
    return reason, properties


def _decode_reason(body: bytes, version: int, packet: str) -> tuple[int, Properties]:
    if not body:
        return reasons.SUCCESS, {}
    if version < MQTT_5:
        raise Malformed(f"{packet} with a body")
    properties: Properties = {}
    at = 1
    if len(body) > 1:
        properties, at = decode_properties(body, 1, len(body), packet)
    if at != len(body):
        raise Malformed(f"{packet} is longer than its fields")
    return body[0], properties


# Sent by the server


def _packet(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((kind << 4,)) + encode_varint(len(body)) + body


_NEW_SESSION: Final = bytes((CONNACK << 4, 2, 0, 0))
_SAME_SESSION: Final = bytes((CONNACK << 4, 2, 1, 0))


_LIMITS: Final = frozenset(
    {
        "maximum_packet_size",
        "receive_maximum",
        "server_keep_alive_s",
        "session_expiry_s",
        "topic_alias_maximum",
    }
)


@functools.lru_cache(maxsize=64)  # as a rule all clients are told the same
def _accepting(session_present: bool, properties: tuple[tuple[str, Any], ...]) -> bytes:
    return _packet(CONNACK, bytes((session_present, reasons.SUCCESS)), encode_properties(dict(properties)))


def encode_connack(version: int, session_present: bool, reason: int, properties: Properties) -> bytes:
    """CONNACK; `reason` is a 5.0 reason code in every version and must be in `V3_RETURN_CODES` for 3.x."""
    if version == MQTT_5:
        if reason == reasons.SUCCESS and properties.keys() <= _LIMITS:
            return _accepting(session_present, tuple(properties.items()))
        return _packet(CONNACK, bytes((session_present, reason)), encode_properties(properties))
    # MQTT 3.1 has no session present flag: the byte is reserved.
    session_present = session_present and version > MQTT_3_1
    if reason == reasons.SUCCESS:
        return _SAME_SESSION if session_present else _NEW_SESSION
    return _packet(CONNACK, bytes((session_present, reasons.V3_RETURN_CODES[reason])))


def encode_refusal(version: int, reason: int) -> bytes:
    """The CONNACK that refuses; b"" when the version has no word for the reason."""
    if version == MQTT_5:
        return encode_connack(version, False, reason, {})
    if reason not in reasons.V3_RETURN_CODES:
        return b""
    return encode_connack(version, False, reason, {})


def encode_suback(version: int, packet_id: int, results: list[int], properties: Properties) -> bytes:
    """SUBACK with one result per filter: the QoS granted or, from 0x80 on, why not."""
    if version == MQTT_5:
        block = encode_properties(properties)
        return _packet(SUBACK, packet_id.to_bytes(2, "big"), block, bytes(results))
    return _packet(SUBACK, packet_id.to_bytes(2, "big"), bytes(min(result, 0x80) for result in results))


def encode_unsuback(version: int, packet_id: int, results: list[int], properties: Properties) -> bytes:
    """UNSUBACK; the results per filter are told to 5.0 clients only."""
    if version == MQTT_5:
        return _packet(UNSUBACK, packet_id.to_bytes(2, "big"), encode_properties(properties), bytes(results))
    return _packet(UNSUBACK, packet_id.to_bytes(2, "big"))


def encode_disconnect(reason: int, properties: Properties) -> bytes:
    """DISCONNECT to a 5.0 client; 3.x has none from the server."""
    if not properties:
        return bytes((DISCONNECT << 4, 1, reason))
    return _packet(DISCONNECT, bytes((reason,)), encode_properties(properties))


def encode_auth(reason: int, properties: Properties) -> bytes:
    """AUTH to a 5.0 client."""
    return _packet(AUTH, bytes((reason,)), encode_properties(properties))
