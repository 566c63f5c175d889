"""The places that addresses name, in both versions of RabbitMQ's scheme."""

from __future__ import annotations

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Detach,
    Released,
    Source,
    Target,
)
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages.addresses import AddressError, Place, parse_address
from tests.support.amqp10_session import Peer
from tests.support.amqp_session import World


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/exchange/x/k%2F1", Place("x", "k/1")),
        ("/exchange/x", Place("x", "", by_subject=True)),
        ("/topic/a.b", Place("amq.topic", "a.b")),
        ("/amq/queue/q", Place("", "q")),
        ("/queue/q%20", Place("", "q ", declares=True)),
        ("/queue", Place("", "", by_subject=True)),
        ("/queues/q", Place("", "q")),
        ("/exchanges/x/k", Place("x", "k")),
        ("q", Place("", "q")),
    ],
)
def test_old_addresses_are_some_where_they_are_wanted(address: str, place: Place) -> None:
    assert parse_address(address, v1=True) == place
    if not address.startswith(("/queues", "/exchanges", "q")):
        with pytest.raises(AddressError):
            parse_address(address)


@pytest.mark.parametrize(
    "address", ["/exchange/", "/exchange/x/k/more", "/queue/", "/topic", "/amq/q", "/queue/%2"]
)
def test_an_old_address_that_names_nothing_is_refused(address: str) -> None:
    with pytest.raises(AddressError):
        parse_address(address, v1=True)


def test_the_subject_is_the_routing_key_of_an_old_address(world: World) -> None:
    peer = Peer(world, address_v1=True)
    receiver = peer.attach(Source("/queue/made"))
    peer.credit(receiver, 5)
    sender = peer.attach(Target("/queue"))
    for subject in ("made", "nowhere"):
        parts = ((s.HEADER, [True]), (s.PROPERTIES, [None, None, None, subject]), (s.DATA, b"m"))
        peer.transfer(sender, b"".join(s.encode_section(*part) for part in parts))
    assert sorted(map(repr, peer.outcomes())) == [repr(Accepted()), repr(Released())]
    assert peer.session.vhost.queues["made"].durable


def test_without_the_option_there_are_no_old_addresses(peer: Peer) -> None:
    peer.attach(Source("/queue/made"))
    (detach,) = peer.got(Detach)
    assert detach.error.condition == "amqp:invalid-field"
    assert peer.got(Attach) == [] and "made" not in peer.session.vhost.queues
