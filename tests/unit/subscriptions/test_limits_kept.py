"""A dead-lettered message stays so after a crash: its copy and its settlement are one unit of the log."""

from __future__ import annotations

import pytest

from penstock.log_core.batch._batch import Record
from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.queue.limits import Rules
from penstock.subscriptions.queues import Queues
from tests.support.queues import Clock, Consumer, Loop, World


@pytest.mark.parametrize("reason", ["rejected", "delivery_limit", "expired", "maxlen"])
def test_dead_lettered_messages_do_not_come_again(
    world: World, loop: Loop, clock: Clock, feed: Feed, reason: str
) -> None:
    """No time passes for the cursor's record that is written now and then."""
    queue = world.queue("q", feed, durable=True)
    graves = world.log.new_feed()
    buried: list[int] = []

    def bury(record: Record, why: str, _note: bytes) -> bool:
        assert why == reason
        buried.append(record.lsn)
        world.publish(graves)
        return True

    queue.apply(
        Rules(
            bury=bury,
            delivery_limit=0,
            ttl_ms=100 if reason == "expired" else None,
            max_length=2 if reason == "maxlen" else None,
        )
    )
    positions = world.publish(feed, n=4)
    loop.settle()
    if reason == "expired":
        clock.now += 0.2
        queue.wake()
        loop.settle()
    elif reason != "maxlen":
        consumer = Consumer(queue)
        queue.attach(consumer)
        loop.settle()
        for seq in consumer.held[:2]:
            (queue.cursor.reject if reason == "rejected" else queue.cursor.requeue)(seq)
        loop.settle()
    gone = 4 if reason == "expired" else 2
    assert buried == positions[:gone]
    world.log.flush()
    world.log.recovery.clean = False
    heir = Consumer(Queues(world.log, world.tick).restore(queue.qid, "q", "/"))
    heir.queue.attach(heir)
    loop.settle()
    assert heir.got == positions[gone:]
