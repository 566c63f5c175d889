"""An AMQP connection to send methods one by one; it keeps what is delivered while it waits for a reply."""

from __future__ import annotations

import time

from pamqp.commands import Basic, Channel, Confirm, Queue

from tests.support.amqp_client import Connection, Message

__all__ = ["WAIT_S", "Peer"]

WAIT_S = 60.0
PUBLISHING = 9
"""The channel of `Peer.put`."""


class Peer(Connection):
    """A connection with channel 1 open that keeps what is delivered while it waits for something else."""

    def __init__(self, port: int) -> None:
        super().__init__(port, timeout_s=WAIT_S)
        self.delivered: list[Message] = []
        self._published = 0
        self.channel()

    def read(self) -> tuple[int, object]:
        while True:
            channel, frame = super().read()
            if not isinstance(frame, Basic.Deliver):
                return channel, frame
            _, header = super().read()
            size, body = header.body_size, b""  # type: ignore[attr-defined]
            while len(body) < size:
                body += super().read()[1].value  # type: ignore[attr-defined]
            self.delivered.append(Message(frame, header, body))  # type: ignore[arg-type]

    def queue(self, name: str = "", **options: bool) -> str:
        """Declare one of this connection's own."""
        declared = self.call(1, Queue.Declare(queue=name, **{"exclusive": True, **options}))
        assert isinstance(declared, Queue.DeclareOk)
        return declared.queue

    def put(self, queue: str, *bodies: str) -> None:
        """Publish by the default exchange; they are in the queue when this returns."""
        if not self._published:
            self.channel(PUBLISHING)
            self.call(PUBLISHING, Confirm.Select())
        for body in bodies:
            self.publish(PUBLISHING, "", queue, body.encode())
        self._published += len(bodies)
        confirmed = 0
        while confirmed < self._published:
            _, frame = self.read()
            assert isinstance(frame, Basic.Ack)
            confirmed = frame.delivery_tag

    def ready(self, queue: str, channel: int = 1) -> int:
        """How many messages wait."""
        declared = self.call(channel, Queue.Declare(queue=queue, passive=True))
        assert isinstance(declared, Queue.DeclareOk)
        return declared.message_count

    def until_ready(self, queue: str, count: int, channel: int = 1) -> None:
        """Wait until so many messages wait."""
        end = time.monotonic() + WAIT_S
        while (found := self.ready(queue, channel)) != count:
            assert time.monotonic() < end, f"{found} messages wait, not {count}"

    def take(self, count: int) -> list[str]:
        """The bodies of the next deliveries."""
        while len(self.delivered) < count:
            # A method that always has a reply lets deliveries through.
            self.call(1, Channel.Flow(True))
        taken, self.delivered = self.delivered[:count], self.delivered[count:]
        self.last = taken
        return [message.body.decode() for message in taken]

    def consume(self, queue: str, tag: str = "", channel: int = 1, **options: bool) -> None:
        """Consume with acknowledgements."""
        self.call(channel, Basic.Consume(queue=queue, consumer_tag=tag, **options))

    def qos(self, count: int, *, channel: int = 1, shared: bool = False) -> None:
        """basic.qos."""
        self.call(channel, Basic.Qos(0, count, shared))

    def get(self, queue: str, channel: int = 1) -> tuple[str, bool, int] | None:
        """basic.get: body, redelivered and delivery tag, or None."""
        self.send(channel, Basic.Get(queue=queue))
        _, frame = self.read()
        if isinstance(frame, Basic.GetEmpty):
            return None
        assert isinstance(frame, Basic.GetOk)
        self.read()
        _, body = self.read()
        return body.value.decode(), frame.redelivered, frame.delivery_tag  # type: ignore[attr-defined]
