"""The cost per consumer of AMQP clients is the same at any number of consumers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Queue

from tests.support.amqp_session import Client, World
from tests.support.scaling import assert_linear


@pytest.mark.parametrize("how", ["cancel", "cancel backwards", "lost"])
@pytest.mark.parametrize("arguments", [{}, {"x-single-active-consumer": True}], ids=["shared", "single"])
def test_consumers_leave_at_the_same_cost_each(world: World, how: str, arguments: dict[str, bool]) -> None:
    world.client().call(1, Queue.Declare(queue=(name := "q"), arguments=arguments), Queue.DeclareOk)

    def prepare(n: int) -> Callable[[], object]:
        client: Client = world.client()
        for i in range(n):
            client.send(1, Basic.Consume(queue=name, consumer_tag=f"c{i}", nowait=True))
        queue = world.broker.vhosts["/"].queues[name].queue
        assert queue.consumer_count == n

        def work() -> None:
            if how == "lost":
                client.session.lost()
            else:
                for i in range(n) if how == "cancel" else reversed(range(n)):
                    client.send(1, Basic.Cancel(f"c{i}", True))
                world.turn()
            assert queue.consumer_count == 0

        return work

    assert_linear(prepare, 250)
