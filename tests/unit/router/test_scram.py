"""SCRAM-SHA-256 by RFC 7677's example, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from penstock.router.authentication.passwords import hash_password, verifier_of, verify_password
from penstock.router.authentication.scram import ScramError, ScramExchange, Verifier, make_verifier

# RFC 7677, section 3.
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
OURS = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r=rOprNGfwEbeRWgbNEkqO{OURS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{OURS},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun() -> ScramExchange:
    exchange = ScramExchange(OURS)
    exchange.first(FIRST)
    assert exchange.challenge(make_verifier(b"pencil", SALT, 4096)) == CHALLENGE
    return exchange


def test_the_example_of_rfc_7677() -> None:
    exchange = begun()
    assert exchange.name == "user" and exchange.final(FINAL) == SIGNATURE


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"rOpr", b"rOpx"),
        FINAL.replace(b"p=dHz", b"p=dHy"),
        FINAL.replace(b"p=dHzb", b"p="),
        FINAL[: FINAL.index(b",p=")],
        b"\xff",
        b"x" * 3000,
    ],
)
def test_a_wrong_last_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        begun().final(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"\xc3,,n=user,r=abc",
    ],
)
def test_a_wrong_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramExchange(OURS).first(message)


def test_commas_and_equals_signs_in_names_are_escaped() -> None:
    exchange = ScramExchange(OURS)
    exchange.first(b"y,,n=a=2Cb=3Dc,r=abc")
    assert exchange.name == "a,b=c"


def test_a_new_hash_has_a_verifier_of_the_same_password() -> None:
    stored = hash_password(b"pencil")
    verifier = verifier_of(stored)
    assert verifier is not None and verifier.iterations >= 4096
    assert verifier == make_verifier(b"pencil", verifier.salt, verifier.iterations)
    assert Verifier.decode(verifier.encode()) == verifier
    assert verify_password(stored, b"pencil") and not verify_password(stored, b"pencils")


def test_a_stolen_verifier_does_not_allow_a_login() -> None:
    verifier = make_verifier(b"pencil", SALT, 4096)
    exchange = begun()
    without_proof = FINAL[: FINAL.index(b",p=")]
    signed = b",".join((FIRST[3:], CHALLENGE, without_proof))
    forged = base64.b64encode(hmac.digest(verifier.stored_key, signed, hashlib.sha256))
    with pytest.raises(ScramError):
        exchange.final(without_proof + b",p=" + forged)
