"""The error of a selector."""

from __future__ import annotations

from penstock.protocols.amqp10.codec.errors import Amqp10Error

__all__ = ["SelectorError"]


class SelectorError(Amqp10Error):
    """A text that is no selector, or one over a limit."""

    condition = "amqp:invalid-field"
