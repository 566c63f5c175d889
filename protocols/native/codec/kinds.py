"""The numbers of the native protocol, for both its sides. docs/reference/native.md is the reference."""

from __future__ import annotations

from typing import Final

__all__: list[str] = []

PREFACE: Final = b"PENSTOCK"
"""The first bytes of a client."""
VERSION: Final = 1

HELLO: Final = 0x01
WELCOME: Final = 0x02
LOGIN: Final = 0x03
READY: Final = 0x04
REQUEST: Final = 0x05
RESPONSE: Final = 0x06
PING: Final = 0x07
PONG: Final = 0x08
ERROR: Final = 0x0F
PRODUCE: Final = 0x10
PRODUCE_AT: Final = 0x11
CONFIRM: Final = 0x12
REFUSED: Final = 0x13
TRANSACT: Final = 0x14
PREPARE: Final = 0x15
CREDIT: Final = 0x20
DELIVER: Final = 0x21
ACK: Final = 0x22
NACK: Final = 0x23
PULL: Final = 0x24
PULLED: Final = 0x25
EVENT: Final = 0x26
CHECK: Final = 0x27
DELIVER_PACKED: Final = 0x28
DELIVER_STORED: Final = 0x29
LOG: Final = 0x30
"""Types of frames."""

ACKS_NONE: Final = 0
ACKS_WRITTEN: Final = 1
ACKS_FSYNC: Final = 2
"""The level that a confirm waits for."""

CAPABILITIES: Final = (
    "delay",
    "transact",
    "prepare",
    "pull",
    "read",
    "seek",
    "extend",
    "queues",
    "numbered",
    "max_unacked",
    "delay_names",
)
"""Every client may have these, and the SDK asks for them all."""
ZSTD: Final = "zstd"
LZ4: Final = "lz4"
"""The capabilities of compressed batches."""
ROUTED: Final = "routed"
"""The capability of confirms that say which messages went nowhere."""
STORED: Final = "stored"
"""The capability of batches as they are stored."""
LOG_ID: Final = "log_id"
"""The capability of a READY that names the log that positions are of."""
KEY_HEADER: Final = "x-key"
"""The header that has a message's ordering key."""
