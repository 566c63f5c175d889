"""Logins and permissions: who gets in from where, what a storm of logins costs, what a user may do."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.log_core.batch._appender import Appender
from penstock.log_core.state.tables import Tables
from penstock.router.authentication import login_limit, passwords
from penstock.router.authentication import users as auth
from penstock.router.authentication.login_limit import LoginLimit
from penstock.router.authentication.passwords import (
    DUMMY,
    MOSQUITTO_ALGORITHMS,
    exported_hash,
    hash_password,
    imported_hash,
    is_slow,
    rabbitmq_hash,
    verify_password,
)
from penstock.router.authentication.scram import Verifier
from penstock.router.authentication.users import AuthOptions, Users
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Authorizer, Permission
from penstock.router.errors import AuthenticationRefused, InvalidRegex


@dataclass(frozen=True)
class User:
    name: str
    password: str | None = None
    password_hash: str | None = None
    tags: tuple[str, ...] = ()


MOSQUITTO_LINES = (
    "dora:$6$Uh6QGiHhDBHB/TOC$"
    "2El5xVN/tpcSVrQbnd5m1N55kt07kOnWvfoo7auQ/h0lu8PYkoQO0gu0ENnF4VCa4lQQ/e0OHBAyhyM1GA5k3A==",
    "paul:$7$101$TEQOBIctlfBtLsdr$"
    "gmZDTqKHmbBqfNGXfFJJcwIKL7z8wtsUWzcsi3B+MtbznuLiyMIMD4z3iY+liN+7aOi28hpCJGHv/nllVViY7A==",
)
"""As mosquitto_passwd 2.0.11 wrote them for the password s3cret."""


def exported(password: bytes, digest: str = "sha256") -> str:
    return base64.b64encode(b"salt" + hashlib.new(digest, b"salt" + password).digest()).decode()


class World:
    def __init__(self, options: AuthOptions, tables: Tables | None = None) -> None:
        self.now = 0.0
        self.verified: list[str] = []
        self.tables = tables if tables is not None else Tables(Appender(lambda: 1))
        self.slept: list[float] = []
        self.users = Users(self.tables, options, clock=lambda: self.now, sleep=self.sleep)
        self.authorizer = Authorizer(self.tables)
        self.users.apply_options(self.authorizer, "/", is_new=tables is None)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def refused(self, name: str, password: bytes, loopback: bool = True) -> str:
        with pytest.raises(AuthenticationRefused) as refused:
            await self.users.authenticate(name, password, loopback)
        assert refused.value.username == name
        return refused.value.reason


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """guest from loopback only, ann from anywhere; `verified` counts the slow verifications."""
    world = World(AuthOptions(users=(User("ann", password="secret", tags=("monitoring",)),)))

    def counted(stored: str, password: bytes) -> bool:
        world.verified.append(stored)
        return verify_password(stored, password)

    monkeypatch.setattr(auth, "verify_password", counted)
    yield world
    world.users.close()


async def test_the_right_password_logs_in_with_its_tags(world: World) -> None:
    assert await world.users.authenticate("ann", b"secret", False) == Identity(
        "ann", frozenset({"monitoring"})
    )
    assert await world.users.authenticate("guest", b"guest", True) == Identity(
        "guest", frozenset({"administrator"})
    )


async def test_each_refusal_has_its_reason(world: World) -> None:
    assert await world.refused("ann", b"mistaken") == "credentials"
    assert await world.refused("ann", b"") == "credentials"
    assert await world.refused("nobody", b"secret") == "credentials"
    assert await world.refused("guest", b"guest", loopback=False) == "loopback"
    # The place is told only to who knows the password.
    assert await world.refused("guest", b"mistaken", loopback=False) == "credentials"


async def test_a_refusal_does_not_repeat_the_password(world: World) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        await world.users.authenticate("ann", b"hunter2", True)
    assert "hunter2" not in str(refused.value) + repr(refused.value)


async def test_an_unknown_user_costs_a_verification_too(world: World) -> None:
    await world.refused("nobody", b"secret")
    assert world.verified == [DUMMY]


async def test_a_storm_of_reconnects_is_verified_once_a_minute(world: World) -> None:
    for _ in range(100):
        await world.users.authenticate("ann", b"secret", True)
    assert len(world.verified) == 1
    await world.refused("ann", b"mistaken")
    await world.refused("ann", b"mistaken")
    assert len(world.verified) == 3
    world.now = 61.0
    await world.users.authenticate("ann", b"secret", True)
    assert len(world.verified) == 4


async def test_clients_that_come_at_once_wait_for_the_same_verification(world: World) -> None:
    """As all of them do when another node takes over; each with another password has its own."""
    logins = [world.users.authenticate("ann", b"secret", True) for _ in range(300)]
    first = asyncio.gather(*logins)
    await asyncio.sleep(0)
    gone = asyncio.ensure_future(world.users.authenticate("ann", b"secret", True))
    await asyncio.sleep(0)
    gone.cancel()  # a client that goes takes nothing from the others
    refusals = [world.refused("ann", b"mistaken", loopback=True) for _ in range(2)]
    assert await asyncio.gather(*refusals) == ["credentials"] * 2
    assert {identity.username for identity in await first} == {"ann"}
    assert len(world.verified) == 2


async def test_a_login_after_ten_failures_waits_for_its_turn(world: World) -> None:
    """Whether its password is right, wrong, remembered, or of nobody: the wait tells nothing."""

    async def attempt(password: bytes, name: str = "ann", peer: str = "10.0.0.1") -> tuple[str, float]:
        waited = len(world.slept)
        try:
            await world.users.authenticate(name, password, False, peer=peer)
        except AuthenticationRefused as refused:
            return refused.reason, sum(world.slept[waited:])
        return "in", sum(world.slept[waited:])

    assert await attempt(b"secret") == ("in", 0)  # remembered from here on
    for name in ("nobody", "ann"):
        assert [await attempt(b"mistaken", name) for _ in range(10)] == [("credentials", 0)] * 10
        assert await attempt(b"mistaken", name) == ("credentials", 1.0)
    assert await attempt(b"secret") == ("in", 1.0)
    assert await attempt(b"secret", peer="10.0.0.2") == ("in", 0)
    world.now += 57.0
    assert (await attempt(b"secret"))[1] == 1.0
    world.now += 60.0
    assert await attempt(b"secret") == ("in", 0)
    assert (await attempt(b"mistaken"))[1] == 0.0


def limited(names: int = 1, clock: Callable[[], float] = lambda: 0.0) -> LoginLimit:
    """With so many names that failed ten times each from address "a"."""
    limit = LoginLimit(clock)
    for number in range(names):
        for _ in range(login_limit.FAILURES_MAX):
            limit.failed("a", f"{number}")
    return limit


def test_logins_that_come_at_once_wait_in_a_row_until_too_many_wait() -> None:
    limit = limited()
    assert [limit.turn("a", "0", loopback=False) for _ in range(8)] == [1, 2, 3, 4, 5, 6, None, None]
    assert limit.turn("a", "1", loopback=False) == 0, "nobody else waits"
    assert limit.turn("b", "0", loopback=False) == 0


def test_a_right_login_gives_its_turn_back() -> None:
    limit = limited()
    for _ in range(20):
        assert limit.turn("a", "0", loopback=False) == 1
        limit.succeeded("a", "0")


def test_on_loopback_nobody_is_refused() -> None:
    limit = limited(login_limit.NAMES_MAX)
    for name in ("0", "new"):
        assert all(0 < (limit.turn("a", name, loopback=True) or 0) <= 2 for _ in range(100))


def test_many_names_from_one_address_are_slowed_but_for_those_it_knows() -> None:
    now = 0.0
    limit = LoginLimit(lambda: now)
    limit.succeeded("a", "known")
    for number in range(60):
        wait_s = limit.turn("a", f"{number}", loopback=False)
        assert wait_s == (0.5 if number >= login_limit.NAMES_MAX else 0)
        now += wait_s
        limit.failed("a", f"{number}")
    assert limit.turn("a", "known", loopback=False) == 0
    assert limit.turn("a", "new", loopback=False) == 0.5
    limit.succeeded("a", "new")
    assert limit.turn("a", "new", loopback=False) == 0
    assert limit.turn("b", "60", loopback=False) == 0
    assert [limit.turn("a", f"x{n}", loopback=False) for n in range(14)][-1] is None
    now += 61
    assert limit.turn("a", "x", loopback=False) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "", True),
    ],
)
def test_an_ipv6_address_is_its_network(one: str, other: str, same: bool) -> None:
    limit = LoginLimit(lambda: 0.0)
    for _ in range(10):
        limit.failed(one, "ann")
    assert bool(limit.turn(other, "ann", loopback=False)) is same


async def test_successes_are_not_counted(world: World) -> None:
    for _ in range(20):
        await world.users.authenticate("ann", b"secret", True, peer="10.0.0.1")
    assert await world.refused("ann", b"mistaken") == "credentials"


def test_failures_are_kept_for_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_limit, "_PAIRS_MAX", 3)
    limit = LoginLimit(lambda: 0.0)
    for _ in range(10):
        limit.failed("a", "x")
    for peer in ("b", "c"):
        limit.failed(peer, "x")
    assert limit.turn("a", "x", loopback=False)
    limit.failed("d", "x")
    assert not limit.turn("a", "x", loopback=False)


async def test_a_changed_password_is_not_remembered(world: World) -> None:
    await world.users.authenticate("ann", b"secret", True)
    world.users.set_user("ann", hash_password(b"other"), ())
    assert await world.refused("ann", b"secret") == "credentials"
    assert await world.users.authenticate("ann", b"other", True) == Identity("ann")
    world.users.delete_user("ann")
    assert await world.refused("ann", b"other") == "credentials"


async def test_a_login_is_known_at_once_only_while_its_password_is_remembered(world: World) -> None:
    users = world.users
    assert users.remembered("ann", b"secret", True) is None
    await users.authenticate("ann", b"secret", True)
    assert users.remembered("ann", b"secret", True) == Identity("ann", frozenset({"monitoring"}))
    assert users.remembered("ann", b"wrong", True) is None
    assert users.remembered("ann", b"", True) is None
    assert users.remembered("nobody", b"secret", True) is None
    users.set_user("ann", hash_password(b"other"), ())
    assert users.remembered("ann", b"secret", True) is None


async def test_no_login_is_known_at_once_while_others_wait_for_their_turn(world: World) -> None:
    await world.users.authenticate("ann", b"secret", True)
    assert await world.refused("ann", b"wrong") == "credentials"
    assert world.users.remembered("ann", b"secret", True) is None


async def test_a_user_of_this_machine_is_not_known_at_once_elsewhere(world: World) -> None:
    users = world.users
    users.set_user("guest", hash_password(b"guest"), ())
    await users.authenticate("guest", b"guest", True)
    assert users.remembered("guest", b"guest", True) == Identity("guest")
    assert users.remembered("guest", b"guest", False) is None


async def test_logins_wait_in_a_bounded_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_WAITING_MAX", 2)
    reasons: list[Any] = await asyncio.gather(
        *(world.users.authenticate("ann", b"%d" % index, True) for index in range(5)), return_exceptions=True
    )
    assert sorted(error.reason for error in reasons) == ["busy"] * 3 + ["credentials"] * 2
    await world.users.authenticate("ann", b"secret", True)


async def test_names_and_passwords_cannot_run_into_one_another(world: World) -> None:
    """The cached result of (ann, secret) must not be found for (anns, ecret)."""
    world.users.set_user("anns", world.users._users["ann"].stored, ())
    await world.users.authenticate("ann", b"secret", True)
    assert await world.refused("anns", b"ecret") == "credentials"


async def test_hashes_from_rabbitmq_are_taken_as_they_are() -> None:
    world = World(
        AuthOptions(
            users=(
                User("a", password_hash=exported(b"one")),
                User("b", password_hash=exported(b"two", "sha512")),
            )
        )
    )
    assert (await world.users.authenticate("a", b"one", False)).username == "a"
    assert (await world.users.authenticate("b", b"two", False)).username == "b"
    assert await world.refused("a", b"two") == "credentials"
    world.users.close()


@pytest.mark.parametrize("line", MOSQUITTO_LINES)
async def test_hashes_from_mosquitto_are_taken_as_they_are(line: str, world: World) -> None:
    name, _, hashed = line.partition(":")
    _, kind, rest = hashed.split("$", 2)
    stored = imported_hash(rest, MOSQUITTO_ALGORITHMS[kind])
    assert exported_hash(stored) == (rest, MOSQUITTO_ALGORITHMS[kind])
    world.users.set_user(name, stored, ())
    assert (await world.users.authenticate(name, b"s3cret", False)).username == name
    assert await world.refused(name, b"S3cret") == "credentials"


@pytest.mark.parametrize("line", MOSQUITTO_LINES)
def test_a_damaged_hash_from_mosquitto_is_refused(line: str) -> None:
    _, kind, rest = line.partition(":")[2].split("$", 2)
    other = next(one for one in MOSQUITTO_ALGORITHMS if one != kind)
    for damaged, as_kind in ((rest[:-1], kind), (f"0${rest}", kind), (rest, other), (f"9999999${rest}", "6")):
        with pytest.raises(ValueError, match="mosquitto_password_hashing"):
            imported_hash(damaged, MOSQUITTO_ALGORITHMS[as_kind])


def test_a_damaged_password_hash_is_refused() -> None:
    for damaged in ("", "AAAA", "not base64!", base64.b64encode(bytes(35)).decode()):
        with pytest.raises(ValueError, match="password_hash"):
            rabbitmq_hash(damaged)


def test_new_hashes_are_slow_salted_and_verify() -> None:
    first, second = hash_password(b"x"), hash_password(b"x")
    assert first != second and is_slow(first)
    assert verify_password(first, b"x") and not verify_password(first, b"y")
    assert not verify_password(DUMMY, b"")


def test_only_a_right_password_is_known_without_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = hash_password(b"x")
    derived: list[bytes] = []
    proved: list[bytes] = []

    def derive(password: bytes, *_: object) -> bytes:
        derived.append(password)
        return b""

    def matches(verifier: Verifier, password: bytes) -> bool:
        proved.append(password)
        return by_keys(verifier, password)

    by_keys = Verifier.matches
    monkeypatch.setattr(passwords, "_derive", derive)
    monkeypatch.setattr(Verifier, "matches", matches)
    assert verify_password(stored, b"x") and derived == []
    for each in (stored, stored.partition(";")[0], DUMMY):
        assert not verify_password(each, b"y")
    assert derived == [b"y"] * 3 and proved == [b"x", *[b"y"] * 3]


def test_a_default_user_who_was_deleted_does_not_come_back() -> None:
    options = AuthOptions()
    world = World(options)
    assert world.users.names() == ["guest"]
    world.users.delete_user("guest")
    world.users.close()
    again = World(options, world.tables)
    assert again.users.names() == []
    again.users.close()


def test_users_and_permissions_are_restored_and_listed_users_follow_the_configuration() -> None:
    world = World(AuthOptions(default_user="", users=(User("ann", "one"), User("bob", "two"))))
    world.authorizer.set("ann", "/", Permission("", "^x", ""))
    kept = world.users._users["bob"].stored
    world.users.close()
    again = World(AuthOptions(default_user="", users=(User("ann", "new"), User("bob", "two"))), world.tables)
    assert verify_password(again.users._users["ann"].stored, b"new")
    assert again.users._users["bob"].stored == kept
    assert again.authorizer.allow(Identity("ann"), "/", "write", "xy")
    assert not again.authorizer.allow(Identity("ann"), "/", "configure", "xy")
    again.users.close()


def test_anonymous_peers_are_the_default_user(world: World) -> None:
    assert world.users.anonymous(True).username == "guest"
    assert world.users.anonymous(False, everywhere=True).username == "guest"
    with pytest.raises(AuthenticationRefused) as refused:
        world.users.anonymous(False)
    assert refused.value.reason == "anonymous"
    world.users.delete_user("guest")
    with pytest.raises(AuthenticationRefused):
        world.users.anonymous(True)
    assert world.users.identity("ann") == Identity("ann", frozenset({"monitoring"}))
    assert world.users.identity("guest") is None


def test_permissions_are_regular_expressions_per_vhost(world: World) -> None:
    ann = Identity("ann")
    world.authorizer.set("ann", "/", Permission(configure="", write="^w|x$", read=".*"))
    allow = world.authorizer.allow
    assert [allow(ann, "/", "write", name) for name in ("wa", "ax", "aw", "")] == [True, True, False, False]
    assert [allow(ann, "/", "configure", name) for name in ("a", "")] == [False, False]
    assert allow(ann, "/", "read", "anything")
    assert not allow(ann, "other", "read", "anything")
    assert world.authorizer.enter(ann, "/") and not world.authorizer.enter(ann, "other")
    world.authorizer.set("ann", "/", Permission(write="^amq\\.default$"))
    assert allow(ann, "/", "write", "")


def test_a_pattern_that_is_none_changes_nothing(world: World) -> None:
    with pytest.raises(InvalidRegex):
        world.authorizer.set("ann", "/", Permission("("))
    assert world.authorizer.allow(Identity("ann"), "/", "configure", "x")
