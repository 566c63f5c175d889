"""Transactions: all of one happens, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from penstock.protocols.amqp10.connection_info import connection_facts
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World


def declared(peer: Peer) -> tuple[int, bytes]:
    """A coordinator, and the id of a transaction."""
    coordinator = peer.attach(Coordinator())
    peer.got()
    outcome = peer.request(coordinator, Declare())
    assert isinstance(outcome, Declared)
    return coordinator, outcome.txn_id


@pytest.mark.parametrize("fail", [False, True])
def test_messages_are_there_after_the_discharge_or_never(peer: Peer, fail: bool) -> None:
    coordinator, id_ = declared(peer)
    sender = peer.attach(Target("q"))
    for number in range(3):
        peer.transfer(sender, message(b"%d" % number), state=TransactionalState(id_))
    assert peer.outcomes() == [TransactionalState(id_, Accepted())] * 3
    assert peer.ready("q") == 0
    assert peer.request(coordinator, Discharge(id_, fail)) == Accepted()
    assert peer.ready("q") == (0 if fail else 3)
    assert peer.session.gathered == 0


def test_open_transactions_are_told_of(peer: Peer) -> None:
    coordinator, id_ = declared(peer)
    peer.transfer(peer.attach(Target("q")), message(b"12345"), state=TransactionalState(id_))
    peer.got()
    facts = connection_facts(peer.session)
    assert facts is not None
    (found,) = facts.transactions
    assert (found.id, found.messages, found.settled) == (id_.hex(), 1, 0)
    assert found.size >= 5
    assert found.opened_ms <= peer.world.log.wall_ms()
    peer.request(coordinator, Discharge(id_))
    facts = connection_facts(peer.session)
    assert facts is not None
    assert facts.transactions == []


def test_a_full_queue_refuses_all_of_a_transaction(peer: Peer) -> None:
    peer.declare("full", max_length=1, overflow="reject-publish")
    coordinator, id_ = declared(peer)
    for queue in ("q", "full", "full"):
        peer.transfer(peer.attach(Target(queue)), message(b"m"), state=TransactionalState(id_))
    peer.got()
    outcome = peer.request(coordinator, Discharge(id_))
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:transaction:rollback"
    assert (peer.ready("q"), peer.ready("full")) == (0, 0)


def test_a_message_that_was_refused_rolls_the_transaction_back(peer: Peer) -> None:
    coordinator, id_ = declared(peer)
    anonymous = peer.attach(Target())
    peer.transfer(anonymous, message(b"m"), state=TransactionalState(id_))
    (refused,) = peer.outcomes()
    assert isinstance(refused, Rejected)
    assert isinstance(peer.request(coordinator, Discharge(id_)), Rejected)


def received(peer: Peer, count: int) -> int:
    """Publish so many messages to "q" and receive them; the handle."""
    sender = peer.attach(Target("q"))
    for _ in range(count):
        peer.transfer(sender, message(b"m"))
    peer.got()
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, count)
    assert len(peer.got(Transfer)) == count
    return receiver


@pytest.mark.parametrize("fail", [False, True])
def test_messages_settled_in_a_failed_transaction_come_again(peer: Peer, fail: bool) -> None:
    coordinator, id_ = declared(peer)
    receiver = received(peer, 4)
    peer.send(Disposition(True, 0, 2, True, TransactionalState(id_, Accepted())))
    peer.request(coordinator, Discharge(id_, fail))
    peer.send(Detach(receiver, True))
    assert peer.ready("q") == (4 if fail else 1)


def test_settled_messages_do_not_come_again_after_a_restart(world: World, peer: Peer) -> None:
    coordinator, id_ = declared(peer)
    received(peer, 3)
    peer.send(Disposition(True, 0, 1, True, TransactionalState(id_, Accepted())))
    assert peer.request(coordinator, Discharge(id_)) == Accepted()
    world.restart()
    assert Peer(world).ready("q") == 1


def test_the_end_of_the_coordinator_rolls_back(peer: Peer) -> None:
    coordinator, id_ = declared(peer)
    sender = peer.attach(Target("q"))
    peer.transfer(sender, message(b"m"), state=TransactionalState(id_))
    peer.send(Detach(coordinator, True))
    assert peer.session.transactions == {}
    assert peer.session.gathered == 0
    peer.transfer(sender, message(b"m"), state=TransactionalState(id_))
    assert [one for one in peer.outcomes() if isinstance(one, Rejected)]
    assert peer.ready("q") == 0


def test_an_unknown_id_is_told_so(peer: Peer) -> None:
    coordinator, _ = declared(peer)
    outcome = peer.request(coordinator, Discharge(b"unknown"))
    assert outcome.error.condition == "amqp:transaction:unknown-id"
    received(peer, 1)
    peer.send(Disposition(True, 0, 0, True, TransactionalState(b"unknown", Accepted())))
    (end,) = peer.got(End)
    assert end.error.condition == "amqp:transaction:unknown-id"
    assert peer.ready("q") == 1


@pytest.mark.parametrize("value", [Declare(b"global"), Accepted()])
def test_a_request_that_is_none_of_the_coordinators_is_rejected(peer: Peer, value: Any) -> None:
    coordinator, _ = declared(peer)
    assert isinstance(peer.request(coordinator, value), Rejected)


def test_open_transactions_and_their_bytes_are_bounded(world: World) -> None:
    peer = Peer(world, max_message_bytes=10_000)
    peer.declare("q")
    coordinator, id_ = declared(peer)
    sender = peer.attach(Target("q"))
    for _ in range(3):
        peer.transfer(sender, message(b"x" * 4000), state=TransactionalState(id_))
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    while isinstance(outcome := peer.request(coordinator, Declare()), Declared):
        assert len(peer.session.transactions) <= 64
    assert outcome.error.condition == "amqp:resource-limit-exceeded"
    assert isinstance(peer.request(coordinator, Discharge(id_)), Rejected)
    assert peer.session.gathered == 0
