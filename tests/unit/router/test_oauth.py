"""Tokens: who is let in by which, and what each door keeps shut (RFC 8725 and RabbitMQ's advisories)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from penstock.errors import ConfigError
from penstock.log_core.batch._appender import Appender
from penstock.log_core.state.tables import Tables
from penstock.protocols.login.key_source import key_source
from penstock.router.authentication import key_set as key_sets
from penstock.router.authentication.key_set import KeySet, KeySetError, read_keys
from penstock.router.authentication.oauth import OAuth, OAuthOptions
from penstock.router.authentication.token_form import is_token
from penstock.router.authentication.users import AuthOptions, Users
from penstock.router.errors import AuthenticationRefused
from tests.support.tokens import AUDIENCE, ISSUER, jwk, key_set, rsa_key, token, unsigned, write_keys


class World:
    """Users and an issuer with one key; the clock of tokens may be moved."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.file = folder / "keys.json"
        write_keys(self.file, jwk("one"))
        self.ahead_s = 0.0
        self.oauth = OAuth(
            OAuthOptions(issuer=ISSUER, resource_server_id=AUDIENCE, jwks_file=str(self.file), **options),
            self.file.read_bytes,
            wall_s=lambda: time.time() + self.ahead_s,
        )
        self.slept: list[float] = []

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        self.users = Users(Tables(Appender(lambda: 1)), AuthOptions(), self.oauth, sleep=sleep)
        self.users.set_user("guest", "", ("administrator",))

    async def refused(self, text: str, name: str = "") -> str:
        with pytest.raises(AuthenticationRefused) as refused:
            await self.users.authenticate(name, text.encode(), False, peer="10.0.0.1")
        return str(refused.value)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.users.close()


async def test_a_token_is_a_password_of_the_user_it_names(world: World) -> None:
    text = token("broker.read:%2F/q broker.tag:monitoring other.write:*/*", user="ann")
    identity = await world.users.authenticate("whoever", text.encode(), False)
    assert (identity.username, identity.tags) == ("ann", {"monitoring"})
    assert identity.grants is not None
    assert identity.grants.allow("/", "read", "q")
    assert not identity.grants.allow("/", "write", "q")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: token(iss="https://else.test/"), "issuer"),
        (lambda: token(iss=None), "iss"),
        (lambda: token(aud="else"), "udience"),
        (lambda: token(aud=None), "aud"),
        (lambda: token(exp=None), "exp"),
        (lambda: token(exp=int(time.time()) + 11 * 365 * 86_400), "exp is more than ten years away"),
        (lambda: token(exp=2**63), "exp is more than ten years away"),
        (lambda: token(exp=10**400), "exp is more than ten years away"),
        (lambda: token(exp=-(10**400)), "exp is no time"),
        (lambda: token(nbf=10**400), "nbf is more than ten years away"),
        (lambda: token(nbf=-1), "nbf is no time"),
        (lambda: token(exp=time.time() + 60.5), "exp is no whole number"),
        (lambda: token(exp=True), "exp is no whole number"),
        (lambda: token(nbf=1.5), "nbf is no whole number"),
        (lambda: token(nbf=int(time.time()) + 60), "nbf"),
        (lambda: token(for_s=-1), "time is over"),
        (lambda: token(key="two"), "there are 0 keys"),
        (lambda: token(key="two", headers={"kid": "one"}), "Signature"),
        (lambda: token(headers={"crit": ["exp"]}), "critical"),
        (lambda: token(user="guest"), "one of the gateway's own"),
        (lambda: token(sub=None), "no user name"),
        (lambda: token(user="x" * 256), "no user name"),
        (lambda: "eyJhbGciOiJub25lIn0.e30.", "there are 0 keys"),
        (lambda: "eyJ.eyJ.x", ""),
    ],
)
async def test_a_token_that_is_not_good_is_refused(world: World, make: Callable[[], str], why: str) -> None:
    text = make()  # now: those that were made when the tests were collected may be over
    assert is_token(text.encode())
    assert why in await world.refused(text)


async def test_the_key_says_which_algorithm_counts(world: World) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 60}
    for algorithm in ("none", "HS256", "RS256", "ES384", "", None, 5):
        header = {"alg": algorithm, "kid": "one", "typ": "JWT"}
        assert "refused" in await world.refused(unsigned(claims, header, b"x" * 64), str(algorithm))


async def test_a_token_ends_with_its_time_although_it_is_remembered(world: World) -> None:
    text = token(for_s=30)
    await world.users.authenticate("", text.encode(), False)
    world.ahead_s = 31
    assert "time is over" in await world.refused(text)


async def test_a_late_token_does_not_count_as_a_failure_but_a_wrong_one_does(world: World) -> None:
    late = token(for_s=-1)
    for _ in range(20):
        assert "time is over" in await world.refused(late)
    assert world.slept == []
    wrong = token(key="two", headers={"kid": "one"})
    for _ in range(11):
        assert "Signature" in await world.refused(wrong)
    assert world.slept == [1.0]
    for number in range(30):
        assert "Signature" in await world.refused(token(key="two", headers={"kid": "one"}, n=number))
    assert len(world.slept) > 10
    world.slept.clear()
    # Neither a right token nor a right password of somebody at that address waits.
    assert (await world.users.authenticate("", token().encode(), False)).username == "ann"
    assert world.users.turn("bob", "", False) == 0
    assert world.slept == []


async def test_names_and_scopes_come_from_the_claims_that_are_configured(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        scope_prefix="rmq:",
        scope_aliases=("operator=rmq:tag:management rmq:read:*/*",),
        additional_scopes_claims=("roles",),
        preferred_username_claims=("user_name", "sub"),
    )
    text = token("operator", user_name="bob", roles=["rmq:write:v/q", 5])
    identity = await world.users.authenticate("", text.encode(), False)
    assert (identity.username, identity.tags) == ("bob", {"management"})
    assert identity.grants is not None
    assert identity.grants.texts() == ["read:*/*/*", "write:v/q/*"]
    world.users.close()


async def test_keys_rotate_without_a_restart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = token()
    await world.users.authenticate("", old.encode(), False)
    write_keys(world.file, jwk("two", "RS256"))
    rotated = token(key="two", algorithm="PS256")
    identity = await world.users.authenticate("", rotated.encode(), False)
    assert identity.username == "ann"
    # The key that is gone takes what was remembered with it.
    assert "there are 0 keys" in await world.refused(old)


async def test_a_set_that_cannot_be_read_changes_nothing(world: World) -> None:
    world.file.write_text("{")
    assert "there are 0 keys" in await world.refused(token(key="two"))
    assert (await world.users.authenticate("", token().encode(), False)).username == "ann"


async def test_unknown_keys_are_looked_for_once_a_minute(tmp_path: Path) -> None:
    now, reads = 0.0, 0
    file = tmp_path / "keys.json"
    write_keys(file, jwk("one"))

    def counted() -> bytes:
        nonlocal reads
        reads += 1
        return file.read_bytes()

    keys = KeySet(counted, "test", refresh_s=3600, clock=lambda: now)
    keys.begin()
    for number in range(10):
        assert await keys.find(f"none-{number}") == []
    assert reads == 2
    write_keys(file, jwk("one"), jwk("none-1"))
    now = key_sets.AGAIN_S
    assert len(await keys.find("none-1")) == 1
    now += 3600
    write_keys(file, jwk("none-1"))
    assert await keys.find("one") == []
    assert reads == 5  # it was too old, and then had no such key
    keys.close()


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b'{"keys": 5}',
        b'{"keys": []}',
        b'{"keys": [5]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}',
        b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}',
        key_set(jwk("one", use="enc")),
        key_set(jwk("one", alg="HS256")),
        b"[" * 100_000,
    ],
)
def test_an_invalid_set_of_public_keys_is_refused(document: bytes) -> None:
    with pytest.raises(KeySetError):
        read_keys(document)


def test_a_private_key_in_a_set_is_used_as_its_public_one() -> None:
    private = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key("one"), as_dict=True)
    del private["key_ops"]
    (key,) = read_keys(key_set(private))
    assert key.public.public_numbers() == rsa_key("one").public_key().public_numbers()


@pytest.mark.parametrize("content", [None, b"{}", b"x" * ((1 << 20) + 1)])
def test_a_file_of_keys_that_cannot_be_used_ends_the_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    options = OAuthOptions(issuer=ISSUER, resource_server_id=AUDIENCE, jwks_file=str(file))
    with pytest.raises(ConfigError, match=r"oauth\.jwks_file"):
        OAuth(options, key_source(str(file), "", ""))


def test_cas_that_are_none_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"oauth\.ca_file"):
        key_source("", "https://issuer.test/", str(tmp_path / "none.pem"))


@pytest.mark.parametrize("secret", [b"guest", b"", b"eyJ", b"eyJa.b", b"a.b.c", b"eyJa.b.c.d"])
def test_other_passwords_are_no_tokens(secret: bytes) -> None:
    assert not is_token(secret)
