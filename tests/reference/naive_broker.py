"""A broker that anybody can see is right: a list per queue, every binding tried for every message.

Each queue keeps its own copies. A message has one number for the whole broker, in order of publishing; what
is given back goes to its place by that number. Durable queues, sessions and bindings, and persistent
messages in them, outlive a restart; what was out comes back with the redelivered flag. After a crash nobody
knows what had been delivered, so everything that comes back has it.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from tests.reference.topics import dotted_matches, slashed_matches


@dataclass
class Message:
    """A message in one queue."""

    number: int
    persistent: bool
    redelivered: bool = False


@dataclass
class NaiveQueue:
    """A queue, or an MQTT session."""

    durable: bool
    ready: list[Message] = field(default_factory=list)
    out: dict[int, Message] = field(default_factory=dict)

    def put(self, message: Message) -> None:
        bisect.insort(self.ready, message, key=lambda other: other.number)

    def take(self, n: int) -> list[Message]:
        taken, self.ready = self.ready[:n], self.ready[n:]
        self.out.update((message.number, message) for message in taken)
        return [Message(m.number, m.persistent, m.redelivered) for m in taken]

    def settle(self, number: int) -> None:
        del self.out[number]

    def requeue(self, number: int) -> None:
        message = self.out.pop(number)
        message.redelivered = True
        self.put(message)

    def restart(self, *, clean: bool) -> None:
        for number in list(self.out):
            self.requeue(number)
        self.ready = [message for message in self.ready if message.persistent]
        for message in self.ready:
            message.redelivered |= not clean


@dataclass(frozen=True)
class NaiveBinding:
    """From an exchange to a queue; `kind` is the exchange's type, or "session" for a topic filter."""

    exchange: str
    kind: str
    pattern: str
    queue: str

    def matches(self, key: str) -> bool:
        match self.kind:
            case "fanout":
                return True
            case "topic":
                return dotted_matches(self.pattern.encode(), key.encode())
            case "session":
                return slashed_matches(self.pattern.encode(), key.replace(".", "/").encode())
            case _:
                return self.pattern == key


class NaiveBroker:
    """Exchanges are what bindings say they are; the default exchange binds each queue by its name."""

    def __init__(self) -> None:
        self.queues: dict[str, NaiveQueue] = {}
        self.bindings: set[NaiveBinding] = set()

    def declare(self, name: str, durable: bool) -> None:
        self.queues[name] = NaiveQueue(durable)
        self.bindings.add(NaiveBinding("", "direct", name, name))

    def declare_session(self, name: str, durable: bool) -> None:
        self.queues[name] = NaiveQueue(durable)

    def delete(self, name: str) -> None:
        del self.queues[name]
        self.bindings = {binding for binding in self.bindings if binding.queue != name}

    def publish(self, exchange: str, key: str, number: int, persistent: bool) -> bool:
        hit = {b.queue for b in self.bindings if b.exchange == exchange and b.matches(key)}
        for name in hit:
            self.queues[name].put(Message(number, persistent))
        return bool(hit)

    def purge(self, name: str) -> int:
        n = len(self.queues[name].ready)
        self.queues[name].ready.clear()
        return n

    def restart(self, *, clean: bool) -> None:
        for name in [name for name, queue in self.queues.items() if not queue.durable]:
            self.delete(name)
        for queue in self.queues.values():
            queue.restart(clean=clean)
