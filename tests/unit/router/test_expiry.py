"""Queues with x-expires: what goes with them, and what a restart means."""

from __future__ import annotations

import pytest

from penstock.router.errors import NotFound
from tests.unit.router.conftest import World


def test_an_expired_queue_is_gone_with_its_bindings_and_dead_letters_nothing(world: World) -> None:
    world.queue("dead")
    arguments = {"x-expires": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    world.queue("q", durable=True, arguments=arguments)
    world.bind("q", "amq.fanout")
    world.publish("", "q")
    world.loop.advance(1.1)
    with pytest.raises(NotFound):
        world.vhost.queue("q", world.actor)
    assert not world.publish("amq.fanout", "")
    assert world.rows("queue") == world.rows("cursor") == world.rows("feed") == 0
    assert world.read(world.vhost.queue("dead", world.actor)) == []


def test_declaring_again_is_a_use_also_passively(world: World) -> None:
    arguments = {"x-expires": 1000}
    world.queue("q", arguments=arguments)
    for passive in (False, True):
        world.loop.advance(0.9)
        world.vhost.declare_queue("q", world.actor, passive=passive, arguments=arguments)
    world.loop.advance(0.9)
    assert not world.vhost.queue("q", world.actor).deleted
    world.loop.advance(0.2)
    with pytest.raises(NotFound):
        world.vhost.queue("q", world.actor)


def test_after_a_restart_the_time_begins_anew(world: World) -> None:
    world.queue("q", durable=True, arguments={"x-expires": 1000})
    world.publish("", "q", "a")
    world.loop.advance(0.9)
    world.restart()
    world.loop.advance(0.9)
    assert world.vhost.queue("q", world.actor).ready_count == 1
    world.loop.advance(0.2)
    with pytest.raises(NotFound):
        world.vhost.queue("q", world.actor)
    world.restart()
    assert "q" not in world.vhost.queues
