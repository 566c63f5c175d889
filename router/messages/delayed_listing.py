"""Delayed messages of one vhost, to be looked at, cancelled and published early one by one.

They wait with those of all vhosts in the order of their times. So a look reads a bounded number of messages,
whichever vhost they are of, and says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.log_core.delayed.listing import Listed, list_waiting
from penstock.router.messages.delayed import front

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.log_core.delayed._delays import Key
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["LOOKED_AT", "DelayedMessage", "Looked", "cancel_one", "look", "may_cancel", "publish_one"]

LOOKED_AT: Final = 500
"""Messages of all vhosts that a look reads at most."""
_BYTES: Final = 16 * 1024 * 1024
"""Their bytes, about."""


class DelayedMessage(NamedTuple):
    """A message that waits."""

    due_ms: int
    place: int
    """The position where it was scheduled."""
    record: Record
    size: int
    """Bytes of its body."""


class Looked(NamedTuple):
    """The messages that a look found."""

    messages: Sequence[DelayedMessage]
    next: Key | None
    """To go on behind; None: there are no more."""


def look(
    broker: Broker, vhost: Vhost, behind: Key, most: int, told: Callable[[Looked | None], object]
) -> None:
    """Look for the next delayed messages of a vhost, in the order of their times.

    Args:
        behind: `listing.BEFORE_ALL`, or `next` of the look before.
        most: Messages to read, of all vhosts, 1 to `LOOKED_AT`.
        told: Gets them on the loop; None: the disk does not answer.

    """

    def listed(found: Listed | None) -> None:
        if found is None:
            told(None)
            return
        messages = []
        for (due_ms, place), record in found.records:
            size, _, of, _ = front(record)
            if of == vhost.name:
                messages.append(DelayedMessage(due_ms, place, record, len(record.body) - 4 - size))
        told(Looked(messages, found.next))

    list_waiting(broker.log, behind, most, _BYTES, listed)


def cancel_one(
    broker: Broker,
    vhost: Vhost,
    identity: Identity,
    due_ms: int,
    place: int,
    told: Callable[[bool | None], object],
) -> None:
    """Have a delayed message of the vhost never come.

    `told` gets False when no such message waits that the user may publish, None when the disk does not
    answer.
    """
    broker.delayed.cancel_where(due_ms, place, partial(may_cancel, vhost, identity), told)


def publish_one(
    broker: Broker,
    vhost: Vhost,
    identity: Identity,
    due_ms: int,
    place: int,
    told: Callable[[bool | None], object],
) -> None:
    """Publish a delayed message of the vhost now; `told` as of `cancel_one`."""
    broker.delayed.publish_where(due_ms, place, partial(may_cancel, vhost, identity), told)


def may_cancel(vhost: Vhost, identity: Identity, record: Record) -> bool:
    """Whether a delayed message is of the vhost, and the user may publish as it was published."""
    _, _, of, starts = front(record)
    keys = {*starts, record.key}
    return of == vhost.name and all(vhost.publishing.may(identity, record.enc, key) for key in keys)
