"""The messages that a limited queue drops, at its head or its end, against a list with the same rules."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._batch import PERSISTENT, Record
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.subscriptions.queue.limits import Overflow, Rules
from tests.support.queues import Consumer, Loop, World

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.integers(0, 9), min_size=1, max_size=5)),
        st.tuples(st.just("credit"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(0, 5)),
        st.tuples(st.just("requeue"), st.integers(0, 5)),
    ),
    max_size=25,
)


class Model:
    """A queue as a list of (position, size)."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.waiting: list[tuple[int, int]] = []
        self.held: list[tuple[int, int]] = []
        self.credit = 0
        self.dropped: list[int] = []

    def over(self, extra: int = 0, size: int = 0) -> bool:
        rules, total = self.rules, sum(size for _, size in self.waiting)
        return (rules.max_length is not None and len(self.waiting) + extra > rules.max_length) or (
            rules.max_bytes is not None and total + size > rules.max_bytes
        )

    def settle(self, new: list[tuple[int, int]]) -> None:
        """Hand out while there is credit; what is too much then goes."""
        while self.credit and (self.waiting or new):
            self.held.append((self.waiting or new).pop(0))
            self.credit -= 1
        for message in new:
            if self.rules.caps and self.over(1, message[1]):
                self.dropped.append(message[0])
            else:
                self.waiting.append(message)
        self.shed()

    def give_back(self, index: int) -> None:
        """One comes back to its place: it counts before anybody gets the next one, as in RabbitMQ."""
        self.waiting.append(self.held.pop(index))
        self.waiting.sort()
        self.shed()

    def shed(self) -> None:
        """Drop from the head what is too much."""
        while self.rules.sheds and self.over():
            self.dropped.append(self.waiting.pop(0)[0])


@pytest.mark.parametrize("overflow", [Overflow.DROP_HEAD, Overflow.DROP_NEWEST])
@given(
    max_length=st.none() | st.integers(1, 6),
    max_bytes=st.none() | st.integers(0, 30),
    buried=st.booleans(),
    steps=STEPS,
)
def test_only_messages_over_the_limit_are_dropped(
    overflow: Overflow,
    max_length: int | None,
    max_bytes: int | None,
    buried: bool,
    steps: list[tuple[str, list[int] | int]],
) -> None:
    graves: list[int] = []

    def bury(record: Record, reason: str, _note: bytes) -> bool:
        assert reason == "maxlen"
        graves.append(record.lsn)
        return True

    rules = Rules(
        max_length=max_length, max_bytes=max_bytes, overflow=overflow, bury=bury if buried else None
    )
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop()
        log = Log.open(Path(folder) / "data", LogOptions(segment_bytes=1 << 20))
        try:
            world = World(log, loop)
            feed = log.new_feed()
            queue = world.queue("q", feed)
            queue.apply(rules)
            consumer = Consumer(queue, credit=0)
            queue.attach(consumer)
            model = Model(rules)
            target = log.target([feed], False)
            for what, argument in steps:
                new = []
                if isinstance(argument, list):
                    for size in argument:
                        body = bytes(size)
                        position = log.appender.append_record(0, target, body=body, flags=PERSISTENT)
                        new.append((position, size))
                    world.tick.schedule()
                elif what == "credit":
                    consumer.left += argument
                    model.credit += argument
                    queue.credit_gained()
                elif what == "ack":
                    del model.held[:argument]
                    for seq in consumer.held[:argument]:
                        queue.cursor.settle(seq)
                    del consumer.held[:argument]
                elif argument < len(model.held):
                    model.give_back(argument)
                    queue.cursor.requeue(consumer.held.pop(argument))
                loop.settle()
                model.settle(new)
                assert [queue.cursor.position(seq) for seq in consumer.held] == [at for at, _ in model.held]
                assert queue.ready_count == len(model.waiting)
                assert queue.dropped == len(model.dropped)
                assert graves == (model.dropped if buried else [])
                if max_bytes is not None:
                    assert queue.cursor.ready_bytes == sum(size for _, size in model.waiting)
        finally:
            log.close_sync()
