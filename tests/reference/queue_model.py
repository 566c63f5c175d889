"""One queue with all its arguments, and the queue its dead letters go to, as plainly as it can be said.

Messages are numbered in the order of publishing. Time only passes in `wait`, which is longer than the
queue's time to live. After every step `dispatch` says what a waiting consumer gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Arguments:
    """The arguments of the queue's declaration."""

    ttl: bool = False
    max_length: int | None = None
    overflow: str = "drop-head"
    priority_max: int = 0
    single_active: bool = False
    dead_letters: bool = False


@dataclass
class Message:
    """In the queue, or out of it."""

    number: int
    priority: int
    expired: bool = False
    redelivered: bool = False

    @property
    def order(self) -> tuple[int, int]:
        return -self.priority, self.number


@dataclass
class QueueModel:
    """See the module. Consumers are named; each has room for one message."""

    arguments: Arguments
    ready: list[Message] = field(default_factory=list)
    out: dict[int, Message] = field(default_factory=dict)
    dead: list[tuple[int, str]] = field(default_factory=list)
    """(number, why it left) of what lies in the other queue."""
    consumers: list[str] = field(default_factory=list)
    holding: dict[str, int] = field(default_factory=dict)
    """The number of unsettled messages of each consumer, including cancelled ones."""
    got: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    """(number, redelivered) of what each consumer ever got."""

    def publish(self, number: int, priority: int) -> bool:
        """Whether it is accepted."""
        most = self.arguments.max_length
        if self.arguments.overflow != "drop-head" and most is not None and len(self.ready) >= most:
            if self.arguments.overflow == "reject-publish-dlx":
                self._bury(Message(number, priority), "maxlen")
            return False
        self._put(Message(number, min(priority, self.arguments.priority_max)))
        return True

    def get(self) -> Message | None:
        if not self.ready:
            return None
        message = self.ready.pop(0)
        self.out[message.number] = message
        return message

    def get_dead(self) -> tuple[int, str] | None:
        return self.dead.pop(0) if self.dead else None

    def ack(self, number: int) -> None:
        self._settle(number)
        self.dispatch()

    def reject(self, number: int) -> None:
        self._bury(self._settle(number), "rejected")
        self.dispatch()

    def requeue(self, number: int) -> None:
        message = self._settle(number)
        message.redelivered = True
        if message.expired:
            self._bury(message, "expired")
        else:
            self._insert(message)  # it counts before anybody gets the next one, as in RabbitMQ
            self._shed()
        self.dispatch()

    def purge(self) -> int:
        n = len(self.ready)
        self.ready.clear()
        return n

    def wait(self) -> None:
        if not self.arguments.ttl:
            return
        for message in self.out.values():
            message.expired = True
        ready, self.ready = self.ready, []
        for message in ready:
            self._bury(message, "expired")

    def consume(self, name: str) -> None:
        self.consumers.append(name)
        self.got[name] = []
        self.dispatch()

    def cancel(self, name: str) -> None:
        """The consumer's unsettled messages stay unsettled."""
        self.consumers.remove(name)
        self.dispatch()

    def restart(self) -> None:
        """A clean one: what was out comes back, consumers are gone."""
        self.consumers.clear()
        self.holding.clear()
        for number in sorted(self.out):
            self.requeue(number)

    def dispatch(self) -> None:
        """The active consumer gets the next message when it has room."""
        if self.consumers and self.ready and self.consumers[0] not in self.holding:
            message = self.ready.pop(0)
            self.out[message.number] = message
            self.holding[self.consumers[0]] = message.number
            self.got[self.consumers[0]].append((message.number, message.redelivered))

    def holding_of(self, number: int) -> bool:
        """Whether a consumer holds it."""
        return number in self.holding.values()

    def _settle(self, number: int) -> Message:
        self.holding = {name: held for name, held in self.holding.items() if held != number}
        return self.out.pop(number)

    def _insert(self, message: Message) -> None:
        self.ready.append(message)
        self.ready.sort(key=lambda other: other.order)

    def _put(self, message: Message) -> None:
        self._insert(message)
        self.dispatch()
        self._shed()

    def _shed(self) -> None:
        """Drop from the head as many as are too many."""
        if self.arguments.overflow == "drop-head" and self.arguments.max_length is not None:
            while len(self.ready) > self.arguments.max_length:
                self._bury(self.ready.pop(0), "maxlen")

    def _bury(self, message: Message, reason: str) -> None:
        if self.arguments.dead_letters:
            self.dead.append((message.number, reason))
