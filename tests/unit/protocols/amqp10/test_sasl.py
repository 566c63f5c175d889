"""The SASL layer: what is offered, and each exchange; part 5, section 5.3."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame
from penstock.protocols.amqp10.codec.performatives import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from penstock.protocols.amqp10.options import Options
from penstock.protocols.amqp10.session.sasl import offered
from penstock.router.authentication.passwords import hash_password
from penstock.router.authentication.users import Users
from tests.support.amqp10_session import Peer
from tests.support.amqp_session import World
from tests.support.scram import METHOD, ScramClient


@pytest.fixture
def peer(world: World) -> Peer:
    """A connection whose mechanisms were offered; the user "ann" has the password "secret"."""
    world.broker.users.set_user("ann", hash_password(b"secret"), ())
    made = Peer(world, login=False, scram=True)
    made.raw(SASL_HEADER)
    return made


def say(peer: Peer, performative: Any) -> None:
    peer.raw(encode_frame(0, performative, kind=SASL))


def scram(peer: Peer, password: bytes) -> tuple[ScramClient, SaslOutcome]:
    """An exchange up to its outcome."""
    client = ScramClient("ann", password)
    say(peer, SaslInit(METHOD, client.first()))
    (challenge,) = peer.got(SaslChallenge)
    say(peer, SaslResponse(client.final(challenge.challenge)))
    peer.check_login()
    (outcome,) = peer.got(SaslOutcome)
    return client, outcome


def test_5_3_2_scram_logs_in_and_proves_the_server_in_the_outcome(peer: Peer) -> None:
    (mechanisms,) = peer.got(SaslMechanisms)
    assert mechanisms.sasl_server_mechanisms == (METHOD, "PLAIN")
    client, outcome = scram(peer, b"secret")
    assert outcome == SaslOutcome(0, client.signature)
    assert peer.session.mechanism == METHOD
    peer.raw(HEADER)
    assert peer.out.take() == HEADER
    assert peer.session.identity.username == "ann"


def test_5_3_2_a_wrong_proof_is_refused_with_code_1(peer: Peer) -> None:
    _, outcome = scram(peer, b"guess")
    assert outcome == SaslOutcome(1)
    assert peer.session.ended


@pytest.mark.parametrize(
    "performative",
    [
        SaslInit("GSSAPI", b""),
        SaslInit("OAUTHBEARER", b"n,,\1auth=Bearer eyJ.e.s\1\1"),
        SaslInit("PLAIN", b"no user"),
        SaslInit(METHOD, b"p=tls-unique,,n=ann,r=x"),
        SaslResponse(b""),
        SaslOutcome(0),
    ],
)
def test_5_3_2_what_is_not_offered_or_malformed_is_refused_with_code_1(peer: Peer, performative: Any) -> None:
    say(peer, performative)
    assert peer.got(SaslOutcome) == [SaslOutcome(1)]
    assert peer.session.take_login() is None
    assert peer.session.ended


def test_5_3_2_there_is_one_init(peer: Peer) -> None:
    client = ScramClient("ann", b"secret")
    say(peer, SaslInit(METHOD, client.first()))
    peer.got()
    say(peer, SaslInit("PLAIN", b"\0ann\0secret"))
    assert peer.got(SaslOutcome) == [SaslOutcome(1)]


def test_scram_is_offered_while_every_password_has_its_keys(world: World) -> None:
    users = world.broker.users
    users.set_user("ann", hash_password(b"secret"), ())
    users.set_user("certified", "", ())
    assert offered(Options(), users, None) == (METHOD, "PLAIN")
    assert offered(Options(scram=False), users, None) == ("PLAIN",)
    users.set_user("moved", "sha256:AAAA", ())
    assert offered(Options(), users, None) == ("PLAIN",)
    assert offered(Options(scram=True), users, None) == (METHOD, "PLAIN")
    users.delete_user("moved")
    assert offered(Options(), users, None) == (METHOD, "PLAIN")


def test_tokens_have_mechanisms_of_their_own_and_take_the_place_of_scram(world: World) -> None:
    users: Any = _WithTokens(world.broker.users)
    assert offered(Options(), users, "ann") == ("PLAIN", "OAUTHBEARER", "XOAUTH2", "EXTERNAL")
    assert offered(Options(allow_anonymous=True), users, None)[-1] == "ANONYMOUS"


class _WithTokens:
    """Users who may come with tokens."""

    takes_tokens = True

    def __init__(self, users: Users) -> None:
        self.all_have_verifiers = users.all_have_verifiers
