"""Half messages over the native protocol, without sockets: decided, asked about, given up."""

from __future__ import annotations

import pytest

from penstock.protocols.properties.properties import encode_properties
from penstock.router.authorization.permissions import Permission
from penstock.router.errors import HalfUnknown, NotFound
from penstock.router.messages import half
from penstock.router.messages.half import Half, HalfMessage, Place, Rules
from penstock.router.names import join_key_block
from penstock.sdk.message import properties_block
from tests.reference import native_frames as wire
from tests.support.native_halves import producer, questions
from tests.support.native_session import PLAIN, Client, World

UNKNOWN = "half_unknown"


def published(world: World, topic: str = "t") -> list[bytes]:
    """Everything in a topic."""
    client = Client(world)
    client.request("read", handle=9, topic=topic, start="earliest")
    client.send(wire.credit(9, 1000, 1 << 20))
    found = client.bodies()
    client.lose()
    return found


# Deciding


def test_it_is_published_when_it_is_committed_and_never_when_it_is_rolled_back(world: World) -> None:
    client = producer(world)
    first, second = (client.prepare(1, body)["transaction"] for body in (b"a", b"b"))
    assert published(world) == []
    position = client.request("decide", transaction=first, commit=True)["position"]
    assert client.request("decide", transaction=second, commit=False) == {}
    assert published(world) == [b"a"]
    for transaction in (first, second):
        assert client.request("decide", transaction=transaction, commit=True)["code"] == UNKNOWN
    client.request("read", handle=2, topic="t", start=f"pos:{position}")
    client.send(wire.credit(2, 10, 1000))
    assert client.bodies() == [b"a"]
    world.restart()
    assert published(world) == [b"a"]
    statistics = world.broker.statistics()
    assert [statistics[name] for name in ("half", "half_committed", "half_rolled_back")] == [0, 0, 0]


def test_decisions_are_counted(world: World) -> None:
    client = producer(world)
    for commit in (True, True, False):
        client.request("decide", transaction=client.prepare(1, b"a")["transaction"], commit=commit)
    statistics = world.broker.statistics()
    assert [statistics[name] for name in ("half", "half_committed", "half_rolled_back")] == [0, 2, 1]


def test_nothing_is_left_of_what_was_decided(world: World) -> None:
    client = producer(world)
    client.request("decide", transaction=client.prepare(1, b"a")["transaction"], commit=True)
    client.request("close", handle=1)
    halves = world.broker.halves
    assert (halves._halves, halves._at, halves._askers, halves._bytes) == ({}, {}, {}, 0)


def test_it_is_asked_about_in_time_though_the_clock_was_set(world: World) -> None:
    client = producer(world)
    client.prepare(1, b"a")
    world.clock.now += 7
    world.loop.advance(1.1)
    assert len(questions(client)) == 1


def test_giving_up_a_half_message_is_written_at_once(world: World) -> None:
    producer(world, expires_ms=60_000).prepare(1, b"a")
    world.clock.now += 61
    world.loop.advance(1.1)
    assert world.broker.statistics()["half"] == 0
    assert world.log.written_lsn == world.log.appender.next_lsn - 1


def test_it_is_not_known_in_another_vhost(world: World) -> None:
    transaction = producer(world).prepare(1, b"a")["transaction"]
    with pytest.raises(HalfUnknown):
        world.broker.halves.find(transaction, "elsewhere", "guest")
    assert world.broker.halves.find(transaction, "/", "guest").id == transaction


def test_its_properties_are_the_message_s(world: World) -> None:
    client = producer(world)
    props = properties_block("k", {"a": 1}, 60_000, True, {"priority": 7})
    transaction = client.prepare(1, b"a", props)["transaction"]
    position = client.request("decide", transaction=transaction, commit=True)["position"]
    batch = world.log.cache.get(position)
    assert batch is not None
    record = batch.record(position - batch.base_lsn)
    assert (record.priority, record.ttl) == (7, 60_000)
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(wire.credit(2, 10, 1000))
    ((message,),) = [client.delivered()]
    assert (message["props"], message["key"]) == (props, b"\x00\x01t")


@pytest.mark.parametrize("clean", [True, False])
def test_it_outlives_the_gateway(world: World, clean: bool) -> None:
    client = producer(world)
    kept = [client.prepare(1, b"%d" % i)["transaction"] for i in range(3)]
    client.request("decide", transaction=kept[0], commit=True)
    world.restart(clean=clean)
    client = producer(world)
    assert client.request("decide", transaction=kept[1], commit=True)["position"]
    assert client.request("decide", transaction=kept[0], commit=True)["code"] == UNKNOWN
    assert published(world) == [b"0", b"1"]
    assert world.broker.statistics()["half"] == 1


def test_nobody_else_decides_about_it(world: World) -> None:
    client = producer(world)
    transaction = client.prepare(1, b"a")["transaction"]
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ".*"))
    ann = producer(world, user="ann")
    for commit in (True, False):
        assert ann.request("decide", transaction=transaction, commit=commit)["code"] == UNKNOWN
    world.pass_time(1000)
    assert questions(ann) == []
    assert [one[0] for one in questions(client)] == [transaction]


def test_a_user_who_lost_the_permission_to_publish_cannot_commit(world: World) -> None:
    producer(world)
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ".*"))
    ann = producer(world, user="ann")
    transaction = ann.prepare(1, b"a")["transaction"]
    world.broker.authorizer.set("ann", "/", Permission("", "", ".*"))
    assert ann.request("decide", transaction=transaction, commit=True)["code"] == "access_refused"
    assert ann.prepare(1, b"b")["code"] == "access_refused"
    assert ann.request("decide", transaction=transaction, commit=False) == {}
    assert published(world) == []


# Asking


def test_it_is_asked_about_until_it_is_decided(world: World) -> None:
    client = producer(world)
    transaction = client.prepare(1, b"a")["transaction"]
    world.pass_time(5.9)
    assert questions(client) == []
    world.pass_time(0.2)
    assert questions(client) == [(transaction, 1, b"a")]
    world.pass_time(29.8)
    assert questions(client) == []
    world.pass_time(0.3)
    assert questions(client) == [(transaction, 2, b"a")]
    client.request("decide", transaction=transaction, commit=True)
    world.pass_time(1000)
    assert questions(client) == []
    assert published(world) == [b"a"]


def test_another_producer_of_the_group_is_asked_when_the_first_is_gone(world: World) -> None:
    first, second = producer(world), producer(world)
    others = [producer(world, group="h"), producer(world, topic="u")]
    transaction = first.prepare(1, b"a")["transaction"]
    first.lose()
    world.pass_time(6.1)
    assert questions(second) == [(transaction, 1, b"a")]
    assert [questions(other) for other in others] == [[], []]
    second.request("close", handle=1)
    world.pass_time(31)
    third = producer(world)
    world.pass_time(31)
    assert questions(third) == [(transaction, 2, b"a")]
    assert questions(second) == []


def test_the_producers_of_a_group_take_turns(world: World) -> None:
    one, other = producer(world, check_each_ms=1000), producer(world)
    one.prepare(1, b"a")
    world.pass_time(6.1)
    for _ in range(9):
        world.pass_time(1.1)
    assert (len(questions(one)), len(questions(other))) == (5, 5)


def test_a_producer_that_comes_late_is_asked_at_once(world: World) -> None:
    client = producer(world)
    transaction = client.prepare(1, b"a")["transaction"]
    world.restart(clean=False)
    world.pass_time(3600)
    assert questions(producer(world)) == [(transaction, 1, b"a")]


def test_after_a_restart_it_is_asked_about_when_it_would_have_been(world: World) -> None:
    producer(world).prepare(1, b"a")
    world.pass_time(2)
    world.restart()
    client = producer(world)
    world.pass_time(3.9)
    assert questions(client) == []
    world.pass_time(0.2)
    assert [body for _, _, body in questions(client)] == [b"a"]


def test_those_of_a_vhost_that_is_not_here_any_more_go(world: World) -> None:
    world.broker.administration.put_vhost("v")
    world.broker.authorizer.set("guest", "v", Permission(".*", ".*", ".*"))
    client = Client(world)
    world.broker.vhost("v").declare_queue("q", client.session.actor, durable=True)
    place = Place("v", "guest", "g", join_key_block("", "q"))
    world.broker.halves.prepare(client.session.identity, place, Rules(), HalfMessage(PLAIN, b"a"))
    world.broker.administration.delete_vhost("v")
    world.restart()
    assert (world.broker.statistics()["half"], list(world.log.tables.items("half"))) == (0, [])


# Giving up


def test_after_the_last_question_it_goes_to_the_dead_letter_topic(world: World) -> None:
    rules = {"check_after_ms": 1000, "check_each_ms": 2000, "max_checks": 3, "dead_letter": "dead"}
    client = producer(world, **rules)
    client.request("create_topic", topic="dead")
    transaction = client.prepare(1, b"a")["transaction"]
    for _ in range(4):
        world.pass_time(2.1)
    assert [checks for _, checks, _ in questions(client)] == [1, 2, 3]
    assert (published(world), published(world, "dead")) == ([], [b"a"])
    assert client.request("decide", transaction=transaction, commit=True)["code"] == UNKNOWN
    assert world.broker.statistics()["half_given_up"] == 1


@pytest.mark.parametrize("dead_letter", ["", "not there"])
def test_an_expired_half_message_is_given_up_even_without_a_check(world: World, dead_letter: str) -> None:
    client = producer(world, expires_ms=100_000, dead_letter=dead_letter)
    client.prepare(1, b"a")
    client.lose()
    world.pass_time(60)
    world.restart()
    assert world.broker.statistics()["half"] == 1
    world.pass_time(39)
    assert world.broker.statistics()["half"] == 1
    world.pass_time(2)
    statistics = world.broker.statistics()
    assert (statistics["half"], statistics["half_given_up"], statistics["half_checks"]) == (0, 1, 0)
    world.restart()
    assert (published(world), world.broker.statistics()["half"]) == ([], 0)


# Refusing


def test_a_message_that_could_be_refused_is_not_prepared(world: World) -> None:
    client = producer(world)
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    client.session.vhost.declare_queue("q", client.session.actor, durable=True, arguments=arguments)
    client.request("open_producer", handle=2, exchange="", routing_key="q", group="g")
    assert client.prepare(2, b"a")["code"] == "half_refused"
    place = Place("/", "guest", "g", join_key_block("", "nowhere"))
    with pytest.raises(NotFound):
        world.broker.halves.prepare(client.session.identity, place, Rules(), HalfMessage(PLAIN, b"a"))
    client.request("open_producer", handle=3, topic="t")
    assert client.prepare(3, b"a")["code"] == "unknown_handle"
    assert client.prepare(4, b"a")["code"] == "unknown_handle"
    assert client.prepare(1, b"a", b"\xff")["code"] == "malformed"
    copied = encode_properties({"headers": {"CC": "elsewhere"}})
    assert client.prepare(1, b"a", copied)["code"] == "reserved_header"
    assert (
        client.request("open_producer", handle=5, topic="t", group="g", max_checks=0)["code"] == "bad_field"
    )
    assert client.request("open_producer", handle=5, topic="t", max_checks=1)["code"] == "bad_field"
    transaction = client.prepare(1, b"a")["transaction"]
    client.request("delete_topic", topic="t")
    assert client.request("decide", transaction=transaction, commit=True)["code"] == "not_found"
    assert client.request("decide", transaction=transaction, commit=False) == {}


def test_a_torn_prepare_ends_the_connection(world: World) -> None:
    client = producer(world)
    client.send(wire.frame(0x15, 1, b"\0\0\0"))
    assert client.ended()["code"] == "malformed"


@pytest.mark.parametrize("limit", [("HALVES_MAX", 4), ("BYTES_MAX", 500)])
def test_no_more_are_kept_than_may_be(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, int]
) -> None:
    monkeypatch.setattr(half, *limit)
    client = producer(world)
    kept = [client.prepare(1, b"a"), client.prepare(1, b"b")]
    told = client.prepare(1, bytes(200))
    assert (told["code"], told["retryable"]) == ("too_many_halves", True)
    for one in kept:
        client.request("decide", transaction=one["transaction"], commit=False)
    assert "transaction" in client.prepare(1, bytes(200))


# Asked at an address


def test_failed_checks_do_not_count_and_connected_producers_are_asked_first(world: World) -> None:
    client = Client(world)
    client.request("create_topic", topic="t")
    asked: list[tuple[str, int]] = []
    reachable = False

    def courier(one: Half, message: HalfMessage) -> bool:
        if reachable:
            asked.append((one.name, one.checks))
        return reachable

    def prepare() -> tuple[int, int]:
        place = Place("/", "guest", "g", join_key_block("", "t"))
        rules = Rules(check_after_ms=1000, check_each_ms=1000, max_checks=2)
        message = HalfMessage(PLAIN, b"half")
        return world.broker.halves.prepare(
            client.session.identity, place, rules, message, name="n", ask_at="x:somewhere"
        )

    world.broker.halves.couriers["x"] = courier
    first, again = prepare(), prepare()
    assert first[0] == again[0]  # by its name it is kept once
    assert again[1] >= first[1], "who asks again waits until it is durable, too"
    world.pass_time(10)
    kept = world.broker.halves.named("n", "/", "guest")
    assert (kept.checks, asked) == (0, [])
    client.request("open_producer", handle=1, topic="t", group="g")
    assert (kept.checks, asked) == (1, [])  # a producer of its place is there
    client.request("close", handle=1)
    reachable = True
    world.pass_time(1.1)
    assert asked == [("n", 2)]
    world.restart()
    world.broker.halves.couriers["x"] = courier
    world.pass_time(1.1)
    assert asked == [("n", 2), ("n", 1)]  # counted anew
    for _ in range(2):
        world.pass_time(1.1)
    with pytest.raises(HalfUnknown):
        world.broker.halves.named("n", "/", "guest")
    assert asked == [("n", 2), ("n", 1), ("n", 2)]
