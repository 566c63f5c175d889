"""A link by which the client receives messages of no queue: settled, in their order, within its credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.protocols.amqp10.codec.performatives import Attach, Flow, Source, Target

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["SettledSender"]

_SETTLED = 1


class SettledSender:
    """See the module."""

    def __init__(self, channel: Channel, attach: Attach, source: Source) -> None:
        self.channel = channel
        self.name = attach.name
        self.handle = attach.handle
        self.held = 0
        """Bytes of messages that have no credit yet."""
        self._credit = 0
        self._sent = 0
        self._over = False
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        """Messages that have no credit, and what is to be called when they left."""
        self.answer = Attach(
            attach.name,
            attach.handle,
            False,
            _SETTLED,
            0,
            source,
            attach.target if isinstance(attach.target, Target) else Target(),
            initial_delivery_count=0,
            properties=attach.properties,
        )

    def start(self) -> None:
        """The attach was answered."""

    def flow(self, flow: Flow) -> None:
        """The client gives credit."""
        if flow.link_credit is not None:
            base = self._sent if flow.delivery_count is None else flow.delivery_count
            credit = (base + flow.link_credit - self._sent) & 0xFFFFFFFF
            self._credit = credit if credit < 2**31 else 0
        self.wake()
        if flow.drain or flow.echo:
            if flow.drain:
                self._sent, self._credit = (self._sent + self._credit) & 0xFFFFFFFF, 0
            self.channel.send_flow(
                handle=self.handle,
                delivery_count=self._sent,
                link_credit=self._credit,
                drain=flow.drain,
            )

    def add(self, payload: bytes, left: Callable[[], None] = lambda: None) -> None:
        """Send a message as soon as there is credit, and then call `left`."""
        if self._over:
            left()
            return
        self._waiting.append((payload, left))
        self.held += len(payload)
        self.wake()

    def wake(self) -> None:
        """There may be room again."""
        while self._waiting and self._credit and self.channel.may_send:
            payload, left = self._waiting.popleft()
            self.held -= len(payload)
            self._credit -= 1
            self._sent = (self._sent + 1) & 0xFFFFFFFF
            self.channel.send_message(self.handle, payload)
            left()

    def detached(self) -> None:
        """The link is over; messages that wait go with it."""
        self._over = True
        while self._waiting:
            self._waiting.popleft()[1]()
