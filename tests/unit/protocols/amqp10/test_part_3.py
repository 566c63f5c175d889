"""Sentences of AMQP 1.0 part 3 (messaging) that bind a container with queues, by their sections.

Sentences that have their test elsewhere: the order of sections and the bare message in test_messages.py, and
delivery counts, annotations and outcomes of receivers in test_outcomes.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Attach,
    Detach,
    Disposition,
    Error,
    Rejected,
    Released,
    Source,
    Target,
)
from penstock.protocols.amqp10.codec.values import Symbol, UByte, UInt
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World


def sent(peer: Peer, *parts: tuple[int, Any]) -> s.Message:
    """A message of these sections as a receiver from "q" gets it."""
    sender = peer.attach(Target("q"))
    peer.transfer(sender, b"".join(s.encode_section(*part) for part in parts), settled=True)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 1)
    peer.got()
    (payload,) = [payload for payload in peer.payloads if payload]
    return s.parse_message(payload)


# 3.2 Message format


def test_3_2_1_a_message_without_a_header_is_not_durable(world: World, peer: Peer) -> None:
    assert sent(peer, (s.DATA, b"m")).header[0] is False


def test_3_2_1_the_header_arrives_with_the_time_that_is_left(world: World, peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    header = s.encode_section(s.HEADER, [True, UByte(7), UInt(60_000)])
    peer.transfer(sender, header + s.encode_section(s.DATA, b"m"))
    peer.got()
    world.later(10)
    peer.credit(peer.attach(Source("q")), 1)
    peer.got()
    (payload,) = [payload for payload in peer.payloads if payload]
    durable, priority, ttl, first, count = s.parse_message(payload).header
    assert (durable, priority, first, count) == (True, 7, True, 0)
    assert 40_000 < ttl <= 50_000


def test_3_2_1_a_message_whose_time_is_over_is_not_delivered(world: World, peer: Peer) -> None:
    sender = peer.attach(Target("q"))
    header = s.encode_section(s.HEADER, [True, None, UInt(1000)])
    peer.transfer(sender, header + s.encode_section(s.DATA, b"old"))
    peer.got()
    world.later(5)
    peer.transfer(sender, message(b"new"), settled=True)
    peer.credit(peer.attach(Source("q")), 5)
    assert peer.bodies() == [b"new"]


def test_3_2_1_only_the_first_delivery_has_first_acquirer(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"), settled=True)
    receiver = peer.attach(Source("q"))
    peer.credit(receiver, 2)
    seen = []
    for number in range(2):
        peer.got()
        (payload,) = [one for one in peer.payloads if one]
        seen.append(s.parse_message(payload).header[3])
        peer.send(Disposition(True, number, None, True, Released()))
    assert seen == [True, False]


def test_3_2_2_delivery_annotations_are_for_the_next_node_only(peer: Peer) -> None:
    found = sent(peer, (s.DELIVERY_ANNOTATIONS, {Symbol("x-opt-hop"): 1}), (s.DATA, b"m"))
    assert s.DELIVERY_ANNOTATIONS not in found.raw


def test_3_2_3_message_annotations_are_for_every_node(peer: Peer) -> None:
    found = sent(peer, (s.ANNOTATIONS, {Symbol("x-opt-all"): 1, Symbol("plain"): 2}), (s.DATA, b"m"))
    assert (found.annotations["x-opt-all"], found.annotations["plain"]) == (1, 2)


def test_3_2_9_the_footer_is_behind_the_body_as_it_was(peer: Peer) -> None:
    found = sent(peer, (s.DATA, b"m"), (s.FOOTER, {Symbol("x-opt-hash"): b"1"}))
    assert found.raw[s.FOOTER] == s.encode_section(s.FOOTER, {Symbol("x-opt-hash"): b"1"})


# 3.3 Distribution


def test_3_3_1_a_queue_moves_a_message_to_one_receiver(world: World, peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"))
    peer.got()
    others = [Peer(world), Peer(world)]
    for other in others:
        other.credit(other.attach(Source("q")), 1)
    assert sorted(body for other in others for body in other.bodies()) == [b"m"]


def test_3_5_3_a_source_with_distribution_mode_copy_is_refused_where_it_cannot_be_kept(peer: Peer) -> None:
    peer.attach(Source("q", distribution_mode="copy"))
    assert [one.error.condition for one in peer.got(Detach)] == ["amqp:not-implemented"]


# 3.5 Sources and targets


def test_3_5_3_the_answer_has_the_outcomes_that_a_receiver_may_say(peer: Peer) -> None:
    peer.attach(Source("q"))
    (attach,) = peer.got(Attach)
    assert set(attach.source.outcomes) == {f"amqp:{name}:list" for name in OUTCOMES}


OUTCOMES = ("accepted", "rejected", "released", "modified")


def test_3_5_3_a_dynamic_source_has_the_address_of_its_new_node(peer: Peer) -> None:
    peer.attach(Source(None, dynamic=True))
    (attach,) = peer.got(Attach)
    assert attach.source.dynamic
    assert attach.source.address.startswith("/queues/")
    peer.transfer(peer.attach(Target(attach.source.address)), message(b"m"))
    assert peer.ready(attach.source.address.removeprefix("/queues/")) == 1


def test_3_5_4_a_dynamic_target_has_the_address_of_its_new_node(peer: Peer) -> None:
    sender = peer.attach(Target(None, dynamic=True))
    (attach,) = peer.got(Attach)
    peer.credit(peer.attach(Source(attach.target.address)), 1)
    peer.transfer(sender, message(b"m"))
    assert peer.bodies() == [b"m"]


@pytest.mark.parametrize(
    ("source", "policy"),
    [
        (Source("q"), "link-detach"),
        (Source("topic://t"), "link-detach"),
        (Source("topic://t", 2, "never"), "never"),
        (Source("topic://t", 2, "session-end"), "never"),
        (Source("topic://t", 2, "link-detach"), "link-detach"),
    ],
)
def test_3_5_6_the_answer_has_the_expiry_policy_that_holds(peer: Peer, source: Source, policy: str) -> None:
    link = peer.attach(source)
    (attach,) = peer.got(Attach)
    assert (attach.source.expiry_policy, attach.source.timeout) == (policy, 0)
    peer.send(Detach(link))
    peer.got()
    left = [name for name in peer.session.vhost.queues if name != "q"]
    assert left == (["subscription/peer/link%200"] if policy == "never" else [])


def test_3_4_3_the_error_of_a_rejected_message_is_in_its_dead_letter(peer: Peer) -> None:
    peer.declare("dead")
    peer.declare("work", dead_letter_exchange="", dead_letter_routing_key="dead")
    peer.transfer(peer.attach(Target("work")), message(b"m"))
    peer.credit(peer.attach(Source("work")), 1)
    peer.got()
    peer.send(Disposition(True, 0, None, True, Rejected(Error("app:bad", "no such customer"))))
    peer.credit(peer.attach(Source("dead")), 1)
    peer.got()
    (payload,) = [payload for payload in peer.payloads if payload]
    found = s.parse_message(payload).annotations
    assert found["x-opt-rejected-condition"] == "app:bad"
    assert found["x-opt-rejected-description"] == "no such customer"
    assert found["x-first-death-reason"] == "rejected"


def test_3_4_4_a_message_that_nobody_takes_is_released(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("/exchanges/amq.direct/nobody")), message(b"m"))
    assert peer.outcomes() == [Released()]


def test_3_4_an_outcome_of_a_settled_delivery_changes_nothing(peer: Peer) -> None:
    peer.transfer(peer.attach(Target("q")), message(b"m"))
    peer.got()
    peer.credit(peer.attach(Source("q"), snd_settle_mode=1), 1)
    assert peer.bodies() == [b"m"]
    peer.send(Disposition(True, 0, 0, True, Released()))
    assert peer.ready("q") == 0
