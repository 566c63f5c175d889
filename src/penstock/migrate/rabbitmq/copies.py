"""Takes the meaning from headers that route copies of a message.

A publish with the header CC or BCC goes to the queues in it, too. The copies of a stored message are stored
already, so these headers are spelt in small letters on the way: the header stays readable and routes nothing.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.links.amqp.header import entries, table_of

__all__ = ["harmless"]

_NAMES: Final = (b"\x02CC", b"\x03BCC")


def harmless(frame: bytes) -> bytes:
    """The frame of a content header without CC and BCC. Raises ValueError: it is damaged."""
    if not any(name in frame for name in _NAMES):
        return frame
    made = bytearray(frame)
    for at, kind_at, _ in entries(frame, *table_of(frame)):
        if frame[at:kind_at] in _NAMES:
            made[at + 1 : kind_at] = frame[at + 1 : kind_at].lower()
    return bytes(made)
