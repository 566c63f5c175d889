"""The reason codes of MQTT 5.0, the return codes of 3.1.1, and the errors that carry them.

An error here is always the peer's fault. The answer to it depends on the version and on whether the
client is connected: see `packets.encode_refusal` and `Session`. A `CodecError` is bytes that cannot be read
(0x81), a `ProtocolError` a packet that can be read and is not allowed (0x82 and the rest).

Source: MQTT 5.0 section 2.4, MQTT 3.1.1 table 3.1.
"""

from __future__ import annotations

from typing import Final

from penstock import errors

__all__ = [
    "V3_RETURN_CODES",
    "ConnectRefused",
    "Malformed",
    "MqttError",
    "Violation",
]

SUCCESS: Final = 0x00
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC: Final = 0x83
UNSUPPORTED_VERSION: Final = 0x84
CLIENT_ID_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_ID_IN_USE: Final = 0x91
PACKET_ID_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDS_NOT_SUPPORTED: Final = 0xA1
WILDCARDS_NOT_SUPPORTED: Final = 0xA2

V3_RETURN_CODES: Final = {
    SUCCESS: 0,
    UNSUPPORTED_VERSION: 1,
    CLIENT_ID_NOT_VALID: 2,
    SERVER_UNAVAILABLE: 3,
    SERVER_BUSY: 3,
    SHUTTING_DOWN: 3,
    CONNECTION_RATE_EXCEEDED: 3,
    QUOTA_EXCEEDED: 3,
    BAD_USER_NAME_OR_PASSWORD: 4,
    NOT_AUTHORIZED: 5,
    BANNED: 5,
}
"""The return code of CONNACK in 3.1 and 3.1.1 for a reason; a reason that is not here closes the
connection.
"""


class MqttError(errors.PenstockError):
    """The peer broke a rule; `reason` is what a 5.0 client is told in DISCONNECT."""

    reason: int

    def __init__(self, message: str, reason: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class Malformed(MqttError, errors.CodecError):
    """Bytes that cannot be read as the packet they claim to be (0x81)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, MALFORMED_PACKET)


class Violation(MqttError, errors.ProtocolError):
    """A packet that can be read and is not allowed here (0x82 unless said otherwise)."""


class ConnectRefused(MqttError, errors.ProtocolError):
    """CONNECT was not accepted; `connack` is the whole answer before the close, b"" to close without one."""

    connack: bytes

    def __init__(self, message: str, reason: int, connack: bytes) -> None:
        super().__init__(message, reason)
        self.connack = connack
