"""Messages that are published and not confirmed, by the delivery tags that their source knows them by."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Final

from pamqp import commands

from penstock.protocols.links.amqp.wire import Raw, method_of
from penstock.protocols.links.errors import LinkError

__all__ = ["UnderWay", "delivery_tag", "is_delivery"]

_DELIVER: Final = b"\x00\x3c\x00\x3c"
_ACK: Final = b"\x00\x3c\x00\x50"
_TAG: Final = struct.Struct(">Q")


def is_delivery(raw: Raw) -> bool:
    """Whether the frame, of a method, is basic.deliver."""
    return raw[1][7:11] == _DELIVER


def delivery_tag(raw: Raw) -> int:
    """The tag of a basic.deliver: it stands behind the consumer's tag."""
    tag: int = _TAG.unpack_from(raw[1], 12 + raw[1][11])[0]
    return tag


class UnderWay:
    """Messages in the order in which they were published; the channel of the target confirms."""

    def __init__(self, *, no_place: str, refused: str) -> None:
        """`no_place` and `refused`: what to tell when the target routes a message nowhere, or refuses it."""
        self._no_place = no_place
        self._refused = refused
        self._tags: deque[int] = deque()
        self._first = 1
        """The publish number of the first of them."""
        self._confirmed: set[int] = set()
        """Publish numbers behind it that are confirmed."""

    def __len__(self) -> int:
        return len(self._tags)

    def published(self, tag: int) -> None:
        """The next message was published."""
        self._tags.append(tag)

    def confirmed(self, raw: Raw) -> None:
        """A method came from the target.

        Raises:
            LinkError: it refuses a message.

        """
        if raw[1][7:11] == _ACK:
            (number,) = _TAG.unpack_from(raw[1], 11)
            multiple = raw[1][19] & 1
            self._confirmed.update(range(self._first, number + 1) if multiple else (number,))
            return
        method: Any = method_of(raw)
        if isinstance(method, commands.Basic.Return):
            raise LinkError(self._no_place)
        if isinstance(method, commands.Basic.Nack):
            raise LinkError(self._refused)

    def settled(self) -> tuple[int, int]:
        """The last tag up to which all are confirmed since the last call, and how many these are; or 0, 0."""
        tag = count = 0
        while self._first in self._confirmed:
            self._confirmed.remove(self._first)
            self._first += 1
            tag = self._tags.popleft()
            count += 1
        return tag, count
