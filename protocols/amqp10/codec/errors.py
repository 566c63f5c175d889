"""Errors of AMQP 1.0: each carries the condition that the peer is told.

    CodecError
      Amqp10Error         condition, description
        DecodeError       amqp:decode-error: bytes that are no value, or one beyond the limits
        FramingError      amqp:connection:framing-error: a frame with an impossible header
        FieldError        amqp:invalid-field: a performative with a wrong field
        Unsupported       amqp:not-implemented: something that the standard has and this broker has not

Source: AMQP 1.0 part 2, sections 2.8.15 and 2.8.16.
"""

from __future__ import annotations

from penstock.errors import CodecError

__all__ = ["Amqp10Error", "DecodeError", "FieldError", "FramingError", "Unsupported"]


class Amqp10Error(CodecError):
    """An error with the condition that the peer is told."""

    condition = "amqp:internal-error"


class DecodeError(Amqp10Error):
    """Bytes that are no value, or a value beyond the limits."""

    condition = "amqp:decode-error"


class FramingError(Amqp10Error):
    """A frame with an impossible header."""

    condition = "amqp:connection:framing-error"


class FieldError(Amqp10Error):
    """A performative with a field that is missing, or of the wrong type."""

    condition = "amqp:invalid-field"


class Unsupported(Amqp10Error):
    """Something that the standard has and this broker has not."""

    condition = "amqp:not-implemented"
