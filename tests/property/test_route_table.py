"""The route table against an oracle that remembers nothing, while patterns of all syntaxes come and go.

A route carries the number of changes that concerned its key when it was resolved. After any sweeps and
lookups, a lookup must answer with a route that includes all of these changes.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.log_core.batch._appender import Target
from penstock.router.exchanges.exchanges import Exchange, Syntax
from penstock.router.names import dotted, slashed, split_key_block
from penstock.router.routes._routes import Route, RouteTable, Topology
from tests.reference.route_table import Truth
from tests.support.examples import histories

AMQP, MQTT = 1, 2
WORDS = st.sampled_from([b"a", b"a", b"b", b"", b"c.d"])
KEYS = st.lists(WORDS, min_size=1, max_size=4)
DOTTED = st.lists(WORDS | st.sampled_from([b"*", b"#"]), min_size=1, max_size=4).map(b".".join)
SLASHED = st.tuples(st.lists(WORDS | st.just(b"+"), min_size=1, max_size=4), st.booleans()).map(
    lambda made: b"/".join(made[0] + [b"#"] * made[1])
)
PATTERNS = st.one_of(
    st.tuples(st.just("direct"), KEYS.map(b".".join)),
    st.tuples(st.just("dotted"), DOTTED),
    st.tuples(st.just("slashed"), SLASHED),
    # No key: an exchange has direct or fanout slots, and would take the one for the other.
    st.tuples(st.just("fanout"), st.just(b"\0")),
)


class Tables(RuleBasedStateMachine):
    @initialize(limit=st.integers(2, 40), bytes_limit=st.integers(200, 2000))
    def begin(self, limit: int, bytes_limit: int) -> None:
        self.topology = Topology()
        self.exchange = Exchange("x", "topic", self.topology)
        self.truth = Truth()
        self.known: dict[Route, int] = {}
        self.tables = {
            enc: RouteTable(self.topology, enc, self.resolver(enc), limit, bytes_limit)
            for enc in (AMQP, MQTT)
        }

    def names(self, enc: int, key: bytes) -> tuple[bytes, bytes]:
        """The routing key and the topic of a key block."""
        if enc == MQTT:
            return dotted(key), key
        parts = split_key_block(key)
        assert parts is not None
        return parts[1], slashed(parts[1])

    def resolver(self, enc: int) -> Callable[[bytes], Route]:
        def resolve(key: bytes) -> Route:
            route = Route(Target((), False), (self.exchange.scope,), False, False, False)
            self.known[route] = self.truth.of(*self.names(enc, key))
            return route

        return resolve

    @rule(enc=st.sampled_from([AMQP, MQTT]), words=KEYS, again=st.integers(1, 3))
    def look_up(self, enc: int, words: list[bytes], again: int) -> None:
        if enc == AMQP:
            routing_key = b".".join(words)
            key = b"\x01x" + bytes([len(routing_key)]) + routing_key
        else:
            key = b"/".join(words)
        for _ in range(again):
            route = self.tables[enc].route(key)
            assert self.known[route] == self.truth.of(*self.names(enc, key))

    @rule(
        enc=st.sampled_from([AMQP, MQTT]),
        words=KEYS,
        syntax=st.sampled_from(["direct", "dotted", "slashed"]),
        wild=st.lists(st.booleans(), min_size=4, max_size=4),
        cut=st.integers(1, 9),
    )
    def change_what_matches(
        self, enc: int, words: list[bytes], syntax: Syntax, wild: list[bool], cut: int
    ) -> None:
        """A pattern made of the key itself: some words a wildcard, the end a `#`."""
        self.look_up(enc, words, 1)
        star, separator = (b"+", b"/") if syntax == "slashed" else (b"*", b".")
        made = [star if wild[at] and syntax != "direct" else word for at, word in enumerate(words)]
        if syntax != "direct" and cut < len(made):
            made = [*made[:cut], b"#"]
        self.change((syntax, separator.join(made)))
        self.look_up(enc, words, 2)

    @rule(change=PATTERNS)
    def change(self, change: tuple[Syntax, bytes]) -> None:
        syntax, pattern = change
        self.exchange.slot(syntax, pattern).touch()
        self.truth.change(syntax, pattern)

    @rule()
    def renew(self) -> None:
        self.topology.renew()
        self.truth.change("all", b"")

    @rule(enc=st.sampled_from([AMQP, MQTT]))
    def clear(self, enc: int) -> None:
        self.tables[enc].clear()

    @invariant()
    def stays_within_its_bounds(self) -> None:
        for table in self.tables.values() if hasattr(self, "tables") else ():
            assert table.count <= table.limit
            assert table.key_bytes <= table.bytes_limit


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=histories(150), stateful_step_count=40, deadline=None)
