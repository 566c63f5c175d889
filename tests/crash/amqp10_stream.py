"""A stream over AMQP 1.0: python-qpid-proton publishes and consumes, and comes back after each crash."""

from __future__ import annotations

import time
from typing import Any

import pika
from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption

from tests.crash.streams import RECONNECT_PAUSE_S, Stream

__all__ = ["Amqp10Stream"]

_LOOK_S = 0.01
_CREDIT = 200


class Amqp10Stream(Stream):
    """Unsettled durable messages through one durable queue."""

    def __init__(self, name: str, port: int, *, window: int = 200, second: bool = False) -> None:
        """`second`: the consumer settles after the broker, and gets nothing again that was settled so."""
        super().__init__(name, port, window=window)
        self.second = second
        self.ended: set[int] = set()
        """Messages that the broker settled."""
        self.unsettled: dict[Any, int] = {}
        """Delivery -> sequence, on the present connection."""
        self.url = f"amqp://guest:guest@127.0.0.1:{port}"

    @property
    def in_flight(self) -> int:
        return len(self.unsettled)

    @property
    def running(self) -> bool:
        """Whether the consumer goes on."""
        return self._running

    @property
    def publishing(self) -> bool:
        """Whether the publisher goes on."""
        return self._publishing

    def _publish(self) -> None:
        while self._publishing:
            self.unsettled = {}
            Container(_Publisher(self)).run()
            time.sleep(RECONNECT_PAUSE_S)

    def _consume(self) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port)) as connection:
            connection.channel().queue_declare(self.name, durable=True)
        while self._running:
            Container(_Consumer(self)).run()
            time.sleep(RECONNECT_PAUSE_S)

    # Called by the handlers

    def next_message(self) -> tuple[int, bytes] | None:
        """The next message; None: not now."""
        return self._take() if self._may_send(len(self.unsettled)) else None

    def acked(self, sequence: int) -> None:
        """The broker accepted it."""
        self._acked(sequence)

    def refused(self, sequence: int) -> None:
        """The broker did not."""
        self.history.refused.add(sequence)

    def received(self, body: bytes, flagged: bool) -> int | None:
        """A message came, and is accepted; its number."""
        sequence = self._received(body, flagged=flagged)
        if sequence is not None:
            self.history.settled[sequence] = time.monotonic()
            if sequence in self.ended:
                self.history.unexpected.append(f"{sequence} came again after the broker settled it")
        return sequence

    def settled(self, sequence: int) -> None:
        """The broker settled it, as the consumer wanted."""
        self.ended.add(sequence)

    def consuming(self) -> None:
        """The consumer is there."""
        self._ready.set()

    def lost(self) -> None:
        """The queue that should have survived is gone."""
        self._session_lost()


class _Client(MessagingHandler):
    """One connection, which ends its container."""

    def __init__(self, stream: Amqp10Stream, **options: Any) -> None:
        super().__init__(**options)
        self.stream = stream
        self.connection: Any = None
        self.over = False

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.stream.url, reconnect=False, allowed_mechs="PLAIN")
        self.open(event.container)
        event.container.schedule(_LOOK_S, self)

    def open(self, container: Any) -> None:
        raise NotImplementedError

    def wants_on(self) -> bool:
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:
        if self.over:
            return
        if self.wants_on():
            event.container.schedule(_LOOK_S, self)
        else:
            self.over = True
            self.connection.close()

    def on_transport_error(self, _: Any) -> None:
        self.over = True

    def on_disconnected(self, _: Any) -> None:
        self.over = True

    def on_link_error(self, _: Any) -> None:
        self.stream.lost()
        self.over = True
        self.connection.close()


class _Publisher(_Client):
    def open(self, container: Any) -> None:
        self.sender = container.create_sender(self.connection, f"/queues/{self.stream.name}")

    def wants_on(self) -> bool:
        self.send()
        return self.stream.publishing or bool(self.stream.unsettled)

    def on_sendable(self, _: Any) -> None:
        self.send()

    def send(self) -> None:
        while self.sender.credit > 0 and (taken := self.stream.next_message()) is not None:
            sequence, body = taken
            delivery = self.sender.send(Message(body=body, durable=True, inferred=True))
            self.stream.unsettled[delivery] = sequence

    def on_accepted(self, event: Any) -> None:
        self.stream.acked(self.stream.unsettled.pop(event.delivery))

    def on_rejected(self, event: Any) -> None:
        self.stream.refused(self.stream.unsettled.pop(event.delivery))

    def on_released(self, event: Any) -> None:
        self.stream.refused(self.stream.unsettled.pop(event.delivery))


class _Consumer(_Client):
    def __init__(self, stream: Amqp10Stream) -> None:
        super().__init__(stream, prefetch=_CREDIT, auto_accept=False)
        self.accepted: dict[Any, int] = {}
        """Deliveries that the broker has not settled yet, and their numbers."""

    def open(self, container: Any) -> None:
        options = [_Second()] if self.stream.second else []
        container.create_receiver(self.connection, f"/queues/{self.stream.name}", options=options)

    def wants_on(self) -> bool:
        return self.stream.running

    def on_link_opened(self, _: Any) -> None:
        self.stream.consuming()

    def on_message(self, event: Any) -> None:
        message = event.message
        flagged = bool(message.delivery_count) or not message.first_acquirer
        if self.stream.second:
            event.delivery.update(Delivery.ACCEPTED)
        else:
            self.accept(event.delivery)
        sequence = self.stream.received(bytes(message.body), flagged)
        if self.stream.second and sequence is not None:
            self.accepted[event.delivery] = sequence

    def on_settled(self, event: Any) -> None:
        sequence = self.accepted.pop(event.delivery, None)
        if sequence is not None:
            self.stream.settled(sequence)


class _Second(ReceiverOption):
    def apply(self, link: Any) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND
