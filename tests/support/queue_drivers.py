"""Brokers to compare with a model of queues: penstock in one process with a simulated clock, or any
broker that pika reaches, in real time. Both have one queue, `q`, and its dead-letter queue."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, Protocol

import pika
from pamqp import commands
from pamqp.commands import Basic, Confirm
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from tests.reference.queue_model import Arguments
from tests.support.amqp_session import World
from tests.support.limits import LIMIT_S

Got = tuple[int, bool, str, Any]
"""(number, redelivered, why it died, what settles it)"""

TTL_S = 3600
REAL_TTL_S = 1.0


class Driver(Protocol):
    """A broker."""

    def spent_s(self) -> float:
        """A clock that says how long one has waited for what was promised, `timeout_s` of it at most."""

    timeout_s: float
    can_restart: bool

    def declare(self, arguments: Arguments) -> None: ...
    def publish(self, number: int, priority: int) -> bool: ...
    def get(self, dead: bool) -> Got | None: ...
    def settle(self, handle: Any, how: str) -> None:
        """`how`: "ack", "requeue" or "reject"."""

    def consume(self, name: str) -> None: ...
    def cancel(self, name: str) -> None: ...
    def purge(self) -> int: ...
    def counts(self) -> tuple[int, int]:
        """Ready in the queue, and in that of its dead letters."""

    def deliveries(self) -> dict[str, list[Got]]:
        """All messages that each consumer got."""

    def wait(self) -> None: ...
    def restart(self) -> None: ...
    def close(self) -> None: ...


def table(arguments: Arguments, dead: str, ttl_ms: int) -> dict[str, Any]:
    """The arguments as a client sends them."""
    found: dict[str, Any] = {"x-overflow": arguments.overflow}
    if arguments.ttl:
        found["x-message-ttl"] = ttl_ms
    if arguments.max_length is not None:
        found["x-max-length"] = arguments.max_length
    if arguments.priority_max:
        found["x-max-priority"] = arguments.priority_max
    if arguments.single_active:
        found["x-single-active-consumer"] = True
    if arguments.dead_letters:
        found |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    return found


def why(headers: dict[str, Any] | None) -> str:
    """The reason of the first death."""
    return str((headers or {}).get("x-first-death-reason", ""))


class Inside:
    """penstock without sockets; the time is the test's."""

    can_restart = True
    timeout_s = 10.0

    def __init__(self, folder: Path) -> None:
        self._world = World(folder)
        self._begin()

    def spent_s(self) -> float:
        # The processor's: a machine that stands still would make a history fail once and never again.
        return time.process_time()

    def _begin(self) -> None:
        self._client, self._other = self._world.client(), self._world.client()
        self._client.call(1, Confirm.Select(), Confirm.SelectOk)
        self._other.call(1, Basic.Qos(prefetch_count=1), Basic.QosOk)
        self._got: dict[str, list[Got]] = {}

    def declare(self, arguments: Arguments) -> None:
        for name, args in (("q", table(arguments, "dead", TTL_S * 1000)), ("dead", {})):
            declare = commands.Queue.Declare(queue=name, durable=True, arguments=args)
            self._client.call(1, declare, commands.Queue.DeclareOk)

    def publish(self, number: int, priority: int) -> bool:
        self._client.publish("", "q", b"%d" % number, priority=priority, delivery_mode=2)
        self._client.read()
        (answer,) = (frame for _, frame in self._client.frames)
        self._client.frames.clear()
        return isinstance(answer, Basic.Ack)

    def get(self, dead: bool) -> Got | None:
        self._client.send(1, Basic.Get(queue="dead" if dead else "q"))
        deadline = self.spent_s() + self.timeout_s
        while not self._client.frames:  # it may come from the disk
            assert self.spent_s() < deadline
            self._world.tick.schedule()
            self._client.read()
        if isinstance(self._client.frames[0][1], Basic.GetEmpty):
            self._client.frames.clear()
            return None
        method, header, body = self._client.message(1, Basic.GetOk)
        handle = (self._client, method.delivery_tag)
        return int(body), bool(method.redelivered), why(header.properties.headers), handle

    def settle(self, handle: Any, how: str) -> None:
        client, tag = handle
        client.send(1, Basic.Ack(tag) if how == "ack" else Basic.Reject(tag, requeue=how == "requeue"))

    def consume(self, name: str) -> None:
        self._got[name] = []
        self._other.send(1, Basic.Consume(queue="q", consumer_tag=name))

    def cancel(self, name: str) -> None:
        self._other.send(1, Basic.Cancel(name))

    def purge(self) -> int:
        return (
            self._client.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk).message_count or 0
        )

    def counts(self) -> tuple[int, int]:
        ready = []
        for name in ("q", "dead"):
            declare = commands.Queue.Declare(queue=name, passive=True)
            ready.append(self._client.call(1, declare, commands.Queue.DeclareOk).message_count or 0)
        return ready[0], ready[1]

    def deliveries(self) -> dict[str, list[Got]]:
        self._world.tick.schedule()
        self._other.read()
        while self._other.frames:
            if not isinstance(self._other.frames[0][1], Basic.Deliver):
                self._other.frames.pop(0)
                continue
            method, header, body = self._other.message(1, Basic.Deliver)
            handle = (self._other, method.delivery_tag)
            assert method.consumer_tag is not None
            self._got[method.consumer_tag].append(
                (int(body), bool(method.redelivered), why(header.properties.headers), handle)
            )
        return self._got

    def wait(self) -> None:
        self._world.skew_s += 2 * TTL_S
        self._world.loop.advance(2 * TTL_S)

    def restart(self) -> None:
        self._world.restart()
        self._begin()

    def close(self) -> None:
        self._world.close()


class Outside:
    """A broker behind a port, through pika."""

    can_restart = False
    timeout_s = LIMIT_S

    def __init__(self, port: int) -> None:
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._other = self._connection.channel()
        self._other.basic_qos(prefetch_count=1)
        self._names = tuple(f"{name}-{secrets.token_hex(6)}" for name in ("q", "dead"))
        self._got: dict[str, list[Got]] = {}

    def spent_s(self) -> float:
        return time.monotonic()

    def declare(self, arguments: Arguments) -> None:
        args = table(arguments, self._names[1], int(REAL_TTL_S * 1000))
        for name, one in zip(self._names, (args, {}), strict=True):
            self._channel.queue_declare(name, durable=True, arguments=one)

    def publish(self, number: int, priority: int) -> bool:
        properties = pika.BasicProperties(priority=priority, delivery_mode=2)
        try:
            self._channel.basic_publish("", self._names[0], b"%d" % number, properties)
        except NackError:
            return False
        return True

    def get(self, dead: bool) -> Got | None:
        method, properties, body = self._channel.basic_get(self._names[dead])
        if method is None:
            return None
        assert properties is not None and body is not None
        handle = (self._channel, method.delivery_tag)
        return int(body), method.redelivered, why(properties.headers), handle

    def settle(self, handle: Any, how: str) -> None:
        channel, tag = handle
        if how == "ack":
            channel.basic_ack(tag)
        else:
            channel.basic_reject(tag, requeue=how == "requeue")

    def consume(self, name: str) -> None:
        self._got[name] = []

        def on_message(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
            handle = (channel, method.delivery_tag)
            self._got[name].append((int(body), method.redelivered, why(properties.headers), handle))

        self._other.basic_consume(self._names[0], on_message, consumer_tag=name)

    def cancel(self, name: str) -> None:
        self._other.basic_cancel(name)

    def purge(self) -> int:
        count: int = self._channel.queue_purge(self._names[0]).method.message_count
        return count

    def counts(self) -> tuple[int, int]:
        ready = [self._channel.queue_declare(name, passive=True).method.message_count for name in self._names]
        return ready[0], ready[1]

    def deliveries(self) -> dict[str, list[Got]]:
        self._connection.process_data_events(0.005)
        return self._got

    def wait(self) -> None:
        self._connection.sleep(REAL_TTL_S * 1.3)

    def restart(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for name in self._names:
            self._channel.queue_delete(name)
        self._connection.close()
