"""Annotations `x-penstock-...` of messages: producer numbers, half messages. Exchanges without duplicates."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Detach,
    Rejected,
    Released,
    Source,
    Target,
)
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World


def numbered(number: int, name: str = "p") -> bytes:
    return message(b"%d" % number, penstock_producer=name, penstock_sequence=number)


def publish(peer: Peer, sender: int, payload: bytes) -> Any:
    peer.transfer(sender, payload)
    (outcome,) = peer.outcomes()
    return outcome


@pytest.fixture
def sender(peer: Peer) -> int:
    handle = peer.attach(Target("q"))
    peer.got()
    return handle


# Numbered messages


def test_a_number_that_came_before_is_accepted_and_not_kept_again(peer: Peer, sender: int) -> None:
    for number in (1, 2, 2, 1, 5):
        assert publish(peer, sender, numbered(number)) == Accepted()
    assert peer.ready("q") == 3
    assert publish(peer, sender, numbered(1, "another")) == Accepted()
    assert peer.ready("q") == 4


def test_a_producer_is_known_after_a_restart_and_on_another_connection(world: World, peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.got()
    publish(peer, sender, numbered(7))
    world.restart()
    again = Peer(world)
    sender = again.attach(Target("q"))
    again.got()
    assert publish(again, sender, numbered(7)) == Accepted()
    assert again.ready("q") == 1


def test_after_a_number_was_refused_higher_ones_are_until_it_comes_again(world: World) -> None:
    peer = Peer(world)
    peer.declare("small", max_length=1, overflow="reject-publish")
    sender = peer.attach(Target("small"))
    peer.got()
    assert publish(peer, sender, numbered(1)) == Accepted()
    assert isinstance(publish(peer, sender, numbered(2)), Rejected)
    world.broker.vhost("/").queues["small"].queue.purge()
    assert isinstance(publish(peer, sender, numbered(3)), Rejected)
    assert publish(peer, sender, numbered(2)) == Accepted()
    world.broker.vhost("/").queues["small"].queue.purge()
    assert publish(peer, sender, numbered(3)) == Accepted()


@pytest.mark.parametrize(
    "annotations",
    [
        {"penstock_producer": "p"},
        {"penstock_sequence": 1},
        {"penstock_producer": "p", "penstock_sequence": "1"},
        {"penstock_producer": "", "penstock_sequence": 1},
        {"penstock_half": "h"},
        {"penstock_half": "h", "penstock_commit": "h"},
        {"penstock_check_queue": "q"},
    ],
)
def test_wrong_annotations_of_ours_are_refused(peer: Peer, sender: int, annotations: dict[str, Any]) -> None:
    outcome = publish(peer, sender, message(b"m", **annotations))
    assert isinstance(outcome, Rejected)
    assert outcome.error.condition == "amqp:invalid-field"
    assert peer.ready("q") == 0


def test_an_exchange_that_looks_for_duplicates_routes_each_value_once(world: World, peer: Peer) -> None:
    vhost, actor = peer.session.vhost, peer.session.actor
    vhost.declare_exchange("once", "x-message-deduplication", actor, arguments={"x-cache-size": 10})
    vhost.bind_queue("q", "once", "", actor)
    sender = peer.attach(Target("/exchanges/once"))
    peer.got()
    for value in ("a", "b", "a"):
        assert publish(peer, sender, message(b"m", **{"deduplication-header": value})) == Accepted()
    assert peer.ready("q") == 2


# Half messages


def half(peer: Peer, sender: int, name: str = "h") -> Any:
    return publish(peer, sender, message(b"m", penstock_half=name, penstock_check_queue="asked"))


@pytest.fixture
def asked(peer: Peer) -> None:
    peer.declare("asked")


@pytest.mark.usefixtures("asked")
def test_a_half_message_is_published_when_it_is_committed(peer: Peer, sender: int) -> None:
    assert half(peer, sender) == Accepted()
    assert peer.ready("q") == 0
    assert publish(peer, sender, message(b"", penstock_commit="h")) == Accepted()
    assert peer.ready("q") == 1


@pytest.mark.usefixtures("asked")
def test_its_consumer_does_not_see_that_it_was_a_half_message(peer: Peer, sender: int) -> None:
    half(peer, sender)
    publish(peer, sender, message(b"", penstock_commit="h"))
    peer.credit(peer.attach(Source("q")), 1)
    peer.got()
    payload = next(one for one in peer.payloads if one)
    parsed = s.parse_message(payload)
    assert parsed.data == b"m"
    assert not [name for name in parsed.annotations if "penstock" in name]


@pytest.mark.usefixtures("asked")
def test_a_half_message_is_forgotten_when_it_is_rolled_back(peer: Peer, sender: int) -> None:
    half(peer, sender)
    assert publish(peer, sender, message(b"", penstock_rollback="h")) == Accepted()
    outcome = publish(peer, sender, message(b"", penstock_commit="h"))
    assert isinstance(outcome, Rejected)
    assert outcome.error.condition == "amqp:not-found"
    assert peer.ready("q") == 0


def test_a_half_message_needs_a_queue_where_is_asked(peer: Peer, sender: int) -> None:
    outcome = half(peer, sender)
    assert isinstance(outcome, Rejected)
    assert outcome.error.condition == "amqp:not-found"


@pytest.mark.usefixtures("asked")
def test_a_half_message_that_goes_nowhere_is_released(peer: Peer) -> None:
    sender = peer.attach(Target("/exchanges/amq.direct/none"))
    peer.got()
    assert half(peer, sender) == Released()


@pytest.mark.usefixtures("asked")
def test_a_settled_half_message_that_is_refused_ends_its_link(peer: Peer, sender: int) -> None:
    peer.transfer(sender, message(b"", penstock_commit="unknown"), settled=True)
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:not-found"
