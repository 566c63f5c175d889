"""Exchanges: what each type makes of a key, and the slots behind the patterns.

A `Slot` is one distinct pattern of one exchange: (exchange, syntax, pattern) or, in a headers exchange,
(exchange, table). However many queues are bound by it, it has one feed, so a publish costs the number of
slots it matches. Exchanges bound by it stand in the same slot. A slot is made by its first binding and goes
with its last one. A topic filter that one MQTT session alone has needs no slot: an `Own` stands for it.

    type      finds slots by
    direct    the routing key, equal
    fanout    nothing: one slot
    topic     two tries: dotted patterns over the routing key, slashed filters over the topic
    headers   each table against the headers of each message
    default   the queue's name: the slots are made by the vhost, at the first message; and patterns of tails
    x-delayed-message   as the type in its argument
    x-message-deduplication   as fanout: see `deduplication`
    x-recent-history   as fanout: see `recent_history`
    x-federation-upstream   as fanout
    x-consistent-hash, x-modulus-hash, x-random, x-local-random   one of the slots: see `choosing`

A topic exchange sees both names of a subject: an MQTT-born one has its topic and the routing key that stands
for it, an AMQP-born one its routing key and the topic that stands for that.

Knows no queue beyond its place in a slot, and no protocol. Source: amqp091:3.1.3; RabbitMQ's
rabbit_exchange_type_*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import Arguments, encode_table, same_value
from penstock.router.errors import InvalidMatch
from penstock.router.exchanges.deduplication import DEDUPLICATING_TYPE, Seen
from penstock.router.exchanges.distribution import CHOOSING_TYPES, Chooser, checked_weight
from penstock.router.names import dotted, text, wire
from penstock.router.routes._filters import SlashedTrie
from penstock.router.routes._routes import Scope, Topology
from penstock.router.routes.topics import DottedTrie, literal_prefix

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.router.exchanges.entries import Binding, QueueEntry
    from penstock.router.exchanges.recent_history import Recent

__all__ = [
    "DELAYED_TYPE",
    "INNER_TYPES",
    "MQTT_EXCHANGE",
    "PREDECLARED",
    "RECENT_TYPE",
    "TYPES",
    "Exchange",
    "Own",
    "Slot",
    "Subject",
    "Syntax",
]

Syntax = Literal["direct", "fanout", "dotted", "slashed", "headers", "chosen"]

INNER_TYPES: Final = ("direct", "fanout", "topic", "headers", *CHOOSING_TYPES)
"""The result of a key in an exchange."""

RECENT_TYPE: Final = "x-recent-history"
"""A fanout that remembers what came last for who is bound later."""

FEDERATION_TYPE: Final = "x-federation-upstream"
"""A fanout that RabbitMQ makes at its upstreams. It drops what has been there already when it comes."""

TYPES: Final = (*INNER_TYPES, DEDUPLICATING_TYPE, RECENT_TYPE, FEDERATION_TYPE)
"""All but DELAYED_TYPE."""

DELAYED_TYPE: Final = "x-delayed-message"
"""An exchange that keeps messages with a delay until their time, and then does as its argument
`x-delayed-type` says, one of INNER_TYPES."""

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
    DEDUPLICATING_TYPE: "fanout",
    RECENT_TYPE: "fanout",
    FEDERATION_TYPE: "fanout",
    **dict.fromkeys(CHOOSING_TYPES, "chosen"),
}

_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


class Subject:
    """The address of a message: its routing key, its topic, and its headers when they are at hand."""

    __slots__ = ("filters_only", "headers", "key", "topic")

    def __init__(
        self, key: bytes, topic: bytes, headers: Arguments | None = None, *, filters_only: bool = False
    ) -> None:
        self.key = key
        self.topic = topic
        self.headers = headers
        """None: not at hand; a headers exchange then says that it needs them."""
        self.filters_only = filters_only
        """Topic filters alone match it, no binding key; no alternate exchange gets it."""


@dataclass(slots=True, eq=False)
class Own:
    """The feed that one MQTT session has for those of its filters that no other had before it, by tag."""

    entry: QueueEntry
    tag: int
    feed: Feed
    count: int = 0
    """Filters that lead here."""


class Slot:
    """One distinct pattern of an exchange, its feed, and who is bound by it."""

    __slots__ = (
        "durable_members",
        "exchange",
        "exchanges",
        "feed",
        "guarded",
        "members",
        "owns",
        "pattern",
        "syntax",
        "table",
        "weight",
    )

    def __init__(
        self,
        exchange: Exchange,
        syntax: Syntax,
        pattern: bytes,
        table: Arguments | None = None,
        weight: int = 1,
    ) -> None:
        self.exchange = exchange
        self.syntax = syntax
        self.pattern = pattern
        """The pattern as bytes; in a headers exchange the encoding of the table it matches."""
        self.table = table
        """The matches of a headers exchange, else None."""
        self.weight = weight
        """Its share of what an exchange that chooses shares out."""
        self.feed: Feed | None = None
        """Where the records of those of its members go that share it; None while there are none."""
        self.members: dict[QueueEntry, int] = {}
        """How many bindings each bound queue has by this pattern."""
        self.exchanges: dict[Exchange, int] = {}
        """How many bindings each bound exchange has by this pattern."""
        self.guarded: tuple[QueueEntry, ...] = ()
        """The members with a feed of their own instead: those that may refuse a message, and streams."""
        self.owns: tuple[Own, ...] = ()
        """Sessions that had this filter before anybody else: they get it by feeds of their own."""
        self.durable_members = 0
        """How many of those who share the feed keep it over a restart."""

    @property
    def unused(self) -> bool:
        """Whether nobody is bound by it."""
        return not (self.members or self.exchanges or self.owns)

    def touch(self) -> None:
        """Where its messages go has changed: the routes of the keys it can match are resolved again."""
        self.exchange.touch(self.syntax, self.pattern)


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
        self.delays = type_ == DELAYED_TYPE
        """Messages with a delay wait here."""
        self._behaviour = str(self.arguments["x-delayed-type"]) if self.delays else type_
        # The default exchange and amq.topic see queues and sessions come and go all the time: finer cells.
        self.scope = Scope(topology, 4096 if name in ("", MQTT_EXCHANGE) else 256)
        self.policy_alternate: str | None = None
        """The alternate exchange that policies give it."""
        self.seen: Seen | None = None
        """Its memory of earlier messages; None: it lets everything through."""
        self.recent: Recent | None = None
        """The last messages, for queues that are bound later; None: it keeps none."""
        self.lsn = 0
        """Where its declaration is in the log; 0 when it is not durable."""
        self.bindings: dict[tuple[object, ...], Binding] = {}
        """The bindings whose source it is, by their identity."""
        self.incoming: dict[Binding, None] = {}
        """The bindings whose destination it is."""
        self._literal: dict[bytes, Slot] = {}
        self._chooser: Chooser | None = None
        """Of the slots in `_literal`; made when it is asked."""
        self._dotted: DottedTrie[Slot] = DottedTrie()
        self._slashed: SlashedTrie[Slot | Own] = SlashedTrie()

    @property
    def alternate(self) -> str | None:
        """The exchange that takes what finds no destination here: its argument's, or else its policy's."""
        name = self.arguments.get("alternate-exchange", self.policy_alternate)
        return name if isinstance(name, str) else None

    @property
    def is_topic(self) -> bool:
        """Whether topic permissions are about its keys."""
        return self._behaviour == "topic"

    @property
    def looks_at_key(self) -> bool:
        """Whether each routing key of a message finds bindings of its own."""
        return self._behaviour in ("direct", "topic")

    @property
    def needs_headers(self) -> bool:
        """Whether each message decides where it goes, by its headers for example."""
        if self._behaviour in CHOOSING_TYPES:
            return self._choices().per_message
        if self._behaviour in (DEDUPLICATING_TYPE, RECENT_TYPE):
            return True
        return self._behaviour == "headers" and bool(self._literal)

    # Slots

    def slot(self, syntax: Syntax, pattern: bytes, table: Arguments | None = None, weight: int = 1) -> Slot:
        """The slot of a pattern in one of this type's syntaxes; made when there is none.

        Raises:
            InvalidPattern: a topic pattern with too many words.

        """

        def make() -> Slot:
            return Slot(self, syntax, pattern, table, weight)

        if syntax == "dotted":
            return self._dotted.add(pattern, make)
        if syntax == "slashed":
            there = self._slashed.add(pattern, make)
            if isinstance(there, Slot):
                return there
            slot = make()
            slot.owns = (there,)
            self._slashed.put(pattern, slot)
            return slot
        found = self._literal.get(pattern)
        if found is None:
            found = self._literal[pattern] = make()
            self._chooser = None
        return found

    def slot_of_binding(
        self, routing_key: bytes, arguments: Arguments, destination: QueueEntry | Exchange
    ) -> Slot:
        """The slot that a binding with this key and these arguments belongs to.

        Raises:
            InvalidMatch: a headers exchange, and an `x-match` it does not know.
            InvalidBinding: an exchange that chooses, and a key that is no weight.
            InvalidPattern: see `slot`.

        """
        syntax = _SYNTAX[self._behaviour] if self.name else "dotted"
        if syntax == "headers":
            table = {"x-match": "all", **arguments}
            if table["x-match"] not in _MATCHES:
                raise InvalidMatch(table["x-match"])
            return self.slot(syntax, encode_table(table), table)
        if syntax == "chosen":
            to_queue = not isinstance(destination, Exchange)
            queue_type = str(destination.arguments.get("x-queue-type", "classic")) if to_queue else None
            weight = checked_weight(self._behaviour, text(routing_key), queue_type)
            who = b"queue" if to_queue else b"exchange"
            return self.slot(syntax, b"\0".join((routing_key, who, wire(destination.name))), weight=weight)
        return self.slot(syntax, b"" if syntax == "fanout" else routing_key)

    def discard(self, slot: Slot) -> None:
        """Take out a slot that nobody is bound by any more."""
        if slot.syntax == "dotted":
            self._dotted.remove(slot.pattern)
        elif slot.syntax == "slashed":
            self._slashed.remove(slot.pattern)
        else:
            self._literal.pop(slot.pattern, None)
            self._chooser = None

    def touch(self, syntax: Syntax, pattern: bytes) -> None:
        """Where messages of this pattern go has changed: the routes of its keys are resolved again."""
        scope = self.scope
        if syntax == "direct":
            scope.touch_exact(pattern)
        elif syntax in ("dotted", "slashed"):
            separator, wildcards = (b".", (b"*", b"#")) if syntax == "dotted" else (b"/", (b"+", b"#"))
            prefix, literal = literal_prefix(pattern, separator, wildcards)
            if literal:
                scope.touch_exact(pattern)
            else:
                scope.touch_below(prefix)
        else:
            scope.touch_all()

    # Filters that one session has

    def filter(self, pattern: bytes) -> Slot | Own | None:
        """The entry of a topic filter; None: nobody has it."""
        return self._slashed.get(pattern)

    def own(self, pattern: bytes, make: Callable[[], Own]) -> Own:
        """A filter that nobody has leads to a feed of one session from now on.

        Raises:
            InvalidPattern: it has too many levels; `make` was not called.

        """
        own = self._slashed.add(pattern, make)
        assert isinstance(own, Own)
        return own

    def restore_own(self, pattern: bytes, own: Own) -> None:
        """The same at start, where others may have the filter already."""
        there = self._slashed.setdefault(pattern, own)
        if there is not own:
            self.slot("slashed", pattern).owns += (own,)

    def disown(self, pattern: bytes) -> None:
        """The only session that has this filter has it no more."""
        self._slashed.remove(pattern)

    # Matching

    def match(self, subject: Subject) -> Iterable[Slot | Own]:
        """The queues that match, each once; none in a headers exchange when the headers are not at hand."""
        match self._behaviour:
            case "direct":
                found = self._literal.get(subject.key)
                return () if found is None else (found,)
            case "fanout" | "x-message-deduplication" | "x-recent-history" | "x-federation-upstream":
                return self._literal.values()
            case "topic":
                slots: list[Slot | Own] = []
                if len(self._dotted) and not subject.filters_only:
                    slots += self._dotted.match(subject.key)
                if len(self._slashed):
                    slots += self._slashed.match(subject.topic)
                return slots
            case type_ if type_ in CHOOSING_TYPES:
                return self._choices().pick(subject)
            case _:
                if subject.headers is None:
                    return ()
                headers = subject.headers
                return [slot for slot in self._literal.values() if _headers_match(slot.table or {}, headers)]

    def tails_of(self, keys: Iterable[bytes]) -> list[Slot]:
        """Of the default exchange: the slots of tails that see messages with one of these routing keys."""
        if not len(self._dotted):
            return []
        return list(dict.fromkeys(slot for key in keys for slot in self._dotted.match(key)))

    def topic_matcher(self) -> Callable[[bytes], list[Slot | Own]]:
        """Finds what a topic of MQTT matches in a topic exchange, until a binding is made or removed."""
        if not len(self._dotted):
            return self._slashed.match
        return lambda topic: [*self._dotted.match(dotted(topic)), *self._slashed.match(topic)]

    def _choices(self) -> Chooser:
        if self._chooser is None:
            self._chooser = Chooser(self._behaviour, self.arguments, list(self._literal.values()))
        return self._chooser

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
