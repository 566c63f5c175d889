"""Routes against the oracle, while a random topology changes under the route tables that remember them.

After every change each key is asked for through the same tables: a change that failed to invalidate what it
concerns shows as a wrong set of queues.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.router.exchanges.exchanges import PREDECLARED
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block
from penstock.router.routes._routes import Route
from tests.reference.routes import Bound, Topology
from tests.support.examples import histories
from tests.unit.router.conftest import World

EXCHANGES = st.sampled_from(["t", "d", "f", "h", "x", "amq.topic", "amq.fanout"])
OWN_EXCHANGES = st.sampled_from(["t", "d", "f", "h", "x"])
TYPES = st.sampled_from(["topic", "direct", "fanout", "headers"])
QUEUES = st.sampled_from(["a", "b", "a.b"])
SESSIONS = st.sampled_from(["s1", "s2"])
PATTERNS = st.sampled_from(["a", "a.b", "a.b.c", "#", "*", "a.*", "a.#", "*.b", "a.b.#", "#.b", "", "a/b"])
FILTERS = st.sampled_from(["a", "a/b", "#", "+", "a/+", "a/#", "+/b", "a/b/#", "a/b/c", "a.b", "$x/#"])
HEADER = st.sampled_from(["1", "2"])
KEYS = ["a", "a.b", "a.b.c", "b", "", "$x.b", "a/b"]
TOPICS = ["a", "a/b", "a/b/c", "b", "$x/b", "a.b"]
HEADERS: tuple[Mapping[str, object], ...] = ({"h": "1"}, {"h": "2"})


class Routing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name) / "data")
        self.model = Topology({name: (type_, None) for name, (type_, _) in PREDECLARED.items()})
        self.tags = 0

    def teardown(self) -> None:
        self.world.close()
        self.folder.cleanup()

    @initialize(
        types=st.lists(TYPES, min_size=5, max_size=5),
        alternates=st.lists(st.none() | EXCHANGES, min_size=5, max_size=5),
        bound=st.lists(st.tuples(EXCHANGES, QUEUES, PATTERNS, HEADER), min_size=4, max_size=10),
        between=st.lists(st.tuples(EXCHANGES, EXCHANGES, PATTERNS, HEADER), max_size=5),
        filters=st.lists(st.tuples(SESSIONS, FILTERS), max_size=3),
    )
    def begin(
        self,
        types: list[str],
        alternates: list[str | None],
        bound: list[tuple[str, str, str, str]],
        between: list[tuple[str, str, str, str]],
        filters: list[tuple[str, str]],
    ) -> None:
        """A topology that is worth changing."""
        for name, type_, alternate in zip("tdfhx", types, alternates, strict=True):
            self.declare_exchange(name, type_, alternate)
        for number, name in enumerate(("a", "b", "a.b")):
            self.declare_queue(name, number == 1)
        for number, client_id in enumerate(("s1", "s2")):
            self.open_session(client_id, number == 1)
        for binding in bound:
            self.bind_queue(*binding, True)
        for binding in between:
            self.bind_exchange(*binding, True)
        for subscription in filters:
            self.subscribe(*subscription, True)

    @rule(name=OWN_EXCHANGES, type_=TYPES, alternate=st.none() | EXCHANGES | st.just(""))
    def declare_exchange(self, name: str, type_: str, alternate: str | None) -> None:
        if name not in self.model.exchanges:
            arguments = {} if alternate is None else {"alternate-exchange": alternate}
            self.world.exchange(name, type_, arguments=arguments)
            self.model.exchanges[name] = (type_, alternate)

    @rule(name=OWN_EXCHANGES)
    def delete_exchange(self, name: str) -> None:
        self.world.vhost.delete_exchange(name, self.world.actor)
        self.model.delete_exchange(name)

    @rule(name=QUEUES, durable=st.booleans())
    def declare_queue(self, name: str, durable: bool) -> None:
        if name not in self.model.queues:
            self.world.queue(name, durable=durable)
            self.model.queues.add(name)

    @rule(name=QUEUES)
    def delete_queue(self, name: str) -> None:
        self.world.vhost.delete_queue(name, self.world.actor)
        self.model.delete("q", name)

    @rule(
        source=EXCHANGES,
        queue=QUEUES,
        pattern=PATTERNS,
        header=HEADER,
        bind=st.booleans(),
    )
    def bind_queue(self, source: str, queue: str, pattern: str, header: str, bind: bool) -> None:
        self._bind(source, "q", queue, pattern, header, bind, queue in self.model.queues)

    @rule(
        source=EXCHANGES,
        destination=EXCHANGES,
        pattern=PATTERNS,
        header=HEADER,
        bind=st.booleans(),
    )
    def bind_exchange(self, source: str, destination: str, pattern: str, header: str, bind: bool) -> None:
        self._bind(source, "x", destination, pattern, header, bind, destination in self.model.exchanges)

    def _bind(
        self, source: str, kind: str, destination: str, pattern: str, header: str, bind: bool, there: bool
    ) -> None:
        if source not in self.model.exchanges or not there:
            return
        vhost, actor = self.world.vhost, self.world.actor
        needs_header = self.model.exchanges[source][0] == "headers"
        bound = Bound(source, kind, destination, pattern, header if needs_header else None)
        arguments = {"h": header} if needs_header else {}
        calls: dict[tuple[str, bool], Any] = {
            ("q", True): vhost.bind_queue,
            ("q", False): vhost.unbind_queue,
            ("x", True): vhost.bind_exchange,
            ("x", False): vhost.unbind_exchange,
        }
        calls[kind, bind](destination, source, pattern, actor, arguments)
        (self.model.bindings.add if bind else self.model.bindings.discard)(bound)

    @rule(client_id=SESSIONS, durable=st.booleans())
    def open_session(self, client_id: str, durable: bool) -> None:
        self.world.vhost.session_queue(client_id, durable=durable)
        self.model.sessions.add(client_id)

    @rule(client_id=SESSIONS)
    def delete_session(self, client_id: str) -> None:
        self.world.vhost.delete_session(client_id)
        self.model.delete("s", client_id)

    @rule(client_id=SESSIONS, topic_filter=FILTERS, subscribe=st.booleans())
    def subscribe(self, client_id: str, topic_filter: str, subscribe: bool) -> None:
        bound = Bound("amq.topic", "s", client_id, topic_filter)
        if client_id not in self.model.sessions:
            return
        if subscribe:
            self.tags += 1
            self.world.vhost.subscribe(client_id, topic_filter, self.tags, self.world.guest)
            self.model.bindings.add(bound)
        else:
            self.world.vhost.unsubscribe(client_id, topic_filter)
            self.model.bindings.discard(bound)

    @invariant()
    def every_key_goes_where_the_oracle_says(self) -> None:
        names = [*self.model.exchanges, "t", "x"]
        for name in names:
            for key in KEYS:
                self._check(name, ENC_AMQP091, join_key_block(name, key), key, key.replace(".", "/"))
        for topic in TOPICS:
            self._check("amq.topic", ENC_MQTT5, topic.encode(), topic.replace("/", "."), topic)

    def _check(self, name: str, enc: int, block: bytes, key: str, topic: str) -> None:
        vhost = self.world.vhost
        cached = vhost.publisher(self.world.guest, enc).route(block)
        for headers in HEADERS:
            route = cached
            if cached.per_message:
                route = vhost.route(self.world.guest, enc, block, headers)
            expected = self.model.route(name, key, topic, headers)
            if expected is None or name == "amq.rabbitmq.trace":
                assert route.error is not None
                continue
            assert route.error is None
            found = self._queues(route)
            assert found == expected, (name, key, topic, headers)
            assert route.routed is bool(expected)
            durable = {(entry.kind[0], entry.name) for entry in vhost.entries() if entry.durable}
            assert route.durable is bool(found & durable)

    def _queues(self, route: Route) -> set[tuple[str, str]]:
        ids = {feed.id for feed in route.target.feeds}
        found = set()
        for entry in self.world.vhost.entries():
            for feed_id, _, _, until in entry.queue.cursor.memberships():
                if until is None and feed_id in ids:
                    found.add((entry.kind[0], entry.name))
        return found


TestRouting = Routing.TestCase
TestRouting.settings = settings(
    max_examples=histories(60),
    stateful_step_count=25,
    deadline=None,
)
