"""The properties block of a message in Python, and its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.properties.editing import message_headers
from penstock.protocols.properties.properties import decode_properties, encode_properties
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.router.arguments import MessageHeaders
from penstock.router.names import ENC_AMQP091, ENC_MQTT5

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record

__all__ = [
    "decode_properties",
    "encode_properties",
    "headers_of",
    "message_headers",
]


def headers_of(record: Record) -> MessageHeaders:
    """The headers of a record of any protocol, as AMQP has them."""
    props = record.props
    if record.enc == ENC_MQTT5:
        props = amqp091_from_mqtt5(record.key, props, record.flags)[1]
    elif record.enc != ENC_AMQP091:
        return MessageHeaders({}, {})
    return message_headers(decode_properties(props, entries=len(props)))
