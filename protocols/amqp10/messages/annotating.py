"""Annotations that consumers set with the outcome `modified`: kept as a note, and merged into the message.

A note is a map of AMQP 1.0. A message that comes again has its entries among its message annotations, in
place of those of the same names, and a dead letter has them for good, in every protocol.

Source: AMQP 1.0 part 3 section 3.4.5; RabbitMQ 4's quorum queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.log_core.batch._batch import SECTIONS, Record
from penstock.protocols.amqp10.codec._decoding import decode_one
from penstock.protocols.amqp10.codec.encoding import encode
from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.messages.translate import with_annotations
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.router.names import ENC_AMQP091, ENC_MQTT5

__all__ = ["NOTE_MAX", "annotated", "annotations_of", "merged"]

NOTE_MAX: Final = 16 << 10
"""Bytes of the annotations of a message that consumers set."""


def merged(note: bytes, annotations: Mapping[Any, Any]) -> bytes:
    """The note with these annotations, too."""
    return encode(annotations_of(note) | dict(annotations))


def annotations_of(note: bytes) -> dict[Any, Any]:
    """The annotations of a note; none for one that is empty, or damaged."""
    if not note:
        return {}
    try:
        value, _ = decode_one(note, 0)
    except Amqp10Error:
        return {}
    return value if isinstance(value, dict) else {}


def annotated(record: Record, note: bytes) -> Record:
    """The record with the annotations of a note."""
    annotations = annotations_of(note)
    if not annotations:
        return record
    key, props = record.key, record.props
    if record.enc == ENC_MQTT5:
        key, props = amqp091_from_mqtt5(key, props, record.flags)
    elif record.enc != ENC_AMQP091:
        return record
    props = with_annotations(props, annotations, sections=bool(record.flags & SECTIONS))
    return record._replace(key=key, props=props, enc=ENC_AMQP091, flags=record.flags | SECTIONS)
