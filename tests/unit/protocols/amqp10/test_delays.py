"""Delays by annotations: names, cancelling, and exchanges that delay, as AMQP 0-9-1 has them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Declare,
    Discharge,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from penstock.protocols.amqp10.codec.performatives import Coordinator as CoordinatorTarget
from penstock.protocols.amqp10.codec.values import Symbol
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World


def publish(peer: Peer, sender: int, payload: bytes) -> Any:
    peer.transfer(sender, payload)
    (outcome,) = peer.outcomes()
    return outcome


@pytest.fixture
def sender(peer: Peer) -> int:
    handle = peer.attach(Target("q"))
    peer.got()
    return handle


def test_our_own_annotations_delay_a_message_and_do_not_arrive(world: World, peer: Peer, sender: int) -> None:
    at_ms = world.log.wall_ms() + 2000
    assert publish(peer, sender, message(b"1", penstock_deliver_after=1000)) == Accepted()
    assert publish(peer, sender, message(b"2", penstock_deliver_at=at_ms, other=1)) == Accepted()
    assert peer.ready("q") == 0
    world.later(1.1)
    assert peer.ready("q") == 1
    world.later(1.0)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 10)
    assert peer.bodies() == [b"1", b"2"]
    found = [s.parse_message(payload).annotations for payload in peer.payloads if payload]
    assert [{str(name) for name in one if "penstock" in name} for one in found] == [set(), set()]
    assert found[1][Symbol("x-other")] == 1


def test_a_message_is_cancelled_and_moved_by_its_name(world: World, peer: Peer, sender: int) -> None:
    for body, after in ((b"1", 1000), (b"2", 3000)):
        delayed = message(body, penstock_deliver_after=after, penstock_delay_id="order 7")
        assert publish(peer, sender, delayed) == Accepted()
    world.later(2.0)
    assert peer.ready("q") == 0
    world.later(1.1)
    assert peer.ready("q") == 1
    named = message(b"3", opt_delivery_delay=1000, penstock_delay_id="order 8")
    assert publish(peer, sender, named) == Accepted()
    cancel = message(b"", penstock_cancel="order 8")
    assert publish(peer, sender, cancel) == Accepted()
    assert publish(peer, sender, cancel) == Released()
    world.later(2.0)
    assert peer.ready("q") == 1


def test_a_transaction_cancels_when_it_is_discharged(world: World, peer: Peer, sender: int) -> None:
    assert (
        publish(peer, sender, message(b"1", penstock_deliver_after=1000, penstock_delay_id="n")) == Accepted()
    )
    coordinator = peer.attach(CoordinatorTarget())
    peer.got()
    id_ = peer.request(coordinator, Declare()).txn_id
    peer.transfer(sender, message(b"", penstock_cancel="n"), state=TransactionalState(id_))
    assert peer.outcomes() == [TransactionalState(id_, Accepted())]
    assert peer.request(coordinator, Discharge(id_, False)) == Accepted()
    world.later(1.1)
    assert peer.ready("q") == 0


@pytest.mark.parametrize(
    "annotations",
    [
        {"penstock_deliver_after": "soon"},
        {"penstock_deliver_after": 5, "penstock_deliver_at": 5},
        {"penstock_deliver_after": 5, "opt_delivery_delay": 5},
        {"penstock_delay_id": ""},
        {"penstock_delay_id": "a", "penstock_cancel": "a"},
        {"penstock_deliver_after": 2**62},
        {"delay": "never"},
        {"penstock_half": "h", "penstock_check_queue": "q", "penstock_deliver_after": 5},
    ],
)
def test_a_wrong_delay_is_rejected(peer: Peer, sender: int, annotations: dict[str, Any]) -> None:
    assert isinstance(publish(peer, sender, message(b"", **annotations)), Rejected)


def test_an_exchange_that_delays_holds_a_message(world: World, peer: Peer) -> None:
    vhost, actor = peer.session.vhost, peer.session.actor
    vhost.declare_exchange("later", "x-delayed-message", actor, arguments={"x-delayed-type": "direct"})
    vhost.bind_queue("q", "later", "k", actor)
    sender = peer.attach(Target("/exchanges/later/k"))
    peer.got()
    assert publish(peer, sender, message(b"1", delay=1000)) == Accepted()
    assert publish(peer, sender, message(b"2", delay=0)) == Accepted()
    assert peer.ready("q") == 1
    world.later(1.1)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 10)
    assert peer.bodies() == [b"2", b"1"]
    found = [s.parse_message(payload).annotations[Symbol("x-delay")] for payload in peer.payloads if payload]
    assert found == [0, -1000]
