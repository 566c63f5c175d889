"""Sentences of AMQP 1.0 part 2 (transport) that bind a container with queues, by their sections.

Sentences that have their test elsewhere: 2.2 and 2.4.1 in tests/e2e/amqp10/test_amqp10_hostile.py, 2.3 in
test_codec.py, 2.4.5 in tests/e2e/amqp10/test_amqp10_tls.py, windows, credit and handles in test_links.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec.frames import HEADER, HEARTBEAT, SASL, SASL_HEADER, encode_frame
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from penstock.protocols.amqp10.options import CREDIT, WINDOW
from penstock.router.authorization.identity import Identity
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World


def opened(peer: Peer) -> tuple[Peer, int]:
    """A sender to "q" whose attach was answered."""
    sender = peer.attach(Target("q"))
    peer.got()
    return peer, sender


def filled(peer: Peer, count: int) -> int:
    """A receiver from "q" with so many messages out."""
    sender = peer.attach(Target("q"))
    for number in range(count):
        peer.transfer(sender, message(b"%d" % number), settled=True)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, count)
    assert len(peer.bodies()) == count
    return receiver


# 2.2 Versions


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x02\x00\x00", b"AMQP\x00\x01\x01\x00", b"AMQP\x02\x01\x00\x00"]
)
def test_2_2_an_unknown_version_is_answered_with_one_that_is_there(world: World, header: bytes) -> None:
    peer = Peer(world, login=False)
    peer.raw(header)
    assert peer.out.take() == SASL_HEADER
    assert peer.session.ended


# 2.4 Connections


def test_2_4_1_frames_of_512_bytes_are_taken_before_the_open(world: World) -> None:
    head = len(encode_frame(0, Open("c" * 300))) - 300
    open_ = Open("c" * (512 - head))
    assert len(encode_frame(0, open_)) == 512
    peer = Peer(world, open_=open_)
    assert peer.session.container == open_.container_id


def test_2_4_1_channel_max_is_the_highest_channel_and_a_begin_above_it_closes_the_connection(
    world: World,
) -> None:
    peer = Peer(world, channel_max=3)
    peer.send(Begin(None, 0, 10, 10), channel=3)
    assert len(peer.got(Begin)) == 1
    peer.send(Begin(None, 0, 10, 10), channel=4)
    (close,) = peer.got(Close)
    assert close.error.condition == "amqp:connection:framing-error"


def test_2_4_1_no_frame_is_larger_than_the_peers_max_frame_size(world: World) -> None:
    peer = Peer(world, open_=Open("small", max_frame_size=512))
    peer.declare("q")
    sender = peer.attach(Target("q"))
    peer.transfer(sender, message(bytes(2000)))
    peer.got()
    peer.credit(peer.attach(Source("q")), 1)
    world.turn()
    data, at = peer.out.take(), 0
    sizes = []
    while at < len(data):
        sizes.append(int.from_bytes(data[at : at + 4], "big"))
        at += sizes[-1]
    assert max(sizes) <= 512
    assert len(sizes) > 4


def test_2_4_3_a_close_is_answered_and_nothing_is_sent_behind_it(peer: Peer) -> None:
    peer.send(Close())
    assert [type(one) for one in peer.got()] == [Close]
    assert peer.session.ended is not None


def test_2_4_3_frames_behind_our_close_are_ignored_until_the_peers(peer: Peer) -> None:
    peer.session.force_close("as asked")
    (close,) = peer.got(Close)
    assert close.error.condition == "amqp:connection:forced"
    peer.raw(encode_frame(0, Begin(None, 0, 10, 10)))
    assert peer.got() == []
    peer.send(Close())
    assert peer.got() == []


def test_2_4_5_an_empty_frame_is_no_frame_of_a_session(peer: Peer) -> None:
    peer.raw(HEARTBEAT * 3)
    assert peer.got() == []
    assert peer.session.ended is None


def test_2_4_6_a_header_in_the_middle_closes_the_connection(peer: Peer) -> None:
    peer.raw(HEADER)
    assert [one.error.condition for one in peer.got(Close)] == ["amqp:connection:framing-error"]


def test_2_4_4_a_close_that_crosses_ours_is_not_answered(peer: Peer) -> None:
    peer.session.shutdown()
    assert len(peer.got(Close)) == 1
    peer.send(Close())
    assert peer.got() == []
    assert peer.session.ended is not None


# 2.5 Sessions


def test_2_5_1_the_answer_names_the_channel_of_the_begin(peer: Peer) -> None:
    peer.send(Begin(None, 7, 10, 10), channel=2)
    (begin,) = peer.got(Begin)
    assert begin.remote_channel == 2


def test_2_5_1_a_begin_of_the_peer_with_a_remote_channel_closes_the_connection(peer: Peer) -> None:
    peer.send(Begin(0, 0, 10, 10), channel=1)
    (close,) = peer.got(Close)
    assert close.error.condition == "amqp:connection:framing-error"


def test_2_5_4_frames_behind_our_end_are_ignored_until_the_peers(peer: Peer) -> None:
    peer.send(Flow(0, 10, 0, 10, handle=9, delivery_count=0, link_credit=1))
    assert len(peer.got(End)) == 1
    peer.send(Transfer(9, 0, b"0", 0), payload=message(b"m"))
    peer.send(Attach("late", 1, False, target=Target("q"), initial_delivery_count=0))
    assert peer.got() == []
    peer.send(End())
    peer.send(Begin(None, 0, 10, 10))
    assert [type(one) for one in peer.got()] == [Begin]


def test_2_5_3_an_end_that_crosses_ours_is_not_answered(peer: Peer) -> None:
    peer.send(Flow(0, 10, 0, 10, handle=9, delivery_count=0, link_credit=1))
    assert len(peer.got(End)) == 1
    peer.send(End())
    assert peer.got() == []
    assert peer.session.channels == {}


def test_2_5_2_an_end_is_answered_once_and_ends_the_links(peer: Peer) -> None:
    opened(peer)
    peer.send(End())
    assert [type(one) for one in peer.got()] == [End]
    peer.send(Begin(None, 0, 10, 10))
    assert len(peer.got(Begin)) == 1, "the channel is free again"


def test_2_5_6_the_next_incoming_id_begins_at_the_peers_next_outgoing_id(peer: Peer) -> None:
    peer.send(Begin(None, 2**32 - 1, 10, 10), channel=1)
    peer.send(Attach("s", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0), channel=1)
    peer.send(Transfer(0, 0, b"t", 0), payload=message(b"m"), channel=1)
    peer.send(Flow(None, 10, 2**32 - 1, 10, echo=True), channel=1)
    flow = peer.got(Flow)[-1]
    assert flow.next_incoming_id == 0, "serial numbers wrap"
    assert flow.incoming_window == WINDOW - 1


def test_2_5_6_without_a_next_incoming_id_the_window_counts_from_the_beginning(peer: Peer) -> None:
    filled(peer, 3)
    peer.send(Flow(None, 5, 0, 1000))
    assert peer.session.channels[0].remote_window == 2


def test_2_5_6_a_flow_with_echo_is_answered_with_the_state(peer: Peer) -> None:
    peer.send(Flow(0, 10, 0, 10, echo=True))
    (flow,) = peer.got(Flow)
    assert (flow.handle, flow.echo) == (None, False)


# 2.6 Links


@pytest.mark.parametrize("role", [False, True])
def test_2_6_3_an_attach_is_answered_with_the_other_role_and_its_name(peer: Peer, role: bool) -> None:
    peer.send(Attach("l", 3, role, source=Source("q"), target=Target("q"), initial_delivery_count=0))
    (answer,) = peer.got(Attach)
    assert (answer.name, answer.handle, answer.role) == ("l", 3, not role)


def test_2_6_3_a_refused_link_is_attached_without_a_terminus_and_detached(peer: Peer) -> None:
    peer.attach(Source("no-such-queue"))
    attach, detach = peer.got()
    assert (attach.source, attach.target, attach.role) == (None, None, False)
    assert (detach.closed, detach.error.condition) == (True, "amqp:not-found")


def test_2_6_4_a_detach_is_answered_with_the_same_closed(peer: Peer) -> None:
    for closed in (False, True):
        sender = peer.attach(Target("q"))
        peer.send(Detach(sender, closed))
        assert [one.closed for one in peer.got(Detach)] == [closed]


def test_2_6_5_a_handle_is_free_behind_the_detach(peer: Peer) -> None:
    peer, sender = opened(peer)
    peer.send(Detach(sender, True))
    peer.send(Attach("other", sender, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    assert [one.name for one in peer.got(Attach)] == ["other"]


def test_2_6_7_credit_counts_from_the_receivers_view_of_the_delivery_count(peer: Peer) -> None:
    receiver = filled(peer, 2)
    sender = peer.attach(Target("q"))
    for _ in range(3):
        peer.transfer(sender, message(b"m"), settled=True)
    peer.send(Flow(2, 1000, 0, 1000, receiver, 1, 2))
    assert len(peer.bodies()) == 1, "one of the two was on its way"


def test_2_6_7_a_receiver_echoes_the_state_of_its_link(peer: Peer) -> None:
    peer, sender = opened(peer)
    peer.transfer(sender, message(b"m"), settled=True)
    peer.send(Flow(0, 1000, 1, 1000, sender, 1, echo=True))
    flow = peer.got(Flow)[-1]
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (sender, 1, CREDIT)


def test_2_6_7_a_sender_never_has_a_negative_credit(peer: Peer) -> None:
    receiver = filled(peer, 3)
    peer.send(Flow(3, 1000, 0, 1000, receiver, 0, 1))
    assert peer.session.channels[0].links[receiver].link_credit == 0  # type: ignore[union-attr]


def test_2_6_10_a_credit_of_0_stops_a_link(peer: Peer) -> None:
    handle = filled(peer, 2)
    peer.credit(handle, 0)
    sender = peer.attach(Target("q"))
    peer.transfer(sender, message(b"m"))
    assert peer.got(Transfer) == []
    assert peer.session.channels[0].unsettled == 2
    peer.credit(handle, 3)
    assert len(peer.got(Transfer)) == 1


def test_2_6_14_messages_of_two_links_may_be_interleaved(peer: Peer) -> None:
    whole = [message(b"a" * 100), message(b"b" * 100)]
    handles = [peer.attach(Target("q")) for _ in whole]
    peer.got()
    for number, (handle, one) in enumerate(zip(handles, whole, strict=True)):
        peer.send(Transfer(handle, number, b"%d" % number, 0, more=True), payload=one[:50])
    for handle, one in zip(handles, whole, strict=True):
        peer.send(Transfer(handle, None), payload=one[50:])
    assert peer.outcomes() == [Accepted()] * 2
    peer.credit(peer.attach(Source("q")), 2)
    assert peer.bodies() == [b"a" * 100, b"b" * 100]


# 2.7.5 Transfer


def test_2_7_1_a_max_frame_size_below_512_is_refused(world: World) -> None:
    peer = Peer(world, login=False)
    peer.raw(SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest"), kind=SASL))
    peer.session.take_login()
    peer.session.authenticated(Identity("guest"))
    peer.raw(HEADER + encode_frame(0, Open("c", max_frame_size=511)))
    (close,) = peer.got(Close)
    assert close.error.condition == "amqp:invalid-field"


@pytest.mark.parametrize("source", [Source("q"), Source("no queue"), Source(dynamic=True)])
def test_2_7_3_the_attach_of_a_sender_has_an_initial_delivery_count(peer: Peer, source: Source) -> None:
    peer.attach(source)
    (answer,) = peer.got(Attach)
    assert answer.role is False
    assert answer.initial_delivery_count == 0


@pytest.mark.parametrize("frames", [1, 2])
def test_2_7_3_a_message_beyond_max_message_size_ends_its_link(world: World, frames: int) -> None:
    peer = Peer(world, max_message_bytes=1000)
    peer.declare("q")
    sender = peer.attach(Target("q"))
    (answer,) = peer.got(Attach)
    assert answer.max_message_size == 1000
    parts = [message(bytes(1001))] if frames == 1 else [message(bytes(600)), bytes(600)]
    for at, part in enumerate(parts, 1):
        first = (0, b"0", 0) if at == 1 else (None, None, None)
        peer.send(Transfer(sender, *first, more=at < frames), payload=part)
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:link:message-size-exceeded"
    assert peer.ready("q") == 0


@pytest.mark.parametrize(("mode", "settled"), [(0, False), (1, True), (2, False)])
def test_2_7_5_deliveries_are_settled_as_the_link_was_attached(peer: Peer, mode: int, settled: bool) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"), settled=True)
    receiver = peer.attach(Source("q"), snd_settle_mode=mode)
    assert peer.got(Attach)[-1].snd_settle_mode == settled
    peer.credit(receiver, 1)
    (transfer,) = peer.got(Transfer)
    assert transfer.settled is settled


def test_2_7_5_the_first_transfer_of_a_delivery_has_its_id(peer: Peer) -> None:
    peer, sender = opened(peer)
    peer.send(Transfer(sender, None, b"t", 0), payload=message(b"m"))
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:invalid-field"


def test_2_7_5_another_id_before_a_delivery_is_whole_is_an_error(peer: Peer) -> None:
    peer, sender = opened(peer)
    peer.send(Transfer(sender, 5, b"t", 0, more=True), payload=message(b"m")[:3])
    peer.send(Transfer(sender, 6, more=False), payload=message(b"m")[3:])
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:invalid-field"
    assert (peer.ready("q"), peer.session.gathered) == (0, 0)


@pytest.mark.parametrize("settling", [0, 1, 2])
@pytest.mark.parametrize("kernel", [True, False])
def test_2_7_5_a_delivery_is_settled_when_one_of_its_transfers_says_so(
    peer: Peer, settling: int, kernel: bool
) -> None:
    if not kernel:
        peer.session.scan = lambda _buffer, at, _size: at  # type: ignore[method-assign]
    peer, sender = opened(peer)
    whole = message(b"some text")
    for number in range(3):
        part = whole[5 * number : 5 * number + 5] if number < 2 else whole[10:]
        ids: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"t"} if number == 0 else {}
        peer.send(Transfer(sender, **ids, settled=number == settling or None, more=number < 2), payload=part)
    assert peer.outcomes() == []
    assert peer.ready("q") == 1


def test_2_7_5_the_payload_of_an_aborted_transfer_is_no_message(peer: Peer) -> None:
    peer, sender = opened(peer)
    peer.send(Transfer(sender, 0, b"t", 0, more=True), payload=message(b"m"))
    peer.send(Transfer(sender, aborted=True), payload=b"anything")
    assert peer.got(Disposition) == []
    assert (peer.ready("q"), peer.session.gathered) == (0, 0)


# 2.7.6 Disposition


def test_2_7_6_deliveries_that_are_settled_or_were_never_sent_are_ignored(peer: Peer) -> None:
    filled(peer, 2)
    peer.send(Disposition(True, 0, 0, True, Accepted()))
    peer.send(Disposition(True, 0, 100, True, Accepted()))
    peer.send(Disposition(True, 0, 100, True, Accepted()))
    assert peer.got(End) == []
    assert peer.session.acknowledged == 2


def test_2_7_6_without_last_the_range_is_one_delivery(peer: Peer) -> None:
    filled(peer, 2)
    peer.send(Disposition(True, 0, settled=True, state=Accepted()))
    assert peer.session.channels[0].unsettled == 1


@pytest.mark.parametrize("state", [None, Received(0, 0)])
def test_2_7_6_a_state_that_is_no_outcome_leaves_a_delivery_as_it_is(peer: Peer, state: Any) -> None:
    filled(peer, 1)
    peer.send(Disposition(True, 0, 0, False, state))
    assert peer.session.channels[0].unsettled == 1
    peer.send(Disposition(True, 0, 0, True, Accepted()))
    assert peer.session.acknowledged == 1
    assert peer.ready("q") == 0


@pytest.mark.parametrize("durable", [0, 2])
def test_2_8_7_tags_have_at_most_32_bytes(peer: Peer, durable: int) -> None:
    receiver = peer.attach(Source("topic://t", durable))
    peer.credit(receiver, 2)
    sender = peer.attach(Target("topic://t"))
    for _ in range(2):
        peer.transfer(sender, message(b"m"))
    tags = [one.delivery_tag for one in peer.got(Transfer)]
    assert len(set(tags)) == 2
    assert all(0 < len(tag) <= 32 for tag in tags)


def test_2_8_an_unknown_performative_closes_the_connection(peer: Peer) -> None:
    peer.raw(b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x1f\x45")
    assert [one.error.condition for one in peer.got(Close)] == ["amqp:decode-error"]
