"""Tokens: whose they are, when they end, and what of them lies in the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.router.authentication.tokens import TTL_MAX_S, Tokens
from penstock.router.errors import AuthenticationRefused, InvalidParameter, NotFound
from tests.support.amqp_session import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.broker.administration.put_user("ann", "pw", ("management",))
    yield world
    world.close()


def test_a_token_is_its_users_until_its_time(world: World) -> None:
    now = [1000.0]
    tokens = Tokens(world.log.tables, world.broker.users, wall_s=lambda: now[0])
    text, token, lsn = tokens.issue("ann", "ci", 60)
    assert text.startswith("pst_") and len(text) == 47 and lsn
    assert (token.user, token.expires_ms) == ("ann", 1_060_000)
    identity = tokens.authenticate(text, False)
    assert (identity.username, identity.tags) == ("ann", frozenset(("management",)))
    for wrong in ("", "pst_", text[:-1], text + "x", text.upper()):
        with pytest.raises(AuthenticationRefused):
            tokens.authenticate(wrong, False)
    now[0] += 60
    with pytest.raises(AuthenticationRefused):
        tokens.authenticate(text, False)
    assert tokens.of("ann") == []


def test_loopback_users_have_loopback_tokens(world: World) -> None:
    text, _, _ = world.broker.tokens.issue("guest", "t", 60)
    assert world.broker.tokens.authenticate(text, True).username == "guest"
    with pytest.raises(AuthenticationRefused):
        world.broker.tokens.authenticate(text, False)


def test_the_stored_row_does_not_allow_a_login(world: World) -> None:
    text, _, _ = world.broker.tokens.issue("ann", "t", 60)
    (key,) = world.log.tables.keys("token")
    assert len(key) == 32
    assert text.encode() not in key + (world.log.tables.get("token", key) or b"")
    world.turn()
    world.restart()
    assert world.broker.tokens.authenticate(text, False).username == "ann"


def test_a_token_ends_when_it_is_revoked_replaced_or_its_user_deleted(world: World) -> None:
    tokens = world.broker.tokens
    first, _, _ = tokens.issue("ann", "t", 60)
    second, _, _ = tokens.issue("ann", "t", 60)
    with pytest.raises(AuthenticationRefused):
        tokens.authenticate(first, False)
    assert tokens.revoke("ann", "t")
    with pytest.raises(AuthenticationRefused):
        tokens.authenticate(second, False)
    with pytest.raises(NotFound):
        tokens.revoke("ann", "t")
    third, _, _ = tokens.issue("ann", "t", 60)
    world.broker.administration.delete_user("ann")
    world.broker.administration.put_user("ann", "pw")
    with pytest.raises(AuthenticationRefused):
        tokens.authenticate(third, False)


def test_names_times_and_numbers_are_bounded(world: World) -> None:
    tokens = world.broker.tokens
    for name, ttl_s in (("", 1), ("x" * 101, 1), ("x", 0), ("x", TTL_MAX_S + 1)):
        with pytest.raises(InvalidParameter):
            tokens.issue("ann", name, ttl_s)
    with pytest.raises(NotFound):
        tokens.issue("nobody", "x", 1)
    for n in range(100):
        tokens.issue("ann", f"t{n}", 60)
    with pytest.raises(InvalidParameter, match="100 tokens"):
        tokens.issue("ann", "one more", 60)
