"""Refused numbers of publishers that number single messages: what follows them must wait.

A number that is not above the last kept one is a duplicate (`log_core.producers`, the rule sequence). So
after a number was refused, higher ones are, too, until it comes again. Otherwise it would be taken for a
duplicate. This applies where its publisher knows of the refusal: on the channel, or in the request.
Elsewhere the publisher may leave the number out.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["RefusedNumbers"]

_MOST: Final = 1000


class RefusedNumbers:
    """The lowest such number of each producer; of a thousand producers, those that were refused last."""

    def __init__(self) -> None:
        self._missing: OrderedDict[bytes, int] = OrderedDict()

    def before(self, name: bytes, number: int) -> int | None:
        """The number that must come before this one; None: it may come."""
        missing = self._missing.get(name)
        return missing if missing is not None and number > missing else None

    def refused(self, name: bytes, number: int) -> None:
        """It may come again; higher ones may not before."""
        self._missing[name] = min(number, self._missing.get(name, number))
        self._missing.move_to_end(name)
        if len(self._missing) > _MOST:
            self._missing.popitem(last=False)

    def kept(self, name: bytes, number: int) -> None:
        """It came, now or before."""
        if self._missing.get(name, -1) == number:
            del self._missing[name]
