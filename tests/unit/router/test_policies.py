"""Policies: which one counts, what it comes to with arguments and operator policies; it holds at once."""

from __future__ import annotations

import logging

import pytest

from penstock.router.errors import InvalidParameter, NotFound
from penstock.router.policies.definitions import merge_operator, with_policy
from penstock.router.policies.policies import Policy
from tests.unit.router.conftest import World

UNKNOWN = "are not recognised policy settings"


def put(world: World, name: str, pattern: str, definition: object, **options: object) -> int:
    return world.broker.administration.put_policy(
        "/", name, pattern=pattern, definition=definition, **options
    )


def effective(world: World, name: str) -> dict[str, object]:
    return dict(world.vhost.queues[name].effective)


def test_a_policy_holds_for_queues_that_are_there_and_that_come(world: World) -> None:
    queue = world.queue("orders.1")
    world.queue("other")
    for body in "abc":
        world.publish("", "orders.1", body)
    assert put(world, "short", "^orders\\.", {"max-length": 1})
    assert not put(world, "short", "^orders\\.", {"max-length": 1})
    world.loop.settle()
    assert world.read(queue) == ["c"]
    world.queue("orders.2")
    assert effective(world, "orders.2") == {"x-max-length": 1} and effective(world, "other") == {}
    # Its pattern is another one now: who was in it is out.
    put(world, "short", "^other$", {"max-length": 1})
    assert effective(world, "orders.1") == {} and effective(world, "other") == {"x-max-length": 1}
    world.broker.administration.delete_policy("/", "short")
    assert effective(world, "other") == {}
    with pytest.raises(NotFound, match="no policy 'short' in vhost '/'"):
        world.broker.administration.delete_policy("/", "short")


def test_very_many_queues_are_policed_over_several_turns(world: World) -> None:
    names = [f"orders.{i}" for i in range(1200)]
    for name in names:
        world.queue(name)
    put(world, "short", "^orders\\.", {"max-length": 1})
    held = sum(bool(effective(world, name)) for name in names)
    assert 0 < held < len(names), "the loop was not kept for all of them"
    world.vhost.delete_queue("orders.0", world.actor)
    put(world, "short", "^orders\\.", {"max-length": 2})
    world.loop.settle()
    assert all(effective(world, name) == {"x-max-length": 2} for name in names[1:])


def test_the_highest_priority_counts_alone(world: World) -> None:
    world.queue("q")
    put(world, "b", "", {"max-length": 1, "message-ttl": 5})
    put(world, "a", "", {"max-length": 2})
    assert effective(world, "q") == {"x-max-length": 2}
    put(world, "b", "", {"max-length": 1, "message-ttl": 5}, priority=1)
    assert effective(world, "q") == {"x-max-length": 1, "x-message-ttl": 5}
    assert [policy.name for policy in world.vhost.policies.all("policy")] == ["b", "a"]
    found = world.vhost.policies.of("policy", "q", "classic")
    assert found is not None and found.name == "b"


def test_arguments_narrow_and_operator_policies_narrow_more(world: World) -> None:
    arguments = {"x-max-length": 10, "x-message-ttl": 10, "x-overflow": "reject-publish"}
    world.queue("q", arguments=arguments)
    put(world, "p", "q", {"max-length": 20, "message-ttl": 5, "overflow": "drop-head", "expires": 1000})
    assert effective(world, "q") == {
        "x-max-length": 10, "x-message-ttl": 5, "x-overflow": "reject-publish", "x-expires": 1000
    }  # fmt: skip
    put(world, "o", "q", {"max-length": 8, "expires": 2000, "delivery-limit": 3}, operator=True)
    # A classic queue has no delivery limit: the operator policy is not for it.
    assert effective(world, "q")["x-max-length"] == 10
    put(world, "o", "q", {"max-length": 8, "expires": 2000}, operator=True)
    assert effective(world, "q")["x-max-length"] == 8 and effective(world, "q")["x-expires"] == 1000
    world.broker.administration.delete_policy("/", "p")
    assert effective(world, "q") == {**arguments, "x-max-length": 8, "x-expires": 2000}


@pytest.mark.parametrize(
    ("apply_to", "queues", "exchanges"),
    [
        ("all", "cqs", True),
        ("queues", "cqs", False),
        ("classic_queues", "c", False),
        ("quorum_queues", "q", False),
        ("streams", "s", False),
        ("exchanges", "", True),
    ],
)
def test_apply_to_says_what_it_is_for(apply_to: str, queues: str, exchanges: bool) -> None:
    policy = Policy("p", "^x", {"max-length-bytes": 1}, apply_to=apply_to)
    for type_ in ("classic", "quorum", "stream"):
        name = {"classic": "c", "quorum": "q", "stream": "s"}[type_]
        assert policy.matches("x", type_) is (name in queues)
        assert not policy.matches("y", type_)
    assert policy.matches("x1", "exchange") is exchanges


@pytest.mark.parametrize(
    ("key", "value", "types"),
    [
        ("max-length", 1, "classic quorum"),
        ("delivery-limit", 1, "quorum"),
        ("dead-letter-strategy", "at-least-once", "quorum"),
        ("max-age", "1D", "stream"),
        ("queue-mode", "lazy", "classic"),
        ("max-length-bytes", 1, "classic quorum stream"),
    ],
)
def test_a_policy_with_a_key_that_a_type_has_not_is_not_for_it(key: str, value: object, types: str) -> None:
    policy = Policy("p", "", {key: value, "max-length-bytes": 5})
    assert [t for t in ("classic", "quorum", "stream") if policy.matches("x", t)] == types.split()


def test_definitions_merge() -> None:
    assert merge_operator({"max-length": 5, "overflow": "drop-head", "expires": 1}, {
        "max-length": 7, "overflow": "reject-publish", "delivery-limit": 2
    }) == {"max-length": 5, "overflow": "reject-publish", "expires": 1, "delivery-limit": 2}  # fmt: skip
    assert merge_operator({"delivery-limit": -1}, {"delivery-limit": 9}) == {"delivery-limit": 9}
    own: dict[str, object] = {"x-max-length-bytes": 5, "x-max-age": "1D"}
    assert with_policy(own, {"max-length-bytes": 9, "max-age": "2h"}, "stream") == {
        "x-max-length-bytes": 9,
        "x-max-age": "2h",
    }
    assert with_policy({"x-max-age": "1h"}, {"max-age": "1D"}, "stream") == {"x-max-age": "1h"}
    # A routing key without an exchange leads nowhere.
    assert with_policy({}, {"dead-letter-routing-key": "k"}, "classic") == {}
    own = {"x-dead-letter-exchange": "mine"}
    assert with_policy(own, {"dead-letter-exchange": "x", "dead-letter-routing-key": "k"}, "quorum") == {
        **own, "x-dead-letter-routing-key": "k"
    }  # fmt: skip


def test_an_exchange_gets_its_alternate_from_a_policy(world: World) -> None:
    world.exchange("ae", "fanout")
    world.exchange("x")
    world.exchange("own", arguments={"alternate-exchange": "amq.direct"})
    world.queue("q")
    world.bind("q", "ae")
    assert not world.publish("x", "k")
    put(world, "p", "^(own|x|late|amq.topic|)$", {"alternate-exchange": "ae"}, apply_to="exchanges")
    assert world.publish("x", "k") and world.publish("amq.topic", "k") and world.publish_mqtt("k/l")
    assert not world.publish("own", "k") and not world.publish("", "nobody")
    world.exchange("late")
    assert world.publish("late", "k")
    world.broker.administration.delete_policy("/", "p")
    assert not world.publish("x", "k") and not world.publish("late", "k")


def test_policies_survive_a_restart_and_go_with_their_vhost(world: World) -> None:
    world.queue("q", durable=True)
    world.exchange("x", durable=True)
    put(world, "p", "", {"max-length": 5, "alternate-exchange": "amq.fanout"}, priority=2, apply_to="all")
    put(world, "o", "", {"max-length": 3}, operator=True)
    world.restart()
    assert effective(world, "q") == {"x-max-length": 3}
    assert world.vhost.exchanges["x"].alternate == "amq.fanout"
    (policy,) = world.vhost.policies.all("policy")
    assert policy == Policy("p", "", {"max-length": 5, "alternate-exchange": "amq.fanout"}, 2, "all")
    assert world.rows("policy") == 2
    world.broker.administration.delete_vhost("/")
    assert world.rows("policy") == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
        ({"definition": {"max-length": True}}, "true is not a valid maximum length"),
        ({"definition": {"max-length-bytes": "5"}}, '<<"5">> is not a valid maximum length in bytes'),
        ({"definition": {"message-ttl": 1.5}}, "1.5 is not a valid message TTL"),
        ({"definition": {"expires": 0}}, "0 is not a valid queue expiry"),
        ({"definition": {"overflow": "drop"}}, '<<"drop">> is not a valid overflow value'),
        ({"definition": {"dead-letter-exchange": 5}}, "5 is not a valid dead letter exchange name"),
        ({"definition": {"dead-letter-routing-key": [1]}}, "[1] is not a valid dead letter routing key"),
        ({"definition": {"dead-letter-strategy": "x"}}, '<<"x">> is not a valid dead letter strategy'),
        ({"definition": {"alternate-exchange": None}}, "null is not a valid alternate exchange name"),
        ({"definition": {"delivery-limit": "1"}}, '<<"1">> is not a valid delivery limit'),
        ({"definition": {"max-age": "1Q"}}, '<<"1Q">> is not a valid max age'),
        ({"definition": {"queue-mode": "fast"}}, '<<"fast">> is not a valid queue-mode value'),
        ({"definition": {"queue-leader-locator": "x"}}, '<<"x">> is not a valid queue leader locator value'),
        ({"definition": {"foo": 1, "bar": "x"}}, f'[{{<<"bar">>,<<"x">>}},{{<<"foo">>,1}}] {UNKNOWN}'),
        ({"definition": {"max-age": "1D"}, "operator": True}, f'[{{<<"max-age">>,<<"1D">>}}] {UNKNOWN}'),
        ({"definition": []}, "definition must be a dictionary: []"),
        ({"definition": {}}, "no policy provided"),
        ({"pattern": "("}, "pattern should be regular expression but is invalid: missing ): ("),
        ({"pattern": 5}, "pattern should be a binary but was 5"),
        ({"priority": "1"}, "priority should be a number, actually was '1'"),
        ({"apply_to": "nodes"}, "apply-to 'nodes' unrecognised; should be one of: 'queues', "
         "'classic_queues', 'quorum_queues', 'streams', 'exchanges', or 'all'"),
        ({"name": ""}, "a policy needs a name of 1 to 255 bytes"),
    ],
)  # fmt: skip
def test_an_invalid_policy_is_refused_with_the_text_of_rabbitmq(
    world: World, options: dict[str, object], text: str
) -> None:
    given = {"name": "p", "pattern": "", "definition": {"max-length": 1}, **options}
    with pytest.raises(InvalidParameter) as refused:
        put(world, **given)  # type: ignore[arg-type]
    assert refused.value.message == text
    assert not world.rows("policy")


def test_keys_without_effect_are_kept_and_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.router"):
        put(world, "ha", "", {"ha-mode": "all", "max-length": 1, "queue-mode": "lazy"})
    assert "ha-mode, queue-mode is kept and has no effect here" in caplog.text
    policy = world.vhost.policies.get("policy", "ha")
    assert policy is not None and policy.definition["ha-mode"] == "all"
    with pytest.raises(NotFound):
        world.broker.administration.put_policy("nope", "p", pattern="", definition={"max-length": 1})
