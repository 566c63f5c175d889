"""Delayed publishing: by the topic as EMQX has it, or by a user property.

    $delayed/<n>/<topic>       n seconds from now; above 42,949,670 the time itself, seconds since the epoch
    penstock-deliver-after     user property: milliseconds from now
    penstock-deliver-at        user property: milliseconds since the epoch

Subscribers see the topic behind the prefix, and not the user property. What is due by now is published at
once. The first of several user properties counts, and the topic before any of them.
"""

from __future__ import annotations

from typing import Final

from penstock.router.delayed import HORIZON_MS

__all__ = ["DelayRefused", "read_delay"]

_PREFIX: Final = b"$delayed/"
_SECONDS_MAX: Final = 42_949_670
_AFTER: Final = b"penstock-deliver-after"
_AT: Final = b"penstock-deliver-at"
_USER_PROPERTY: Final = 0x26
_SIZES: Final = {0x01: 1, 0x02: 4, 0x23: 2}
"""Of properties of PUBLISH with a fixed size; all others are one field behind its length, or two."""


class DelayRefused(ValueError):
    """A delay that is none; `in_topic` says where it stood."""

    def __init__(self, text: str, *, in_topic: bool) -> None:
        super().__init__(text)
        self.in_topic = in_topic


def read_delay(topic: bytes, block: bytes, wall_ms: int) -> tuple[bytes, bytes, int]:
    """Topic and property block as subscribers get them, and when it is due, ms since the epoch (0 = now).

    Raises:
        DelayRefused: no number, no topic behind it, or further off than the horizon.

    """
    wait_ms, in_topic = 0, topic.startswith(_PREFIX)
    if _AFTER[:-5] in block:
        block, wait_ms = _read_block(block, wall_ms)
    if in_topic:
        digits, _, topic = topic[len(_PREFIX) :].partition(b"/")
        n = _number(digits, in_topic=True)
        wait_ms = n * 1000 - wall_ms if n > _SECONDS_MAX else n * 1000
        if not topic:
            raise DelayRefused("no topic behind the delay", in_topic=True)
    if wait_ms > HORIZON_MS:
        raise DelayRefused(f"more than {HORIZON_MS} ms (100 years) from now", in_topic=in_topic)
    # The millisecond under way is not over: with one more nothing is early.
    return topic, block, wall_ms + wait_ms + 1 if wait_ms > 0 else 0


def _number(digits: bytes, *, in_topic: bool) -> int:
    if not digits.isdigit() or len(digits) > 18:
        raise DelayRefused(f"{digits[:40]!r} is no number of a delay", in_topic=in_topic)
    return int(digits)


def _read_block(block: bytes, wall_ms: int) -> tuple[bytes, int]:
    """The block, which the scanner has checked, without our user properties, and the delay of the first."""
    kept = []
    wait_ms: int | None = None
    at = 0
    while at < len(block):
        start, kind = at, block[at]
        at += 1
        if kind in _SIZES:
            at += _SIZES[kind]
        else:
            name, at = _field(block, at)
            if kind == _USER_PROPERTY:
                value, at = _field(block, at)
                if name in (_AFTER, _AT):
                    if wait_ms is None:
                        wait_ms = _number(value, in_topic=False) - (wall_ms if name == _AT else 0)
                    continue
        kept.append(block[start:at])
    return b"".join(kept), wait_ms or 0


def _field(block: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(block[at : at + 2], "big")
    return block[at + 2 : end], end
