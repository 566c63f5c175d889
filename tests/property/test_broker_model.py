"""Router, subscriptions and log core together against the naive broker, over random histories with restarts.

In one process, over a real log in a temporary folder, without sockets. A crash is a copy of the folder as it
is, opened by a new log: what kill -9 leaves. Acknowledgements whose state records were not due yet may come
back after it, flagged; nothing else may differ.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.router.authentication.users import AuthOptions
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.broker import DEFAULT_VHOST, Broker, BrokerOptions
from penstock.router.names import ENC_AMQP091, join_key_block
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick.tick import Tick
from tests.reference.naive_broker import Message, NaiveBinding, NaiveBroker
from tests.support.examples import histories
from tests.support.limits import LIMIT_S
from tests.support.logs import files_made
from tests.support.queues import Clock, Loop

QUEUES = ("q0", "q1", "q2")
SESSIONS = ("s0", "s1")
KINDS = {"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic"}
KEYS = ("a", "b", "a.b", "a.b.c")
PATTERNS = ("a", "b", "a.*", "a.#", "#", "*.b")
FILTERS = ("a", "a/+", "a/#", "#", "+/b")
# Small, so that histories cross segments and meet cold records.
OPTIONS = LogOptions(
    segment_bytes=1 << 16,
    tail_cache_bytes=4096,
    read_cache_bytes=8192,
    feed_cache_bytes=1 << 12,
    checkpoint_bytes=1 << 17,
    traffic_retention_bytes=0,
    min_free_bytes=0,
    fsync="never",
)

# Where syncing costs nothing, if there is such a place: what a power cut would lose is not tested here.
MEMORY = Path("/dev/shm")

names = st.sampled_from(QUEUES + SESSIONS)
numbers = st.integers(0, 8)


class QueueConsumer:
    """A consumer that keeps (seq, message number, redelivered) of what it gets."""

    priority = 0

    def __init__(self, credit: int) -> None:
        self.left = credit
        self.got: list[tuple[int, int, bool]] = []

    def credit(self) -> int:
        return self.left

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        records = cursor.records()
        for i in range(first, cursor.taken_count, step):
            self.got.append((records[i][0], number_of(cursor, i), records[i][4]))
            self.left -= 1
        return len(range(first, cursor.taken_count, step))

    def cancelled(self, reason: str) -> None:
        self.left = 0


def number_of(cursor: Cursor, i: int) -> int:
    """The number of the message at item `i`: its body begins with it."""
    batch, index = cursor.record(i)
    return int(batch.record(index).body[:8])


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(
            tempfile.mkdtemp(prefix="penstock-model-", dir=MEMORY if MEMORY.is_dir() else None)
        )
        self.generation = 0
        self.clock = Clock()
        self.guest = Identity("guest")
        self.actor = Actor(self.guest, object())
        self.model = NaiveBroker()
        self.number = 0
        self.consumers: dict[str, list[QueueConsumer]] = {}
        self.out: dict[str, dict[int, int]] = {}  # queue -> message number -> seq
        self.settled_late: dict[str, set[int]] = {}  # settled since the state records were put
        self.open()
        self.broker.authorizer.set("guest", DEFAULT_VHOST, Permission())

    def open(self) -> None:
        self.loop = Loop()
        self.log = Log.open(self.data, OPTIONS, clock=self.clock)
        self.inbox: SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = SimpleQueue()
        self.log.attach(lambda callback, *args: self.inbox.put((callback, args)))
        self.tick = Tick(self.log, self.loop)
        options = BrokerOptions(auth=AuthOptions(default_user=""))
        self.broker = Broker.open(self.log, self.tick, options)
        self.vhost: Vhost = self.broker.vhost(DEFAULT_VHOST)
        self.consumers = {}
        self.out = {name: {} for name in QUEUES + SESSIONS}
        self.settled_late = {name: set() for name in QUEUES + SESSIONS}

    @property
    def data(self) -> Path:
        return self.folder / str(self.generation)

    def teardown(self) -> None:
        self.broker.close()
        self.log.close_sync()
        shutil.rmtree(self.folder)

    def queue(self, name: str) -> Queue:
        if name in SESSIONS:
            return self.vhost.session_queue(name, durable=True)
        return self.vhost.queue(name, self.actor)

    def run(self) -> None:
        """Turn until nothing moves, and hold what was delivered against the model."""
        self.settle()
        for name, consumers in self.consumers.items():
            got = [one for consumer in consumers for one in consumer.got]
            expected = self.model.queues[name].take(len(got))
            assert sorted((number, again) for _, number, again in got) == [
                (message.number, message.redelivered) for message in expected
            ], name
            if len(consumers) == 1:
                assert [number for _, number, _ in got] == [message.number for message in expected]
            self.out[name].update((number, seq) for seq, number, _ in got)
            for consumer in consumers:
                consumer.got.clear()
            if any(consumer.left for consumer in consumers):
                assert not self.model.queues[name].ready, f"{name} holds back with credit left"

    def settle(self) -> None:
        """Turn until nothing moves, cold reads included."""
        self.loop.settle()
        while any(queue._loading for queue in self.broker.queues):
            self.take_in()
            self.loop.settle()

    def take_in(self) -> None:
        """Run the next callback from a thread of the log; waits for it."""
        callback, args = self.inbox.get(timeout=LIMIT_S)
        callback(*args)

    def loaded(self, cursor: Cursor) -> bool:
        """Load what the last take missed in memory; False when it missed nothing."""
        done: list[bool] = []
        if cursor.cold:
            self.log.load(cursor.cold, lambda: done.append(True))
        elif cursor.cold_feed is not None:
            self.log.load_feed(cursor.cold_feed, cursor.cold_index, lambda: done.append(True))
        else:
            return False
        while not done:
            self.take_in()
        return True

    def quiet(self) -> None:
        """Wait until the log's upkeep has nothing to do: a copy of the folder is then of one moment."""
        files_made(self.log)
        for _ in range(4):  # what is done may bring the next thing to do
            self.log._upkeep.pool.submit(int).result()
            while not self.inbox.empty():
                self.take_in()

    # Topology; a rule that does not apply does nothing

    @initialize(durable=st.booleans())
    def begin(self, durable: bool) -> None:
        self.declare("q0", durable=True)
        self.declare("q1", durable)
        self.open_session("s0", durable)
        self.bind("q0", "amq.topic", "a.#")
        self.subscribe("s0", "a/#", 0)

    @rule(name=st.sampled_from(QUEUES), durable=st.booleans())
    def declare(self, name: str, durable: bool) -> None:
        if name in self.model.queues:
            return
        self.vhost.declare_queue(name, self.actor, durable=durable)
        self.model.declare(name, durable)

    @rule(name=st.sampled_from(SESSIONS), durable=st.booleans())
    def open_session(self, name: str, durable: bool) -> None:
        if name in self.model.queues:
            return
        self.vhost.session_queue(name, durable=durable)
        self.model.declare_session(name, durable)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name not in self.model.queues:
            return
        ready = len(self.model.queues[name].ready)
        if name in SESSIONS:
            self.vhost.delete_session(name)
        else:
            assert self.vhost.delete_queue(name, self.actor).message_count == ready
        self.model.delete(name)
        self.consumers.pop(name, None)
        self.out[name].clear()
        self.settled_late[name].clear()

    @rule(name=st.sampled_from(QUEUES), exchange=st.sampled_from(list(KINDS)), key=st.sampled_from(PATTERNS))
    def bind(self, name: str, exchange: str, key: str) -> None:
        if name not in self.model.queues:
            return
        self.vhost.bind_queue(name, exchange, key, self.actor)
        self.model.bindings.add(NaiveBinding(exchange, KINDS[exchange], key, name))

    @rule(name=st.sampled_from(QUEUES), exchange=st.sampled_from(list(KINDS)), key=st.sampled_from(PATTERNS))
    def unbind(self, name: str, exchange: str, key: str) -> None:
        if name not in self.model.queues:
            return
        self.vhost.unbind_queue(name, exchange, key, self.actor)
        self.model.bindings.discard(NaiveBinding(exchange, KINDS[exchange], key, name))

    @rule(name=st.sampled_from(SESSIONS), topic_filter=st.sampled_from(FILTERS), tag=st.integers(0, 3))
    def subscribe(self, name: str, topic_filter: str, tag: int) -> None:
        if name not in self.model.queues:
            return
        self.vhost.subscribe(name, topic_filter, tag, self.guest)
        self.model.bindings.add(NaiveBinding("amq.topic", "session", topic_filter, name))

    @rule(name=st.sampled_from(SESSIONS), topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, name: str, topic_filter: str) -> None:
        if name not in self.model.queues:
            return
        self.vhost.unsubscribe(name, topic_filter)
        self.model.bindings.discard(NaiveBinding("amq.topic", "session", topic_filter, name))

    # Messages

    @rule(
        exchange=st.sampled_from(["", *KINDS]),
        key=st.sampled_from(KEYS + QUEUES),
        n=st.integers(1, 4),
        persistent=st.booleans(),
        size=st.sampled_from([8, 500, 20_000]),
    )
    def publish(self, exchange: str, key: str, n: int, persistent: bool, size: int) -> None:
        for _ in range(n):
            self.number += 1
            published = self.vhost.publish(
                self.guest,
                ENC_AMQP091,
                join_key_block(exchange, key),
                body=b"%08d" % self.number + b"x" * (size - 8),
                flags=PERSISTENT if persistent else 0,
            )
            assert published.route.routed == self.model.publish(exchange, key, self.number, persistent)

    @rule(name=names)
    def purge(self, name: str) -> None:
        if name not in self.model.queues:
            return
        self.run()
        assert self.queue(name).purge() == self.model.purge(name)

    # Consumers

    @rule(name=names, credit=st.integers(1, 10))
    def consume(self, name: str, credit: int) -> None:
        if name not in self.model.queues:
            return
        consumers = self.consumers.setdefault(name, [])
        if len(consumers) == (1 if name in SESSIONS else 2):
            return
        consumer = QueueConsumer(credit)
        self.queue(name).attach(consumer)
        consumers.append(consumer)

    @rule(name=names, give_back=st.booleans())
    def cancel(self, name: str, give_back: bool) -> None:
        if not self.consumers.get(name):
            return
        self.run()
        consumer = self.consumers[name].pop()
        give_back &= not self.consumers[name]
        self.queue(name).detach(consumer, requeue=give_back)
        if give_back:
            for number in list(self.out[name]):
                self.model.queues[name].requeue(number)
            self.out[name].clear()

    @rule(name=names, credit=st.integers(1, 5))
    def more_credit(self, name: str, credit: int) -> None:
        if not self.consumers.get(name):
            return
        self.consumers[name][0].left += credit
        self.queue(name).credit_gained()

    @rule(name=st.sampled_from(QUEUES))
    def get(self, name: str) -> None:
        if name not in self.model.queues:
            return
        self.run()
        answers: list[tuple[int, int, bool] | None] = []

        def getter(cursor: Cursor | None) -> None:
            if cursor is None:
                answers.append(None)
            else:
                seq, *_, again = cursor.records()[0]
                answers.append((seq, number_of(cursor, 0), again))

        self.queue(name).get(getter)
        self.settle()
        expected = self.model.queues[name].take(1)
        if not expected:
            assert answers == [None]
            return
        assert answers[0] is not None
        seq, number, again = answers[0]
        assert (number, again) == (expected[0].number, expected[0].redelivered)
        self.out[name][number] = seq

    @rule(name=names, which=numbers, n=st.integers(1, 4))
    def ack(self, name: str, which: int, n: int) -> None:
        if name not in self.model.queues:
            return
        self.run()
        queue = self.queue(name)
        for number in list(self.out[name])[which : which + n]:
            queue.cursor.settle(self.out[name].pop(number))
            self.model.queues[name].settle(number)
            self.settled_late[name].add(number)

    @rule(name=names, which=numbers, n=st.integers(1, 4))
    def requeue(self, name: str, which: int, n: int) -> None:
        if name not in self.model.queues:
            return
        self.run()
        queue = self.queue(name)
        for number in list(self.out[name])[which : which + n]:
            assert queue.cursor.requeue(self.out[name].pop(number))
            self.model.queues[name].requeue(number)

    # Time and restarts

    @rule()
    def state_records_are_due(self) -> None:
        self.loop.advance(0.1)
        self.run()
        for late in self.settled_late.values():
            late.clear()

    @rule()
    def restart(self) -> None:
        self.run()
        self.broker.close()
        self.log.close_sync()
        self.open()
        self.model.restart(clean=True)

    @rule(due=st.booleans())
    def crash(self, due: bool) -> None:
        if due:
            self.state_records_are_due()
        self.run()
        late = self.settled_late
        before, self.generation = self.data, self.generation + 1
        self.quiet()
        shutil.copytree(before, self.data)
        self.log.close_sync()
        self.open()
        self.model.restart(clean=False)
        for name, queue in self.model.queues.items():
            self.adopt(name, late[name])
            assert queue.durable

    def adopt(self, name: str, late: set[int]) -> None:
        """The latest settled messages may be back, flagged; the model takes over which."""
        cursor = self.queue(name).cursor
        got: list[tuple[int, bool]] = []
        while True:
            n = cursor.take(1024)
            got += [(number_of(cursor, i), cursor.records()[i][4]) for i in range(n)]
            if not self.loaded(cursor) and n == 0:
                break
        assert all(again for _, again in got)
        found = [number for number, _ in got]
        expected = [message.number for message in self.model.queues[name].ready]
        assert found == sorted(set(found))
        assert set(expected) <= set(found) <= set(expected) | late
        self.model.queues[name].ready = [Message(number, True, True) for number in found]
        cursor.requeue_all()

    @invariant()
    def agrees(self) -> None:
        self.run()
        for name, queue in self.model.queues.items():
            assert self.queue(name).ready_count == len(queue.ready), name


TestBroker = BrokerMachine.TestCase
TestBroker.settings = settings(max_examples=histories(60), stateful_step_count=40, deadline=None)
