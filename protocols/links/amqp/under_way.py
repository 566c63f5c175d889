"""Messages that are published and not confirmed, by the delivery tags that their source knows them by."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Final

from pamqp import commands

from penstock.protocols.links.amqp.wire import Raw, method_of
from penstock.protocols.links.errors import LinkError

__all__ = ["UnderWay"]

_ACK: Final = b"\x00\x3c\x00\x50"
_TAG: Final = struct.Struct(">Q")


class UnderWay:
    """Messages in the order in which they were published; the channel of the target confirms."""

    def __init__(self, *, no_place: str, refused: str) -> None:
        """`no_place` and `refused`: what to tell when the target routes a message nowhere, or refuses it."""
        self._no_place = no_place
        self._refused = refused
        self._runs: deque[list[int]] = deque()
        """[first tag, how many follow on it], of what is not settled."""
        self._published = 0
        self._settled = 0
        """Publish numbers up to it are settled."""
        self._reached = 0
        """Publish numbers up to it are confirmed."""
        self._single: set[int] = set()
        """Publish numbers behind it that are confirmed."""

    def __len__(self) -> int:
        return self._published - self._settled

    def published(self, first_tag: int, count: int) -> None:
        """The next messages were published: those of so many tags from the first one on."""
        self._runs.append([first_tag, count])
        self._published += count

    def confirmed(self, raw: Raw) -> None:
        """A method came from the target.

        Raises:
            LinkError: it refuses a message.

        """
        if raw[1][7:11] == _ACK:
            (number,) = _TAG.unpack_from(raw[1], 11)
            if raw[1][19] & 1:
                self._reached = max(self._reached, min(number, self._published))
            else:
                self._single.add(number)
            return
        method: Any = method_of(raw)
        if isinstance(method, commands.Basic.Return):
            raise LinkError(self._no_place)
        if isinstance(method, commands.Basic.Nack):
            raise LinkError(self._refused)

    def settled(self) -> tuple[int, int]:
        """The last tag up to which all are confirmed since the last call, and how many these are; or 0, 0."""
        while self._reached + 1 in self._single:
            self._reached += 1
            self._single.remove(self._reached)
        count = self._reached - self._settled
        if not count:
            return 0, 0
        if self._single:
            self._single = {number for number in self._single if number > self._reached}
        self._settled = self._reached
        tag, left = 0, count
        while left:
            run = self._runs[0]
            step = min(left, run[1])
            tag = run[0] + step - 1
            left -= step
            run[0] += step
            run[1] -= step
            if not run[1]:
                self._runs.popleft()
        return tag, count
