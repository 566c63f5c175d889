"""Links that end and come again: unsettled deliveries, settlement in two steps, default outcomes.

Part 2, sections 2.6.3, 2.6.12, 2.6.13, 2.7.3 and 2.7.5; part 3, section 3.5.3.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec._decoding import decode
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    encode_composite,
)
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World

SECOND = 1


class Subscriber:
    """A client with a durable subscription to the topic "news", on one connection after another."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connect()

    def connect(self) -> None:
        self.peer = Peer(self.world)

    def lose(self) -> None:
        """The connection is lost, and there is another one."""
        self.peer.session.lost()
        self.world.clients.remove(self.peer)
        self.connect()

    def attach(self, unsettled: dict[bytes, Any] | None = None, **fields: Any) -> Attach:
        """Attach the link; what it answers."""
        known = None
        if unsettled is not None:
            known = {tag: None if state is None else described(state) for tag, state in unsettled.items()}
        source = Source("topic://news", 2, "never")
        link = Attach("sub", 0, True, source=source, target=Target(), unsettled=known, **fields)
        self.peer.send(link)
        (answer,) = self.peer.got(Attach)
        assert isinstance(answer, Attach)
        return answer

    def transfers(self, credit: int = 100) -> list[Transfer]:
        """The transfers that come with so much credit from now on."""
        self.peer.send(Flow(0, 1000, 0, 1000, 0, None, credit))
        return self.peer.got(Transfer)

    def publish(self, *bodies: bytes) -> None:
        other = Peer(self.world)
        sender = other.attach(Target("topic://news"))
        for body in bodies:
            other.transfer(sender, message(body), settled=True)
        other.got()

    @property
    def queue(self) -> Any:
        self.world.turn()
        return self.world.broker.vhost("/").queues["subscription/peer/sub"].queue


def described(state: Any) -> Any:
    return decode(encode_composite(state))


@pytest.fixture
def subscriber(world: World) -> Subscriber:
    made = Subscriber(world)
    made.attach()
    made.publish(b"1", b"2", b"3")
    return made


# Resuming


def test_2_6_13_a_delivery_whose_outcome_the_receiver_has_is_settled_with_it(subscriber: Subscriber) -> None:
    tags = [one.delivery_tag for one in subscriber.transfers(2)]
    subscriber.lose()
    answer = subscriber.attach({tags[0]: Accepted(), tags[1]: Accepted()})
    assert answer.unsettled == {tags[0]: None, tags[1]: None}
    first, second, new = subscriber.transfers(3)
    assert [one.delivery_tag for one in (first, second)] == tags
    assert first.resume and first.settled and first.state == Accepted()
    assert not new.resume and not new.settled
    assert subscriber.queue.ready_count == 0


def test_2_6_13_a_delivery_without_an_outcome_is_forgotten_and_comes_as_a_new_one(
    subscriber: Subscriber,
) -> None:
    (out,) = subscriber.transfers(1)
    subscriber.lose()
    assert subscriber.attach({out.delivery_tag: None}).unsettled == {}
    again = subscriber.transfers()
    assert len(again) == 3
    assert out.delivery_tag not in [one.delivery_tag for one in again]
    assert not any(one.resume for one in again)


def test_2_6_13_a_delivery_that_the_receiver_does_not_know_comes_again(subscriber: Subscriber) -> None:
    first, _ = subscriber.transfers(2)
    subscriber.lose()
    assert subscriber.attach({first.delivery_tag: Accepted()}).unsettled == {first.delivery_tag: None}
    assert [one.resume for one in subscriber.transfers()] == [True, False, False]


def test_2_6_13_a_tag_that_the_sender_does_not_know_is_not_in_its_map(subscriber: Subscriber) -> None:
    subscriber.lose()
    assert subscriber.attach({b"never seen": Accepted()}).unsettled == {}
    assert [one.resume for one in subscriber.transfers()] == [False, False, False]


def test_2_6_3_a_null_map_resumes_nothing_and_all_comes_again(subscriber: Subscriber) -> None:
    subscriber.transfers(2)
    subscriber.lose()
    assert subscriber.attach().unsettled is None
    assert len(subscriber.transfers()) == 3


def test_2_6_13_other_outcomes_have_their_effect_too(subscriber: Subscriber) -> None:
    one, two, three = (one.delivery_tag for one in subscriber.transfers())
    subscriber.lose()
    states = {one: Rejected(), two: Released(), three: Modified(True, False, None)}
    subscriber.attach(states)
    assert subscriber.queue.ready_count == 2
    assert [one.state for one in subscriber.transfers(3)] == list(states.values())


@pytest.mark.parametrize("ends", ["detach", "end", "lost"])
def test_2_6_3_a_link_is_suspended_by_its_detach_and_by_the_end_below_it(
    subscriber: Subscriber, ends: str
) -> None:
    (out,) = subscriber.transfers(1)
    if ends == "detach":
        subscriber.peer.send(Detach(0, False))
    elif ends == "end":
        subscriber.peer.send(End())
        subscriber.peer.send(Begin(None, 0, 1000, 1000))
    else:
        subscriber.lose()
    subscriber.peer.got()
    assert subscriber.attach({out.delivery_tag: Accepted()}).unsettled == {out.delivery_tag: None}


def test_2_6_3_a_stolen_link_is_resumed_by_the_one_that_stole_it(subscriber: Subscriber) -> None:
    (out,) = subscriber.transfers(1)
    subscriber.connect()
    assert subscriber.attach({out.delivery_tag: Accepted()}).unsettled == {out.delivery_tag: None}


def test_2_7_3_an_incomplete_map_is_no_evidence_and_gets_no_new_delivery(subscriber: Subscriber) -> None:
    first, second = subscriber.transfers(2)
    subscriber.lose()
    subscriber.attach({first.delivery_tag: Accepted()}, incomplete_unsettled=True)
    assert [one.delivery_tag for one in subscriber.transfers()] == [first.delivery_tag]
    subscriber.peer.send(Detach(0, False))
    subscriber.peer.got()
    answer = subscriber.attach({second.delivery_tag: Accepted()})
    assert answer.unsettled == {second.delivery_tag: None}
    assert [one.resume for one in subscriber.transfers()] == [True, False]


def test_resumed_deliveries_wait_for_credit_and_a_drain_gives_the_rest_back(
    world: World, subscriber: Subscriber
) -> None:
    tags = [one.delivery_tag for one in subscriber.transfers(3)]
    subscriber.lose()
    subscriber.attach(dict.fromkeys(tags, Accepted()))
    assert len(subscriber.transfers(2)) == 2
    subscriber.peer.send(Flow(0, 1000, 0, 1000, 0, 2, 5, drain=True))
    assert len(subscriber.peer.got(Transfer)) == 1
    world.later(1)
    (flow,) = subscriber.peer.got(Flow)
    assert (flow.delivery_count, flow.link_credit) == (7, 0)


def test_a_delivery_that_is_not_resumed_within_a_minute_goes_back(
    world: World, subscriber: Subscriber
) -> None:
    (out,) = subscriber.transfers(1)
    subscriber.lose()
    assert subscriber.queue.ready_count == 2
    world.later(61)
    assert subscriber.queue.ready_count == 3
    assert subscriber.attach({out.delivery_tag: Accepted()}).unsettled == {}


def test_tags_of_one_subscription_differ_from_link_to_link(subscriber: Subscriber) -> None:
    first = {one.delivery_tag for one in subscriber.transfers()}
    subscriber.lose()
    subscriber.attach({})
    second = {one.delivery_tag for one in subscriber.transfers()}
    assert len(first) == len(second) == 3
    assert not first & second


def test_2_7_5_resumed_deliveries_that_are_not_in_the_map_are_ignored(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.transfer(sender, message(b"again"), resume=True)
    peer.send(Transfer(sender, 1, b"1", 0, more=True, resume=True), payload=message(b"a"))
    peer.send(Transfer(sender, more=False), payload=b"")
    assert peer.ready("q") == 0
    assert peer.outcomes() == []
    peer.send(Transfer(sender, 2, b"2", 0), payload=message(b"new"))
    assert peer.ready("q") == 1


# Settlement in two steps


def dispositions(peer: Peer) -> list[tuple[bool, int, bool | None, Any]]:
    return [(one.role, one.first, one.settled, one.state) for one in peer.got(Disposition)]


@pytest.mark.parametrize("many", [False, True])
def test_2_6_12_a_receiver_of_mode_second_settles_after_the_sender_did(peer: Peer, many: bool) -> None:
    sender = peer.attach(Target("q"), rcv_settle_mode=SECOND)
    (answer,) = peer.got(Attach)
    assert answer.rcv_settle_mode == SECOND
    if many:
        peer.send(Transfer(sender, 0, b"0", 0, more=True), payload=message(b"m"))
        peer.send(Transfer(sender, more=False), payload=b"")
    else:
        peer.transfer(sender, message(b"m"))
    assert dispositions(peer) == [(True, 0, False, Accepted())]
    peer.send(Disposition(False, 0, None, True, Accepted()))
    assert peer.got() == []
    assert peer.ready("q") == 1


def test_2_7_5_a_transfer_may_choose_first_on_a_link_of_mode_second(peer: Peer) -> None:
    sender = peer.attach(Target("q"), rcv_settle_mode=SECOND)
    peer.got()
    peer.transfer(sender, message(b"m"), rcv_settle_mode=0)
    assert dispositions(peer) == [(True, 0, True, Accepted())]
    peer.transfer(sender, message(b"m"))
    assert dispositions(peer) == [(True, 1, False, Accepted())]


def test_2_7_5_a_transfer_may_not_choose_second_on_a_link_of_mode_first(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.got()
    peer.transfer(sender, message(b"m"), rcv_settle_mode=SECOND)
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:invalid-field"
    assert peer.ready("q") == 0


def test_2_6_12_a_sender_settles_for_a_receiver_of_mode_second_when_that_is_on_disk(
    world: World, peer: Peer
) -> None:
    sender = peer.attach(Target("q"))
    for _ in range(2):
        peer.transfer(sender, message(b"m"), settled=True)
    receiver = peer.attach(Source("q"), rcv_settle_mode=SECOND)
    peer.credit(receiver, 2)
    attach, *_ = [one for one in peer.got(Attach) if not one.role]
    assert attach.rcv_settle_mode == SECOND
    peer.send(Disposition(True, 0, 1, False, Accepted()))
    assert next(iter(peer.session.channels.values())).unsettled == 0
    assert dispositions(peer) == [(False, 0, True, Accepted())]
    world.restart()
    assert world.broker.vhost("/").queues["q"].queue.ready_count == 0


# Default outcomes


@pytest.mark.parametrize(
    ("outcome", "left"),
    [(None, 2), (Released(), 2), (Accepted(), 0), (Rejected(), 0), (Modified(True, False, None), 2)],
)
@pytest.mark.parametrize("ends", ["settled", "detached", "lost"])
def test_3_5_3_the_default_outcome_is_that_of_what_is_settled_without_one(
    world: World, peer: Peer, outcome: Any, left: int, ends: str
) -> None:
    sender = peer.attach(Target("q"))
    for _ in range(2):
        peer.transfer(sender, message(b"m"), settled=True)
    other = Peer(world)
    receiver = other.attach(Source("q", default_outcome=outcome))
    other.credit(receiver, 2)
    answer = other.got(Attach)[0]
    assert answer.source.default_outcome == (outcome or Released())
    if ends == "settled":
        other.send(Disposition(True, 0, 1, True, None))
        other.send(Detach(receiver, True))
    elif ends == "detached":
        other.send(Detach(receiver, True))
    else:
        other.session.lost()
        world.clients.remove(other)
    assert peer.ready("q") == left


def test_3_5_3_a_default_outcome_that_is_none_is_refused(peer: Peer) -> None:
    peer.attach(Source("q", default_outcome=Received(0, 0)))
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:invalid-field"


def test_2_7_6_deliveries_of_a_detached_link_are_settled_in_their_session(subscriber: Subscriber) -> None:
    first, second, third = (one.delivery_id for one in subscriber.transfers(3))
    peer = subscriber.peer
    peer.send(Detach(0, False))
    peer.got()
    assert subscriber.queue.ready_count == 0
    peer.send(Disposition(True, first, None, True, Accepted()))
    peer.send(Disposition(True, second, None, False, Rejected()))
    (answer,) = peer.got(Disposition)
    assert (answer.first, answer.settled, answer.state) == (second, True, Rejected())
    peer.send(Disposition(True, first, second, True, Released()))
    assert (subscriber.queue.ready_count, subscriber.queue.cursor.outstanding) == (0, 1)
    peer.send(Disposition(True, third, None, True))
    assert (subscriber.queue.ready_count, subscriber.queue.cursor.outstanding) == (1, 0)
    subscriber.attach({})
    (again,) = subscriber.transfers()
    assert not again.resume


def test_2_7_6_deliveries_that_went_back_are_not_settled_in_their_former_session(
    world: World, subscriber: Subscriber
) -> None:
    first, *_ = (one.delivery_id for one in subscriber.transfers(3))
    peer = subscriber.peer
    peer.send(Detach(0, False))
    world.later(61)
    assert subscriber.queue.ready_count == 3
    peer.send(Disposition(True, first, None, True, Accepted()))
    assert subscriber.queue.ready_count == 3


def test_a_delivery_that_comes_again_is_not_given_back_a_minute_later(
    world: World, subscriber: Subscriber
) -> None:
    subscriber.transfers(3)
    subscriber.lose()
    subscriber.attach({})
    assert len(subscriber.transfers()) == 3
    world.later(61)
    assert (subscriber.queue.ready_count, subscriber.queue.cursor.outstanding) == (0, 3)
