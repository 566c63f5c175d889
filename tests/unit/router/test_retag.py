"""A session that subscribes to the same filter again, with other options."""

from __future__ import annotations

from tests.unit.router.conftest import World


def test_a_new_tag_keeps_the_feed_that_only_this_session_reads(world: World) -> None:
    queue = world.vhost.session_queue("client", durable=False)
    world.vhost.subscribe("client", "a/+", 1, world.guest)
    feeds = len(world.log.feeds)
    world.vhost.subscribe("client", "a/+", 2, world.guest)
    assert len(world.log.feeds) == feeds
    assert world.publish_mqtt("a/b", "1")
    assert world.read_tags(queue) == [("1", (2,))]
    world.vhost.delete_session("client")
    assert len(world.log.feeds) == feeds - 1
