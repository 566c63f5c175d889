"""Where messages go: types of exchanges, bindings between them, alternates, the two names of a subject."""

from __future__ import annotations

import pytest

from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.errors import AccessRefused, InternalExchange, InvalidMatch, NotFound
from penstock.router.names import ENC_AMQP091, join_key_block
from tests.unit.router.conftest import PERSISTENT, World


def test_the_default_exchange_routes_to_the_queue_of_that_name(world: World) -> None:
    queue = world.queue("q")
    assert not world.publish("", "nobody")
    assert world.publish("", "q", "1")
    assert world.publish("", "q", "2")
    assert world.read(queue) == ["1", "2"]


def test_a_queue_declared_after_a_publish_to_its_name_gets_the_next_one(world: World) -> None:
    assert not world.publish("", "q", "lost")
    queue = world.queue("q")
    assert world.publish("", "q", "kept")
    assert world.read(queue) == ["kept"]


def test_direct_takes_the_equal_key(world: World) -> None:
    queue = world.queue("q")
    world.bind("q", "amq.direct", "a")
    assert world.publish("amq.direct", "a", "1")
    assert not world.publish("amq.direct", "b")
    assert not world.publish("amq.direct", "a.b")
    assert world.read(queue) == ["1"]


def test_fanout_ignores_the_key_and_several_bindings_deliver_once(world: World) -> None:
    queue = world.queue("q")
    world.bind("q", "amq.fanout", "a")
    world.bind("q", "amq.fanout", "b")
    assert world.publish("amq.fanout", "c", "1")
    assert world.read(queue) == ["1"]
    world.vhost.unbind_queue("q", "amq.fanout", "a", world.actor)
    assert world.publish("amq.fanout", "c", "2")
    world.vhost.unbind_queue("q", "amq.fanout", "b", world.actor)
    assert not world.publish("amq.fanout", "c", "3")
    assert world.read(queue) == ["2"]


def test_further_keys_go_on_with_the_first_one_from_exchange_to_exchange(world: World) -> None:
    """As RabbitMQ's CC and BCC: each exchange on the way sees all keys."""
    for name in ("first", "second"):
        world.exchange(name)
    queue = world.queue("q")
    world.vhost.bind_exchange("second", "first", "a", world.actor)
    world.bind("q", "second", "b")
    block, copy = join_key_block("first", "a"), join_key_block("first", "b")
    assert not world.vhost.route(world.guest, ENC_AMQP091, block).routed
    assert not world.vhost.route(world.guest, ENC_AMQP091, copy).routed
    route = world.vhost.route(world.guest, ENC_AMQP091, block, copies=[copy])
    world.vhost.publishing.append(route, block, b"", b"1", PERSISTENT, 0, ENC_AMQP091)
    assert world.read(queue) == ["1"]


def test_an_alternate_exchange_takes_what_no_key_of_a_message_matches(world: World) -> None:
    world.exchange("first", arguments={"alternate-exchange": "amq.fanout"})
    queue, other = world.queue("q"), world.queue("other")
    world.bind("q", "first", "b")
    world.bind("other", "amq.fanout")
    for keys, expected in (("ab", (["1"], [])), ("ba", (["1"], [])), ("ac", ([], ["1"]))):
        block, copy = (join_key_block("first", key) for key in keys)
        route = world.vhost.route(world.guest, ENC_AMQP091, block, copies=[copy])
        world.vhost.publishing.append(route, block, b"", b"1", PERSISTENT, 0, ENC_AMQP091)
        assert (world.read(queue), world.read(other)) == expected


def test_topic_patterns_that_overlap_deliver_once(world: World) -> None:
    queue = world.queue("q")
    world.bind("q", "amq.topic", "a.*")
    world.bind("q", "amq.topic", "a.#")
    world.publish("amq.topic", "a.b", "1")
    world.publish("amq.topic", "a.b.c", "2")
    assert world.read(queue) == ["1", "2"]


@pytest.mark.parametrize(
    ("table", "headers", "matches"),
    [
        ({"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"a": 1, "b": "x"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "y"}, False),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"x-match": "all", "x-p": 1, "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-p": 1, "a": 1}, {"a": 1}, False),
        ({"x-match": "all-with-x", "x-p": 1}, {"x-p": 1}, True),
        ({"x-match": "any", "x-p": 1}, {"x-p": 1}, False),
        ({"x-match": "any-with-x", "x-p": 1}, {"x-p": 1}, True),
        ({}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
    ],
)
def test_headers_are_matched_as_rabbitmq_does(
    world: World, table: dict[str, object], headers: dict[str, object], matches: bool
) -> None:
    queue = world.queue("q")
    world.bind("q", "amq.headers", "", table)
    assert world.publish("amq.headers", "", "1", headers=headers) is matches
    assert world.read(queue) == (["1"] if matches else [])


def test_a_headers_exchange_in_the_path_needs_the_headers_of_each_message(world: World) -> None:
    world.queue("q")
    table = world.vhost.publisher(world.guest, ENC_AMQP091)
    key = join_key_block("amq.headers", "k")
    assert not table.route(key).per_message
    world.bind("q", "amq.headers", "", {"a": 1})
    assert table.route(key).per_message
    assert not table.route(key).routed
    assert world.vhost.route(world.guest, ENC_AMQP091, key, {"a": 1}).routed
    assert not world.vhost.route(world.guest, ENC_AMQP091, key, {"a": 2}).routed
    # Without headers, as without any.
    assert world.vhost.publish(world.guest, ENC_AMQP091, key).lsn > 0


@pytest.mark.parametrize("value", ["foo", 1, None])
def test_an_unknown_x_match_is_refused(world: World, value: object) -> None:
    world.queue("q")
    with pytest.raises(InvalidMatch) as refused:
        world.bind("q", "amq.headers", "", {"x-match": value})
    assert refused.value.value == value
    assert not world.vhost.exchanges["amq.headers"].bindings


def test_bindings_between_exchanges_with_a_cycle_deliver_once(world: World) -> None:
    queue = world.queue("q")
    for name in "xyz":
        world.exchange(name, "fanout")
    for source, destination in ("xy", "yz", "zx", "xx", "xz"):
        world.vhost.bind_exchange(destination, source, "", world.actor)
    world.bind("q", "z")
    world.bind("q", "y")
    assert world.publish("x", "k", "1")
    assert world.read(queue) == ["1"]


def test_the_key_is_matched_in_every_exchange_on_the_way(world: World) -> None:
    queue = world.queue("q")
    world.exchange("x", "topic")
    world.exchange("y", "direct")
    world.vhost.bind_exchange("y", "x", "a.#", world.actor)
    world.bind("q", "y", "a.b")
    assert world.publish("x", "a.b", "1")
    assert not world.publish("x", "a.c", "2")
    assert not world.publish("x", "b.b", "3")
    world.vhost.unbind_exchange("y", "x", "a.#", world.actor)
    assert not world.publish("x", "a.b", "4")
    assert world.read(queue) == ["1"]


def test_unroutable_messages_go_to_the_alternate_exchange(world: World) -> None:
    queue = world.queue("q")
    world.exchange("x", "direct", arguments={"alternate-exchange": "y"})
    assert not world.publish("x", "k", "no y yet")
    world.exchange("y", "fanout")
    world.bind("q", "y")
    assert world.publish("x", "k", "1")
    direct = world.queue("d")
    world.bind("d", "x", "k")
    assert world.publish("x", "k", "2")
    assert world.read(queue) == ["1"]
    assert world.read(direct) == ["2"]


def test_alternate_exchanges_in_a_ring_end(world: World) -> None:
    world.exchange("x", "direct", arguments={"alternate-exchange": "y"})
    world.exchange("y", "direct", arguments={"alternate-exchange": "x"})
    assert not world.publish("x", "k")


def test_mqtt_and_amqp_see_one_anothers_messages(world: World) -> None:
    amqp = world.queue("q")
    world.bind("q", "amq.topic", "a.*.c")
    session = world.vhost.session_queue("client", durable=False)
    world.vhost.subscribe("client", "a/+/c", 0, world.guest)
    assert world.publish_mqtt("a/b/c", "from mqtt")
    assert world.publish("amq.topic", "a.b.c", "from amqp")
    assert not world.publish_mqtt("a/b/c/d")
    assert world.read(amqp) == ["from mqtt", "from amqp"]
    assert world.read(session) == ["from mqtt", "from amqp"]


def test_a_leading_wildcard_does_not_see_dollar_topics_in_either_direction(world: World) -> None:
    session = world.vhost.session_queue("client", durable=False)
    world.vhost.subscribe("client", "#", 0, world.guest)
    assert not world.publish_mqtt("$internal/x")
    assert not world.publish("amq.topic", "$internal.x")
    amqp = world.queue("q")
    world.bind("q", "amq.topic", "#")
    assert world.publish_mqtt("$internal/x", "1")
    assert world.read(session) == []
    assert world.read(amqp) == ["1"]


def test_an_mqtt_topic_with_a_dot_is_matched_as_it_is(world: World) -> None:
    session = world.vhost.session_queue("client", durable=False)
    world.vhost.subscribe("client", "a.b/+", 0, world.guest)
    assert world.publish_mqtt("a.b/c", "1")
    assert not world.publish_mqtt("a/b/c")
    assert world.read(session) == ["1"]


def test_a_publish_to_a_missing_exchange_is_an_error_until_there_is_one(world: World) -> None:
    table = world.vhost.publisher(world.guest, ENC_AMQP091)
    key = join_key_block("x", "k")
    error = table.route(key).error
    assert isinstance(error, NotFound)
    assert (error.kind, error.name, error.vhost) == ("exchange", "x", "/")
    world.exchange("x")
    assert table.route(key).error is None
    world.vhost.delete_exchange("x", world.actor)
    assert isinstance(table.route(key).error, NotFound)


def test_an_internal_exchange_takes_messages_from_exchanges_and_the_broker_only(world: World) -> None:
    queue = world.queue("q")
    world.exchange("i", "fanout", internal=True)
    world.bind("q", "i")
    with pytest.raises(InternalExchange):
        world.publish("i", "k")
    world.exchange("x", "fanout")
    world.vhost.bind_exchange("i", "x", "", world.actor)
    assert world.publish("x", "k", "1")
    assert world.vhost.publish(None, ENC_AMQP091, join_key_block("i", "k"), b"", b"2").route.routed
    assert world.read(queue) == ["1", "2"]


def test_publishing_needs_the_right_to_write_and_follows_its_changes(world: World) -> None:
    ann = Identity("ann")
    table = world.vhost.publisher(ann, ENC_AMQP091)
    key = join_key_block("amq.direct", "k")
    error = table.route(key).error
    assert isinstance(error, AccessRefused)
    assert (error.kind, error.name, error.user, error.operation) == ("exchange", "amq.direct", "ann", "write")
    world.broker.authorizer.set("ann", "/", Permission("", "^amq\\.direct$", ""))
    assert table.route(key).error is None
    assert isinstance(table.route(join_key_block("", "k")).error, AccessRefused)
    assert isinstance(table.route(join_key_block("nowhere", "k")).error, AccessRefused)
    world.broker.authorizer.clear("ann", "/")
    assert isinstance(table.route(key).error, AccessRefused)


def test_a_malformed_key_block_is_an_error(world: World) -> None:
    table = world.vhost.publisher(world.guest, ENC_AMQP091)
    for key in (b"", b"\x05abc", b"\x01a", b"\x01a\x02b", b"\x01a\x01bc"):
        assert table.route(key).error is not None


def test_names_that_are_no_utf8_are_kept(world: World) -> None:
    name = b"q\xff\xfe".decode("utf-8", "surrogateescape")
    queue = world.queue(name, durable=True)
    world.bind(name, "amq.direct", name)
    world.publish("", name, "1")
    world.publish("amq.direct", name, "2")
    assert world.read(queue) == ["1", "2"]


def test_ten_thousand_queues_with_one_pattern_share_one_feed(world: World) -> None:
    """A publish costs its distinct patterns: one feed entry, whatever the number of queues."""
    for index in range(10_000):
        world.queue(f"q{index}")
        world.bind(f"q{index}", "amq.topic", "a.#")
    route = world.vhost.route(world.guest, ENC_AMQP091, join_key_block("amq.topic", "a.b"))
    assert len(route.target.feeds) == 1
    assert len(world.log.feeds) == 1
    world.publish("amq.topic", "a.b", "1")
    assert route.target.feeds[0].end == 1
    assert world.read(world.vhost.queues["q9999"].queue) == ["1"]


def test_a_queue_more_on_a_known_pattern_flushes_no_route(world: World) -> None:
    world.queue("q0")
    world.bind("q0", "amq.topic", "a.#")
    table = world.vhost.publisher(world.guest, ENC_AMQP091)
    key = join_key_block("amq.topic", "a.b")
    table.route(key)
    misses = table.misses
    world.queue("q1")
    world.bind("q1", "amq.topic", "a.#")
    world.bind("q1", "amq.topic", "b.#")
    world.bind("q1", "amq.direct", "a.b")
    world.exchange("x", "fanout")
    world.bind("q1", "x")
    table.route(key)
    assert table.misses == misses
