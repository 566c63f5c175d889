"""Outcomes of receivers: what counts as a failure, annotations of `modified`, dead letters, a restart."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from penstock.protocols.amqp10.codec.values import Symbol
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages.annotating import NOTE_MAX
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World

FAILED = Modified(delivery_failed=True)


class Reader:
    """A receiver that takes one message after the other."""

    def __init__(self, peer: Peer, queue: str) -> None:
        self.peer = peer
        self.handle = peer.attach(Source(queue))
        self.taken = 0

    def take(self) -> s.Message:
        self.peer.credit(self.handle, self.taken + 1)
        self.taken += 1
        payloads: list[bytes] = []
        deadline = monotonic() + 60
        while not payloads and monotonic() < deadline:  # it may have to be read from the disk
            self.peer.world.tick.schedule()
            self.peer.got()
            payloads = [payload for payload in self.peer.payloads if payload]
        (payload,) = payloads
        return s.parse_message(payload)

    def end(self, outcome: Any) -> None:
        number = self.taken - 1
        self.peer.send(Disposition(True, number, number, True, outcome))


@pytest.fixture
def quorum(peer: Peer) -> str:
    """A queue with a limit of two failures, one message, and dead letters in "dead"."""
    peer.declare("dead")
    peer.declare(
        "quorum",
        queue_type="quorum",
        delivery_limit=2,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    peer.transfer(peer.attach(Target("quorum")), message(b"m"))
    peer.got()
    return "quorum"


def counts(taken: s.Message) -> tuple[Any, Any, Any, Any]:
    """first-acquirer and delivery-count of the header, and the annotations."""
    annotations = taken.annotations
    return (
        taken.header[3],
        taken.header[4],
        annotations.get("x-delivery-count"),
        annotations.get("x-acquired-count"),
    )


def test_only_failures_count_as_deliveries_that_failed(peer: Peer, quorum: str) -> None:
    reader = Reader(peer, quorum)
    found = []
    for outcome in (Released(), FAILED, Modified(), None, Accepted()):
        found.append(counts(reader.take()))
        reader.end(outcome)
    assert found == [
        (True, 0, None, None),
        (False, 0, 0, 1),
        (False, 1, 1, 2),
        (False, 1, 1, 3),
        (False, 1, 1, 4),
    ]
    assert peer.ready(quorum) == 0


def test_a_message_that_is_released_often_is_no_dead_letter(peer: Peer, quorum: str) -> None:
    reader = Reader(peer, quorum)
    for _ in range(5):
        reader.take()
        reader.end(Released())
    assert (peer.ready(quorum), peer.ready("dead")) == (1, 0)
    for _ in range(3):
        reader.take()
        reader.end(FAILED)
    assert (peer.ready(quorum), peer.ready("dead")) == (0, 1)


def test_a_classic_queue_tells_no_counts_in_annotations(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"))
    reader = Reader(peer, "q")
    reader.take()
    reader.end(FAILED)
    assert counts(reader.take()) == (False, 1, None, None)


@pytest.mark.parametrize("end", [Detach(1, True), End(), Close()])
def test_a_link_that_its_client_ends_releases_what_it_held(
    world: World, peer: Peer, quorum: str, end: Any
) -> None:
    reader = Reader(peer, quorum)
    assert reader.handle == 1
    reader.take()
    peer.send(end)
    assert counts(Reader(Peer(world), quorum).take()) == (False, 0, 0, 1)


def test_a_connection_that_breaks_counts_as_a_failure(world: World, peer: Peer, quorum: str) -> None:
    Reader(peer, quorum).take()
    peer.session.lost()
    assert counts(Reader(Peer(world), quorum).take()) == (False, 1, 1, 1)


def test_annotations_of_modified_come_with_the_message_again(peer: Peer) -> None:
    sent = s.encode_section(s.ANNOTATIONS, {Symbol("x-opt-a"): "sent", Symbol("x-opt-b"): "sent"})
    peer.transfer(peer.attach(Target("q")), sent + s.encode_section(s.DATA, b"m"))
    peer.got()
    reader = Reader(peer, "q")
    reader.take()
    reader.end(Modified(False, False, {Symbol("x-opt-a"): ["first"], Symbol("x-opt-c"): 1}))
    reader.take()
    reader.end(Modified(True, False, {Symbol("x-opt-c"): 2}))
    again = reader.take()
    found = {str(key): value for key, value in again.annotations.items() if key.startswith("x-opt-")}
    assert found == {"x-opt-a": ["first"], "x-opt-b": "sent", "x-opt-c": 2}
    reader.end(Released())
    assert reader.take().annotations == again.annotations
    reader.end(Accepted())
    assert peer.ready("q") == 0


def test_annotations_of_undeliverable_here_are_in_the_dead_letter(
    world: World, peer: Peer, quorum: str
) -> None:
    reader = Reader(peer, quorum)
    reader.take()
    reader.end(Modified(True, False, {Symbol("x-opt-reason"): "slow"}))
    reader.take()
    reader.end(Modified(True, True, {Symbol("x-opt-last"): {"list": [1]}}))
    dead = Reader(peer, "dead").take()
    assert dead.annotations["x-opt-reason"] == "slow"
    assert dead.annotations["x-opt-last"] == {"list": [1]}
    assert dead.annotations["x-first-death-reason"] == "rejected"
    assert dead.data == b"m"


def test_counts_and_annotations_survive_a_restart(world: World, peer: Peer, quorum: str) -> None:
    reader = Reader(peer, quorum)
    for outcome in (FAILED, Released(), Modified(False, False, {Symbol("x-opt-a"): "kept"})):
        reader.take()
        reader.end(outcome)
    world.turn()
    world.restart()
    again = Reader(Peer(world), quorum).take()
    assert counts(again) == (False, 1, 1, 3)
    assert again.annotations["x-opt-a"] == "kept"


def test_annotations_within_a_transaction_wait_for_it(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"))
    peer.got()
    coordinator = peer.attach(Coordinator())
    peer.got()
    declared = peer.request(coordinator, Declare())
    reader = Reader(peer, "q")
    reader.take()
    modified = Modified(True, False, {Symbol("x-opt-a"): 1})
    reader.end(TransactionalState(declared.txn_id, modified))
    assert peer.ready("q") == 0
    assert peer.request(coordinator, Discharge(declared.txn_id)) == Accepted()
    again = reader.take()
    assert (again.header[4], again.annotations["x-opt-a"]) == (1, 1)


def test_too_many_annotations_end_the_session_and_change_nothing(world: World, peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"))
    peer.got()
    reader = Reader(peer, "q")
    reader.take()
    reader.end(Modified(False, True, {Symbol("x-opt-a"): "x" * NOTE_MAX}))
    (end,) = peer.got(End)
    assert end.error.condition == "amqp:resource-limit-exceeded"
    assert peer.ready("q") == 1


def test_annotations_of_a_queue_are_bounded(world: World, peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    for _ in range(80):
        peer.transfer(sender, message(b"m"), settled=True)
    peer.got()
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 80)
    peer.got()
    peer.send(Disposition(True, 0, 79, True, Modified(False, False, {Symbol("x-opt-a"): "x" * 15_000})))
    (end,) = peer.got(End)
    assert end.error.condition == "amqp:resource-limit-exceeded"
    assert peer.ready("q") == 80


def test_a_purge_forgets_annotations(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"))
    peer.got()
    reader = Reader(peer, "q")
    reader.take()
    reader.end(Modified(False, False, {Symbol("x-opt-a"): 1}))
    queue = peer.session.vhost.queues["q"].queue
    peer.got()
    (position,) = [pos for pos in range(1, 100) if queue.cursor.note_of(pos)]
    queue.purge()
    assert queue.cursor.note_of(position) == b""


@pytest.mark.parametrize("outcome", [Rejected(), Released(), Modified(False, False, {Symbol("x-opt-a"): 1})])
def test_a_message_of_a_stream_is_done_with_any_outcome(peer: Peer, outcome: Any) -> None:
    peer.declare("s", queue_type="stream")
    reader = Reader(peer, "s")
    peer.got()
    sender = peer.attach(Target("s"))
    for body in (b"first", b"second"):
        peer.transfer(sender, message(body))
    assert reader.take().data == b"first"
    reader.end(outcome)
    assert reader.take().data == b"second"
