"""Auto-delete queues go with their last consumer."""

from __future__ import annotations

from tests.support.queues import Consumer
from tests.unit.router.conftest import World


def test_an_auto_delete_queue_goes_with_its_last_consumer(world: World) -> None:
    queue = world.queue("q", auto_delete=True)
    first, second = Consumer(queue), Consumer(queue)
    queue.attach(first)
    queue.attach(second)
    queue.detach(first)
    assert "q" in world.vhost.queues
    queue.detach(second)
    assert "q" not in world.vhost.queues and queue.deleted
