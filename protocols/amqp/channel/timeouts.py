"""Consumer timeouts: how long a channel may keep deliveries unacknowledged (`x-consumer-timeout`, in ms).

Nothing is noted per delivery: once a second it is noted which tags were out by then, so a channel is closed
at most that much too late (and a hundredth of the timeout), never too early.

Source: RabbitMQ's rabbit_channel, evaluate_consumer_timeout.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp.codec.errors import soft

if TYPE_CHECKING:
    from penstock.protocols.amqp.channel.channel import Channel
    from penstock.protocols.amqp.codec._channel import Channel as Core

__all__ = ["ARGUMENT", "Timeouts"]

ARGUMENT: Final = "x-consumer-timeout"
_MARKS: Final = 100


class Timeouts:
    """Of one channel."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        """(time, tag): every tag below was delivered by then; both rise."""

    def look(self, channel: Channel, now: float) -> None:
        """Close its channel when something has been out for too long; `now` in seconds on any one clock."""
        core, marks = channel.core, self._marks
        while marks and marks[0][1] <= core.first_tag:
            marks.popleft()
        timeouts = _timeouts(core, core.next_tag)
        if not timeouts or core.closing:
            marks.clear()
            return
        if not marks or (core.next_tag > marks[-1][1] and now - marks[-1][0] > min(timeouts) / 1000 / _MARKS):
            marks.append((now, core.next_tag))
        for timeout_ms in timeouts:
            before = max((tag for at, tag in marks if at <= now - timeout_ms / 1000), default=0)
            if timeout_ms in _timeouts(core, before):
                text = (
                    f"delivery acknowledgement on channel {channel.number} timed out. "
                    f"Timeout value used: {timeout_ms} ms. This timeout value can be configured, "
                    "see consumers doc guide to learn more"
                )
                channel.fail(soft(406, text), (0, 0))
                return


def _timeouts(core: Core, before: int) -> set[int]:
    """The timeouts of the queues whose deliveries are out with tags below `before`."""
    found = set()
    for queue in core.queues_before(before):
        timeout_ms = queue.data.effective.get(ARGUMENT) if queue.data is not None else None
        if isinstance(timeout_ms, int) and timeout_ms > 0:
            found.add(timeout_ms)
    return found
