"""Delayed publishing: by the topic as EMQX has it, or by a user property.

    $delayed/<n>/<topic>       n seconds from now; above 42,949,670 the time itself, seconds since the epoch
    penstock-deliver-after     user property: milliseconds from now
    penstock-deliver-at        user property: milliseconds since the epoch
    penstock-delay-id          user property: its name while it waits; replaces the one that had it
    penstock-cancel            user property: the message of this name never comes, nor does this one

Subscribers see the topic behind the prefix, and not the user properties. A message that is due by now
is published at once. The first of several user properties counts, and the topic before any of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.router.messages.delayed import HORIZON_MS
from penstock.router.names import text

__all__ = ["Delay", "DelayRefused", "read_delay"]

_PREFIX: Final = b"$delayed/"
_SECONDS_MAX: Final = 42_949_670
_AFTER: Final = b"penstock-deliver-after"
_AT: Final = b"penstock-deliver-at"
_ID: Final = b"penstock-delay-id"
_CANCEL: Final = b"penstock-cancel"
_OURS: Final = (_AFTER, _AT, _ID, _CANCEL)
_USER_PROPERTY: Final = 0x26
_SIZES: Final = {0x01: 1, 0x02: 4, 0x23: 2}
"""Of properties of PUBLISH with a fixed size; all others are one field behind its length, or two."""


class DelayRefused(ValueError):
    """A delay that is none; `in_topic` says where it stood."""

    def __init__(self, text: str, *, in_topic: bool) -> None:
        super().__init__(text)
        self.in_topic = in_topic


class Delay(NamedTuple):
    """The message, its time, and its name."""

    topic: bytes
    block: bytes
    """Its properties as subscribers get them."""
    due_ms: int = 0
    """Since the epoch; 0: now."""
    name: str | None = None
    cancels: str | None = None
    """The name of another one, which never comes, nor does this one."""


def read_delay(topic: bytes, block: bytes, wall_ms: int) -> Delay:
    """The delay in a topic and a property block, which the scanner has checked.

    Raises:
        DelayRefused: no number, no topic behind it, further off than the horizon, or a name that is none.

    """
    wait_ms, in_topic = 0, topic.startswith(_PREFIX)
    name = cancels = None
    if b"penstock-" in block:
        block, found = _read_block(block)
        if _AFTER in found:
            wait_ms = _number(found[_AFTER], in_topic=False)
        elif _AT in found:
            wait_ms = _number(found[_AT], in_topic=False) - wall_ms
        name, cancels = _name(found.get(_ID)), _name(found.get(_CANCEL))
        if name is not None and cancels is not None:
            raise DelayRefused("a message has a name or cancels another one, not both", in_topic=False)
    if in_topic:
        digits, _, topic = topic[len(_PREFIX) :].partition(b"/")
        n = _number(digits, in_topic=True)
        wait_ms = n * 1000 - wall_ms if n > _SECONDS_MAX else n * 1000
        if not topic:
            raise DelayRefused("no topic behind the delay", in_topic=True)
    if wait_ms > HORIZON_MS:
        raise DelayRefused(f"more than {HORIZON_MS} ms (100 years) from now", in_topic=in_topic)
    # The millisecond under way is not over: with one more nothing is early.
    return Delay(topic, block, wall_ms + wait_ms + 1 if wait_ms > 0 else 0, name, cancels)


def _number(digits: bytes, *, in_topic: bool) -> int:
    if not digits.isdigit() or len(digits) > 18:
        raise DelayRefused(f"{digits[:40]!r} is no number of a delay", in_topic=in_topic)
    return int(digits)


def _name(value: bytes | None) -> str | None:
    if value is not None and not 0 < len(value) <= 255:
        raise DelayRefused("the name of a delayed message has 1 to 255 bytes", in_topic=False)
    return None if value is None else text(value)


def _read_block(block: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """The block without our user properties, and the first of each of these."""
    kept = []
    found: dict[bytes, bytes] = {}
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
                if name in _OURS:
                    # Of a wait and a time the first counts, too.
                    if name not in (_AFTER, _AT) or not found.keys() & {_AFTER, _AT}:
                        found.setdefault(name, value)
                    continue
        kept.append(block[start:at])
    return b"".join(kept), found


def _field(block: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(block[at : at + 2], "big")
    return block[at + 2 : end], end
