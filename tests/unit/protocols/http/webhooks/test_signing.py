"""Signatures as the specification has them."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from penstock.protocols.http.webhooks.security.signing import (
    BadSecret,
    check_secret,
    kind_of,
    new_secret,
    public_key,
    signature,
)


def test_the_example_of_the_specifications_libraries() -> None:
    signed = signature(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_two_keys_give_two_signatures_and_a_public_key_verifies_its_own() -> None:
    hmac, ed25519 = new_secret("hmac"), new_secret("ed25519")
    assert (kind_of(hmac), kind_of(ed25519)) == ("hmac", "ed25519")
    first, second = signature([ed25519, hmac], "id", 7, b"body").split(" ")
    assert first.startswith("v1a,") and second.startswith("v1,")
    public = public_key(ed25519)
    assert public is not None and public.startswith("whpk_") and public_key(hmac) is None
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public[5:]))
    key.verify(base64.b64decode(first[4:]), b"id.7.body")


@pytest.mark.parametrize(
    "secret", ["", "secret", "whsec_", "whsec_%%%", "whsec_c2hvcnQ=", "whsk_c2hvcnQ=", "whpk_" + "A" * 44]
)
def test_secrets_that_cannot_sign(secret: str) -> None:
    with pytest.raises(BadSecret):
        check_secret(secret)
