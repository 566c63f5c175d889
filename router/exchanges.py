"""Exchanges: what each type makes of a key, and the slots behind the patterns.

A `Slot` is one distinct pattern of one exchange: (exchange, syntax, pattern) or, in a headers exchange,
(exchange, table). However many queues are bound by it, it has one feed, so a publish costs the number of
slots it matches. Exchanges bound by it stand in the same slot. A slot is made by its first binding and goes
with its last one.

    type      finds slots by
    direct    the routing key, equal
    fanout    nothing: one slot
    topic     two tries: dotted patterns over the routing key, slashed filters over the topic
    headers   each table against the headers of each message
    default   the queue's name: the slots are made by the vhost, at the first message

A topic exchange sees both names of a subject: an MQTT-born one has its topic and the routing key that stands
for it, an AMQP-born one its routing key and the topic that stands for that.

Knows no queue beyond its place in a slot, and no protocol. Source: amqp091:3.1.3; RabbitMQ's
rabbit_exchange_type_*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from penstock.router._routes import Scope, Topology
from penstock.router.arguments import Arguments, encode_table, same_value
from penstock.router.errors import InvalidMatch
from penstock.router.topics import DottedTrie, SlashedTrie, literal_prefix

if TYPE_CHECKING:
    from penstock.log_core._feed import Feed
    from penstock.router.entries import Binding, QueueEntry

__all__ = ["MQTT_EXCHANGE", "PREDECLARED", "TYPES", "Exchange", "Slot", "Subject", "Syntax"]

Syntax = Literal["direct", "fanout", "dotted", "slashed", "headers"]

TYPES: Final = ("direct", "fanout", "topic", "headers")

PREDECLARED: Final = {
    "": ("direct", False),
    "amq.direct": ("direct", False),
    "amq.fanout": ("fanout", False),
    "amq.topic": ("topic", False),
    "amq.headers": ("headers", False),
    "amq.match": ("headers", False),
    "amq.rabbitmq.trace": ("topic", True),
}
"""The exchanges every vhost has: name -> (type, internal)."""

MQTT_EXCHANGE: Final = "amq.topic"
"""Where MQTT publishes to and subscribes on, in each vhost."""

_SYNTAX: Final[Mapping[str, Syntax]] = {
    "direct": "direct",
    "fanout": "fanout",
    "topic": "dotted",
    "headers": "headers",
}

_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


class Subject:
    """What a message is about: its routing key, its topic, and its headers when they are at hand."""

    __slots__ = ("headers", "key", "topic")

    def __init__(self, key: bytes, topic: bytes, headers: Arguments | None = None) -> None:
        self.key = key
        self.topic = topic
        self.headers = headers
        """None: not at hand; a headers exchange then says that it needs them."""


class Slot:
    """One distinct pattern of an exchange, its feed, and who is bound by it."""

    __slots__ = ("durable_members", "exchange", "exchanges", "feed", "members", "pattern", "syntax", "table")

    def __init__(
        self, exchange: Exchange, syntax: Syntax, pattern: bytes, table: Arguments | None = None
    ) -> None:
        self.exchange = exchange
        self.syntax = syntax
        self.pattern = pattern
        """The pattern as bytes; in a headers exchange the encoding of the table it matches."""
        self.table = table
        """What a headers exchange matches, else None."""
        self.feed: Feed | None = None
        """Where its records go; None while no queue is bound by it."""
        self.members: dict[QueueEntry, int] = {}
        """How many bindings each bound queue has by this pattern."""
        self.exchanges: dict[Exchange, int] = {}
        """How many bindings each bound exchange has by this pattern."""
        self.durable_members = 0
        """How many of the members keep it over a restart."""

    def touch(self) -> None:
        """Where its messages go has changed: the routes of the keys it can match are resolved again."""
        scope = self.exchange.scope
        if self.syntax == "direct":
            scope.touch_exact(self.pattern)
        elif self.syntax in ("dotted", "slashed"):
            separator, wildcards = (b".", (b"*", b"#")) if self.syntax == "dotted" else (b"/", (b"+", b"#"))
            prefix, literal = literal_prefix(self.pattern, separator, wildcards)
            if literal:
                scope.touch_exact(self.pattern)
            else:
                scope.touch_below(prefix)
        else:
            scope.touch_all()


class Exchange:
    """A named place to publish to. Properties and arguments as declared; slots by pattern."""

    def __init__(
        self,
        name: str,
        type_: str,
        topology: Topology,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        self.name = name
        self.type = type_
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: Arguments = dict(arguments or {})
        # The default exchange and amq.topic see queues and sessions come and go all the time: finer cells.
        self.scope = Scope(topology, 4096 if name in ("", MQTT_EXCHANGE) else 256)
        self.lsn = 0
        """Where its declaration is in the log; 0 when it is not durable."""
        self.bindings: dict[tuple[object, ...], Binding] = {}
        """The bindings whose source it is, by their identity."""
        self.incoming: dict[Binding, None] = {}
        """The bindings whose destination it is."""
        self._literal: dict[bytes, Slot] = {}
        self._dotted: DottedTrie[Slot] = DottedTrie()
        self._slashed: SlashedTrie[Slot] = SlashedTrie()

    @property
    def alternate(self) -> str | None:
        """The exchange that takes what finds no destination here."""
        name = self.arguments.get("alternate-exchange")
        return name if isinstance(name, str) else None

    @property
    def needs_headers(self) -> bool:
        """Whether a message's headers decide where it goes."""
        return self.type == "headers" and bool(self._literal)

    # Slots

    def slot(self, syntax: Syntax, pattern: bytes, table: Arguments | None = None) -> Slot:
        """The slot of a pattern in one of this type's syntaxes; made when there is none.

        Raises:
            InvalidPattern: a topic pattern with too many words.

        """

        def make() -> Slot:
            return Slot(self, syntax, pattern, table)

        if syntax == "dotted":
            return self._dotted.add(pattern, make)
        if syntax == "slashed":
            return self._slashed.add(pattern, make)
        found = self._literal.get(pattern)
        if found is None:
            found = self._literal[pattern] = make()
        return found

    def slot_of_binding(self, routing_key: bytes, arguments: Arguments) -> Slot:
        """The slot that a binding with this key and these arguments belongs to.

        Raises:
            InvalidMatch: a headers exchange, and an `x-match` it does not know.
            InvalidPattern: see `slot`.

        """
        syntax = _SYNTAX[self.type]
        if syntax == "headers":
            table = {"x-match": "all", **arguments}
            if table["x-match"] not in _MATCHES:
                raise InvalidMatch(table["x-match"])
            return self.slot(syntax, encode_table(table), table)
        return self.slot(syntax, b"" if syntax == "fanout" else routing_key)

    def named_slot(self, name: bytes) -> Slot | None:
        """The slot of exactly this key, for the default exchange."""
        return self._literal.get(name)

    def discard(self, slot: Slot) -> None:
        """Take out a slot that nobody is bound by any more."""
        if slot.syntax == "dotted":
            self._dotted.remove(slot.pattern)
        elif slot.syntax == "slashed":
            self._slashed.remove(slot.pattern)
        else:
            self._literal.pop(slot.pattern, None)

    # Matching

    def match(self, subject: Subject) -> Iterable[Slot]:
        """The slots that match, each once; none in a headers exchange when the headers are not at hand."""
        match self.type:
            case "direct":
                found = self._literal.get(subject.key)
                return () if found is None else (found,)
            case "fanout":
                return self._literal.values()
            case "topic":
                slots = self._dotted.match(subject.key) if len(self._dotted) else []
                if len(self._slashed):
                    slots += self._slashed.match(subject.topic)
                return slots
            case _:
                if subject.headers is None:
                    return ()
                headers = subject.headers
                return [slot for slot in self._literal.values() if _headers_match(slot.table or {}, headers)]

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.type}>"


def _headers_match(table: Arguments, headers: Arguments) -> bool:
    """RabbitMQ's rules: `x-` entries count with -with-x only, a void entry asks for presence only."""
    how = table["x-match"]
    decide: Callable[[Iterable[bool]], bool] = all if how in ("all", "all-with-x") else any
    with_x = how in ("all-with-x", "any-with-x")
    return decide(
        name in headers and (wanted is None or same_value(wanted, headers[name]))
        for name, wanted in table.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    )
