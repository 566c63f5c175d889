"""Deliveries of a durable subscription that outlive their link, until it is attached again.

    link detached, or lost ──> its deliveries are held, by their tags, for a minute
    disposition in the session that they came in ──> those that it names end with its outcome
    attach with `unsettled` ──> those for which the client has an outcome end with it, and are told of by a
                                resumed transfer; all others go back to the queue, and come as new deliveries
    attach without it, close, or the minute over ──> all go back

Deliveries that the client knows and has no outcome for are not in our answer: a sender may forget them. With
`incomplete-unsettled`, those that the client did not name stay held, and the link gets no new delivery.

Tags begin with a random number of the link, so that no two links of a subscription have the same.

Source: AMQP 1.0 part 2, sections 2.6.3, 2.6.13 and 2.7.3.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.channel._core import HOW_FAILED, end_delivery
from penstock.protocols.amqp10.channel.refusals import SessionError
from penstock.protocols.amqp10.channel.settling import annotate, settle
from penstock.protocols.amqp10.codec.frames import delivery_tag
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Modified,
    Rejected,
    Released,
    composite,
)
from penstock.protocols.amqp10.codec.values import Described

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel
    from penstock.protocols.amqp10.channel.outgoing import OutgoingLink
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Held", "Resuming"]

_HELD_S: Final = 60.0
_MASK: Final = 0xFFFFFFFF
_ATTACH_MAX: Final = 512
"""Bytes of an attach without its unsettled map, roughly."""
_ENTRY: Final = 12
"""Bytes of an entry of that map."""


@dataclass(slots=True)
class Held:
    """Deliveries of a link that is gone."""

    deliveries: dict[bytes, tuple[Cursor, int]]
    """By tag."""
    how: int
    """How those end that are not resumed."""
    numbers: dict[int, bytes]
    """Tags by the numbers of deliveries that their session may still settle."""

    def give_back(self) -> None:
        """None of them is resumed."""
        for cursor, seq in self.take().values():
            end_delivery(cursor, seq, self.how)

    def take(self) -> dict[bytes, tuple[Cursor, int]]:
        """The deliveries, which are held no more."""
        found, self.deliveries, self.numbers = self.deliveries, {}, {}
        return found

    def chosen(self, first: int, last: int) -> list[tuple[Cursor, int]]:
        """Those of the numbers [first, last], which wrap; they are held no more."""
        span = (last - first) & _MASK
        numbers = [number for number in self.numbers if (number - first) & _MASK <= span]
        return [self.deliveries.pop(self.numbers.pop(number)) for number in numbers]


class Resuming:
    """Deliveries that a link of a durable subscription resumes, and those that it leaves for the next one."""

    def __init__(self, channel: Channel, attach: Attach, queue: Queue) -> None:
        self._channel = channel
        self._entry = channel.session.vhost.queues[queue.name]
        self.series = int.from_bytes(os.urandom(4), "big") | 1
        """The number that its tags begin with."""
        self.alone = attach.incomplete_unsettled
        """The link gets no new deliveries."""
        self.outcomes: deque[tuple[bytes, Any]] = deque()
        """Tags and outcomes of deliveries that are to be told of."""
        self.unsettled: dict[bytes, None] | None = None
        """The map of our answer; None: nothing is resumed."""
        self._kept: dict[bytes, tuple[Cursor, int]] = {}
        held, self._entry.held = self._entry.held, None
        if isinstance(held, Held):
            if attach.unsettled is None:
                held.give_back()
            else:
                self._resume(held, attach.unsettled)
            channel.session.schedule()
        elif attach.unsettled is not None:
            self.unsettled = {}

    def _resume(self, held: Held, known: dict[Any, Any]) -> None:
        most = max((self._channel.session.frame_max - _ATTACH_MAX) // _ENTRY, 0)
        for tag, (cursor, seq) in held.take().items():
            outcome = _outcome(known.get(tag))
            if tag not in known and self.alone:
                self._kept[tag] = cursor, seq
                continue
            if outcome is not None and len(self.outcomes) < most:
                with suppress(SessionError):  # there is no room for its annotations: it comes again
                    annotate(cursor, seq, outcome)
                    settle(cursor, seq, outcome)
                    self.outcomes.append((tag, outcome))
                    continue
            end_delivery(cursor, seq, held.how)
        self.unsettled = dict.fromkeys((tag for tag, _ in self.outcomes))

    def suspend(self, link: OutgoingLink) -> None:
        """The link is over: hold its deliveries."""
        session = self._channel.session
        found, numbers = self._kept, {}
        for number, cursor, seq in self._channel.take_out(link):
            numbers[number] = tag = delivery_tag(self.series, number)
            found[tag] = cursor, seq
        self._kept = {}
        if not found:
            return
        chosen = link.has_default or not session.vanished
        held = Held(found, link.default_how if chosen else HOW_FAILED, numbers)
        self._entry.held = held
        self._channel.suspended = [*(self._channel.suspended or ()), held]
        tick = session.broker.tick

        def over() -> None:
            held.give_back()
            tick.schedule()

        tick.after(_HELD_S, over)

    def give_back(self) -> None:
        """The subscription is closed: nothing of it is held."""
        if isinstance(self._entry.held, Held):
            self._entry.held.give_back()
            self._entry.held = None


def _outcome(state: Any) -> Any:
    """The outcome that the client has for a delivery; None: it has none."""
    found = composite(state) if type(state) is Described else None
    return found if isinstance(found, Accepted | Rejected | Released | Modified) else None
