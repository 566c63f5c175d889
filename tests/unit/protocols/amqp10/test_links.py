"""Sessions and links, frame by frame: windows, credit, handles, outcomes, the end."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from penstock.protocols.amqp10.channel.publishing import PublishingLink
from penstock.protocols.amqp10.codec.frames import encode_frame
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock.protocols.amqp10.codec.values import Described, Symbol, ULong
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.options import CREDIT, WINDOW
from penstock.protocols.amqp10.session.state import State
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World


def fill(peer: Peer, count: int) -> None:
    """Publish the messages 0, 1 and so on to "q"."""
    sender = peer.attach(Target("q"))
    for number in range(count):
        peer.transfer(sender, message(b"%d" % number), settled=True)
    peer.send(Detach(sender, True))
    peer.got()


# Senders


def test_outcomes_come_in_ranges(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.got()
    frames = [encode_frame(0, Transfer(sender, number, b"t", 0), message(b"m")) for number in range(20)]
    peer.raw(b"".join(frames))
    (disposition,) = peer.got(Disposition)
    assert (disposition.first, disposition.last, disposition.state) == (0, 19, Accepted())
    assert disposition.settled
    assert disposition.role


def test_credit_is_given_again_before_it_is_used_up(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    (flow,) = peer.got(Flow)
    assert flow.link_credit == CREDIT
    for _ in range(CREDIT // 2):
        peer.transfer(sender, message(b"m"), settled=True)
    (flow,) = peer.got(Flow)
    assert (flow.delivery_count, flow.link_credit) == (CREDIT // 2, CREDIT)


def test_more_than_the_credit_ends_the_link(peer: Peer) -> None:
    sender = peer.attach(Target("/exchanges/amq.fanout"))
    link = peer.session.channels[0].links[sender]
    link.credit = 0  # type: ignore[union-attr]
    peer.transfer(sender, message(b"m"))
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"


def test_a_message_in_parts_may_be_aborted(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.send(Transfer(sender, 0, b"a", 0, more=True), payload=message(b"m")[:5])
    peer.send(Transfer(sender, aborted=True))
    peer.send(Transfer(sender, 1, b"b", 0, more=True), payload=message(b"whole")[:7])
    peer.send(Transfer(sender), payload=message(b"whole")[7:])
    assert peer.outcomes() == [Accepted()]
    assert (peer.ready("q"), peer.session.gathered) == (1, 0)


def test_more_transfers_than_the_window_end_the_session(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.session.channels[0].window = 0
    peer.transfer(sender, message(b"m"))
    (end,) = peer.got(End)
    assert end.error.condition == "amqp:session:window-violation"


def test_the_window_is_opened_again(peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    peer.got()
    part = message(b"m")
    peer.send(Transfer(sender, 0, b"t", 0, more=True), payload=part[:1])
    for _ in range(WINDOW // 2):
        peer.send(Transfer(sender, more=True), payload=b"")
    flows = peer.got(Flow)
    assert flows[0].incoming_window == WINDOW
    assert flows[0].handle is None


@pytest.mark.parametrize(
    ("target", "outcome"),
    [("q", Accepted()), ("/exchanges/amq.direct/nowhere", Released()), ("topic://nowhere", Accepted())],
)
def test_a_message_has_the_outcome_of_its_target(peer: Peer, target: str, outcome: Any) -> None:
    peer.transfer(peer.attach(Target(target)), message(b"m"))
    assert peer.outcomes() == [outcome]


def test_an_address_that_messages_name_is_looked_at_once(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = peer.attach(Target())
    payload = (
        s.encode_section(s.HEADER, [True])
        + s.encode_section(s.PROPERTIES, [None, None, "/queues/q"])
        + s.encode_section(s.DATA, b"m")
    )
    peer.transfer(sender, payload)
    assert peer.outcomes() == [Accepted()]
    monkeypatch.delattr(PublishingLink, "receive")
    peer.transfer(sender, payload)
    assert peer.outcomes() == [Accepted()]
    assert peer.ready("q") == 2
    with pytest.raises(NotImplementedError):
        peer.transfer(sender, s.encode_section(s.DATA, b"m"))


def test_bytes_that_are_no_message_are_rejected(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), b"\x40")
    (outcome,) = peer.outcomes()
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:decode-error"


# Receivers


def test_a_receiver_gets_no_more_than_its_credit(peer: Peer) -> None:
    fill(peer, 10)
    receiver = peer.attach(Source("q"))
    assert peer.bodies() == []
    peer.credit(receiver, 3)
    assert peer.bodies() == [b"0", b"1", b"2"]
    peer.send(Flow(0, 1000, 0, 1000, receiver, 3, 2))
    assert peer.bodies() == [b"3", b"4"]


def test_a_drain_gives_the_rest_of_the_credit_back(peer: Peer) -> None:
    fill(peer, 2)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 10, drain=True)
    assert peer.bodies() == [b"0", b"1"]
    peer.world.later(0.1)
    (flow,) = peer.got(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)


def test_the_clients_window_holds_transfers_back(peer: Peer) -> None:
    fill(peer, 5)
    receiver = peer.attach(Source("q"))
    peer.send(Flow(0, 2, 0, 1000, receiver, 0, 5))
    assert len(peer.bodies()) == 2
    peer.send(Flow(2, 1000, 0, 1000))
    assert len(peer.bodies()) == 3


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Accepted(), 0),
        (Rejected(), 0),
        (Modified(undeliverable_here=True), 0),
        (Released(), 1),
        (Modified(delivery_failed=True), 1),
        (None, 1),
    ],
)
def test_an_outcome_decides_whether_a_message_comes_again(peer: Peer, outcome: Any, left: int) -> None:
    fill(peer, 1)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 1)
    assert peer.bodies() == [b"0"]
    peer.send(Disposition(True, 0, 0, True, outcome))
    assert peer.ready("q") == left


def test_an_outcome_that_is_not_settled_is_answered(peer: Peer) -> None:
    fill(peer, 2)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 2)
    peer.got()
    peer.send(Disposition(True, 0, 1, False, Accepted()))
    (answer,) = peer.got(Disposition)
    assert (answer.role, answer.first, answer.last, answer.settled) == (False, 0, 1, True)


def test_a_range_of_dispositions_may_be_far_larger_than_what_is_out(peer: Peer) -> None:
    fill(peer, 2)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 2)
    peer.got()
    peer.send(Disposition(True, 0, 2**32 - 1, True, Accepted()))
    assert peer.session.acknowledged == 2


def test_others_are_settled_around_a_delivery_that_stays_open(peer: Peer) -> None:
    fill(peer, 400)
    receiver = peer.attach(Source("q"))
    for step in range(8):
        first = 50 * step
        peer.send(Flow(0, 1000, 0, 1000, receiver, 0, first + 50))
        peer.got()
        for number in range(max(first, 1), first + 50, 2):
            peer.send(Disposition(True, number, number, True, Accepted()))
        peer.send(Disposition(True, max(first, 1), first + 49, True, Accepted()))
        assert peer.session.channels[0].unsettled == 1
    assert peer.session.acknowledged == 399
    peer.send(Disposition(True, 2**32 - 1, 0, True, Released()))
    peer.send(Detach(receiver, True))
    assert peer.ready("q") == 1


# Links and sessions


def test_a_handle_in_use_ends_the_session(peer: Peer) -> None:
    peer.attach(Target("q"))
    peer.send(Attach("another", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    (end,) = peer.got(End)
    assert end.error.condition == "amqp:session:handle-in-use"


@pytest.mark.parametrize("frame", [Transfer(9, 0, b"t", 0), Flow(0, 1, 0, 1, 9), Detach(9)])
def test_a_handle_without_a_link_ends_the_session(peer: Peer, frame: Any) -> None:
    peer.send(frame)
    (end,) = peer.got(End)
    assert end.error.condition == "amqp:session:unattached-handle"


def test_a_refused_link_takes_what_was_on_its_way(peer: Peer) -> None:
    handle = peer.attach(Target("no-such-queue"))
    peer.transfer(handle, message(b"m"), settled=True)
    attach, detach = peer.got()
    assert attach.target is None
    assert detach.error.condition == "amqp:not-found"
    peer.send(Detach(handle, True))
    assert peer.session.state is State.RUNNING


def test_frames_without_a_session_close_the_connection(peer: Peer) -> None:
    peer.send(Flow(0, 1, 0, 1), channel=7)
    (close,) = peer.got(Close)
    assert close.error.condition == "amqp:illegal-state"


def test_a_second_begin_on_a_channel_closes_the_connection(peer: Peer) -> None:
    peer.send(Begin(None, 0, 1, 1))
    (close,) = peer.got(Close)
    assert close.error.condition == "amqp:illegal-state"


def test_the_end_of_a_session_gives_messages_back(peer: Peer) -> None:
    fill(peer, 3)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 3)
    assert len(peer.bodies()) == 3
    peer.send(End())
    assert peer.got(End) == [End()]
    assert peer.ready("q") == 3


def test_the_end_of_a_dynamic_target_deletes_its_queue(peer: Peer) -> None:
    handle = peer.attach(Target(dynamic=True))
    (attach,) = peer.got(Attach)
    name = attach.target.address.removeprefix("/queues/")
    peer.transfer(handle, message(b"m"))
    assert peer.ready(name) == 1
    peer.send(Detach(handle, True))
    peer.got()
    assert name not in peer.session.vhost.queues


def test_an_idle_time_out_that_cannot_be_kept_is_refused(world: World) -> None:
    peer = Peer(world, open_=Open("peer", idle_time_out=1))
    assert peer.session.state is State.CLOSING
    assert "idle-time-out" in peer.session.failure


def test_nothing_is_left_of_a_connection_that_is_lost(world: World, peer: Peer) -> None:
    other = Peer(world)
    fill(other, 3)
    peer.declare("s", queue_type="stream")
    receiver = other.attach(Source("q"))
    other.credit(receiver, 2)
    other.credit(other.attach(Source("s")), 5, drain=True)
    other.attach(Source(dynamic=True))
    other.attach(Source("topic://t"))
    other.attach(Source("topic://shared", capabilities=("shared",)))
    dynamic = other.attach(Target(dynamic=True))
    other.send(Transfer(dynamic, 7, b"t", 0, more=True), payload=b"part")
    coordinator = other.attach(Coordinator())
    other.attach(Source("/management"))
    other.attach(Target("/management"))
    other.got()
    assert isinstance(other.request(coordinator, Declare()), Declared)
    vhost = peer.session.vhost
    assert len(vhost.queues) > 2
    gone = weakref.ref(other.session)
    world.clients.remove(other)
    other.session.lost()
    del other, receiver, dynamic, coordinator
    world.later(1)
    world.turn()
    gc.collect()
    assert set(vhost.queues) == {"q", "s"}
    assert (peer.ready("q"), vhost.queues["q"].queue.consumer_count) == (3, 0)
    assert vhost.queues["s"].queue.consumer_count == 0
    assert gone() is None


def test_a_subscription_with_too_long_a_name_is_refused(world: World) -> None:
    peer = Peer(world, open_=Open("c" * 300))
    peer.attach(Source("topic://t", durable=2))
    assert [one.error.condition for one in peer.got(Detach)] == ["amqp:invalid-field"]


# Filters


def selector(text: str) -> dict[Any, Any]:
    return {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), text)}


def coloured(color: str) -> bytes:
    return s.encode_section(s.APPLICATION_PROPERTIES, {"color": color}) + s.encode_section(
        s.DATA, color.encode()
    )


def test_messages_that_do_not_pass_a_private_queue_are_done(peer: Peer) -> None:
    receiver = peer.attach(Source("topic://t", filter=selector("color = 'red'")))
    peer.credit(receiver, 2)
    sender = peer.attach(Target("topic://t"))
    for color in ("red", "blue", "red", "blue"):
        peer.transfer(sender, coloured(color), settled=True)
    assert peer.bodies() == [b"red", b"red"]
    peer.send(Disposition(True, 0, 1, True, Accepted()))
    peer.credit(receiver, 3)
    peer.got()
    (name,) = [name for name in peer.session.vhost.queues if name != "q"]
    queue = peer.session.vhost.queues[name].queue
    assert (queue.ready_count, queue.cursor.outstanding) == (0, 0)


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (Source("q", filter=selector("a = 1")), "amqp:not-implemented"),
        (Source("topic://t", filter=selector("a =")), "amqp:invalid-field"),
        (
            Source(
                "topic://t", filter={Symbol("o"): Described(Symbol("rabbitmq:stream-offset-spec"), "first")}
            ),
            "amqp:not-implemented",
        ),
    ],
)
def test_a_filter_that_cannot_be_is_refused(peer: Peer, source: Source, condition: str) -> None:
    peer.attach(source)
    (detach,) = peer.got(Detach)
    assert detach.error.condition == condition


def test_other_filters_begin_a_subscription_anew(world: World, peer: Peer) -> None:
    def subscribe(text: str) -> int:
        return peer.attach(Source("topic://t", 2, "never", filter=selector(text)))

    first = subscribe("color = 'red'")
    peer.send(Detach(first))
    sender = peer.attach(Target("topic://t"))
    for color in ("red", "blue"):
        peer.transfer(sender, coloured(color), settled=True)
    peer.got()
    name = "subscription/peer/link%200"
    assert peer.ready(name) == 2
    peer.send(
        Attach("link 0", 7, True, source=Source("topic://t", 2, "never", filter=selector("color = 'red'")))
    )
    peer.credit(7, 5)
    assert peer.bodies() == [b"red"]
    peer.send(
        Attach("link 0", 9, True, source=Source("topic://t", 2, "never", filter=selector("color = 'blue'")))
    )
    peer.got()
    assert peer.ready(name) == 0


def test_a_link_of_the_same_name_in_a_connection_steals_the_older_one(peer: Peer) -> None:
    fill(peer, 1)
    first = peer.attach(Source("q"))
    sender = peer.attach(Target("q"))
    peer.credit(first, 1)
    assert peer.bodies() == [b"0"]
    peer.send(Begin(None, 0, 1000, 1000), channel=1)
    peer.got()
    name = f"link {first}"
    peer.send(Attach(name, 0, True, source=Source("q"), target=Target()), channel=1)
    (detach,) = peer.got(Detach)
    assert (detach.handle, detach.closed, detach.error.condition) == (first, True, "amqp:link:stolen")
    assert peer.ready("q") == 1
    peer.send(
        Attach(name, 1, False, source=Source(), target=Target("q"), initial_delivery_count=0), channel=1
    )
    assert peer.got(Detach) == [], "a sender has another direction"
    peer.transfer(sender, message(b"m"))
    assert peer.outcomes() == [Accepted()]


def test_a_durable_subscription_is_stolen_from_another_connection(world: World, peer: Peer) -> None:
    source = Source("topic://t", 2, "never")
    first = peer.attach(source)
    peer.credit(first, 5)
    peer.transfer(peer.attach(Target("topic://t")), message(b"m"), settled=True)
    assert peer.bodies() == [b"m"]
    other = Peer(world)
    second = other.attach(Source("topic://t", 2, "never"))
    other.credit(second, 5)
    assert [detach.error.condition for detach in peer.got(Detach)] == ["amqp:link:stolen"]
    other.credit(second, 5)
    assert other.bodies() == [b"m"]


def test_an_attach_with_unsettled_deliveries_is_told_that_none_are_kept(peer: Peer) -> None:
    """Unsettled deliveries went back to their queue, and come again as new ones."""
    fill(peer, 1)
    first = peer.attach(Source("q"))
    peer.credit(first, 1)
    assert peer.bodies() == [b"0"]
    peer.send(Detach(first))
    peer.got()
    unsettled = {b"\0\0\0\0": None, b"tag": Described(ULong(0x24), [])}
    source = Source("q", 2, "never")
    peer.send(Attach("link 0", 5, True, unsettled=unsettled, source=source, target=Target()))
    (answer,) = peer.got(Attach)
    assert (answer.unsettled, answer.incomplete_unsettled) == (None, False)
    peer.credit(5, 1)
    assert peer.bodies() == [b"0"]
