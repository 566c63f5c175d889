"""Delay headers of AMQP messages; in AMQP 1.0 they are message annotations.

    x-delay                      ms from now; for exchanges of type x-delayed-message only
    x-penstock-deliver-after     ms from now; on any exchange
    x-penstock-deliver-at        ms since the epoch, or a timestamp (seconds); on any exchange
    x-penstock-delay-id          its name while it waits, one of its exchange; replaces the one that had it
    x-penstock-cancel            the message of this name never comes, nor does this one

A delay of 0 or less, or a time that has passed, is none. `x-delay` is negated when the delay is over, so that
no other exchange delays the message again and consumers can tell; ours are taken out.

Source: RabbitMQ's delayed message exchange plugin (rabbit_delayed_message_utils).
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from penstock.protocols.headers.errors import HeaderRefused
from penstock.protocols.properties._tables import Timestamp
from penstock.protocols.properties.editing import message_headers, with_header, without_header
from penstock.protocols.properties.properties import decode_properties
from penstock.protocols.properties.values import Table
from penstock.router.arguments import Arguments
from penstock.router.messages.delayed import HORIZON_MS, DelayWords
from penstock.router.names import wire

__all__ = ["DELAY", "OWN", "WORDS", "delay_ms", "due_ms", "names", "served", "undelayed"]

DELAY: Final = "x-delay"
_AFTER: Final = "x-penstock-deliver-after"
_AT: Final = "x-penstock-deliver-at"
_ID: Final = "x-penstock-delay-id"
_CANCEL: Final = "x-penstock-cancel"
OWN: Final = (_AFTER, _AT, _ID)
"""Those that the consumer does not get."""


def delay_ms(headers: Arguments) -> int:
    """The milliseconds of `x-delay`; 0 = none. As in the plugin numbers of any type count, and text of one.

    Raises:
        HeaderRefused: text that is no number, or more than the horizon.

    """
    value = headers.get(DELAY)
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise HeaderRefused(f"invalid header '{DELAY}': '{value}' is no number of milliseconds") from None
    elif isinstance(value, float) and not math.isfinite(value):
        return 0
    elif isinstance(value, float | Decimal):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return 0
    return _within(DELAY, value)


def due_ms(headers: Table, wall_ms: int) -> int:
    """When the message is due by our own headers, ms since the epoch; 0 = now.

    Raises:
        HeaderRefused: a value of another type, beyond the horizon, or both headers at once.

    """
    after, at = headers.get(_AFTER), headers.get(_AT)
    if after is None and at is None:
        return 0
    if after is not None and at is not None:
        raise HeaderRefused(f"headers '{_AFTER}' and '{_AT}' in one message; set one of them")
    name, value = (_AFTER, after) if at is None else (_AT, at)
    if isinstance(value, bool) or not isinstance(value, int):
        raise HeaderRefused(
            f"invalid header '{name}': a number of milliseconds is wanted, not {str(value)[:64]!r}"
        )
    if at is None:
        wait = value
    else:
        wait = (value * 1000 if isinstance(value, Timestamp) else value) - wall_ms
    # The millisecond under way is not over: with one more nothing is early.
    return wall_ms + _within(name, wait) + 1 if wait > 0 else 0


def names(headers: Table) -> tuple[str | None, str | None]:
    """The name of the message, and the name of the one that it cancels.

    Raises:
        HeaderRefused: a value that is no text of 1 to 255 bytes, or both headers at once.

    """
    found = headers.get(_ID), headers.get(_CANCEL)
    for header, value in zip((_ID, _CANCEL), found, strict=True):
        if value is not None and (not isinstance(value, str) or not 0 < len(wire(value)) <= 255):
            raise HeaderRefused(f"invalid header '{header}': a text of 1 to 255 bytes is wanted")
    name, cancelled = found
    if name is not None and cancelled is not None:
        raise HeaderRefused(f"headers '{_ID}' and '{_CANCEL}' in one message; set one of them")
    return name, cancelled  # type: ignore[return-value]


def undelayed(block: bytes, headers: Table) -> bytes:
    """The properties block without our headers, which are taken out of `headers` too."""
    for name in OWN:
        if name in headers:
            del headers[name]
            block = without_header(block, name)
    return block


def _within(name: str, wait_ms: int) -> int:
    if wait_ms > HORIZON_MS:
        raise HeaderRefused(f"invalid header '{name}': more than {HORIZON_MS} ms (100 years) from now")
    return wait_ms


# Questions of the router about messages that it has accepted before: nothing here raises.


def _headers(block: bytes) -> Arguments:
    return message_headers(decode_properties(block, entries=len(block)))


def _delay_of_accepted(headers: Arguments) -> int:
    value = headers.get(DELAY)
    is_delay = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= HORIZON_MS
    return value if is_delay and isinstance(value, int) else 0


def served(block: bytes, delay_ms: int) -> bytes:
    """The properties block, whose headers have this delay, with that negated."""
    value = -delay_ms
    if -(2**31) <= value:
        return with_header(block, DELAY, b"I" + value.to_bytes(4, "big", signed=True))
    return with_header(block, DELAY, b"l" + value.to_bytes(8, "big", signed=True))


WORDS: Final = DelayWords(_headers, _delay_of_accepted, served)
