"""Sessions of web pages: whose they are, when they end, and what of them lies in the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.router.authentication.web_sessions import IDLE_S, LIFE_S, WebSessions
from penstock.router.authorization.grants import Grants
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AuthenticationRefused
from tests.support.amqp_session import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.broker.administration.put_user("ann", "pw", ("management",))
    yield world
    world.close()


def ann(world: World) -> Identity:
    identity = world.broker.users.identity("ann")
    assert identity is not None
    return identity


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_its_users_while_it_is_used(world: World) -> None:
    clock = Clock()
    sessions = WebSessions(world.log.tables, world.broker.users, wall_s=clock)
    text, lsn = sessions.begin(ann(world))
    assert lsn and len(text) == 43
    for wrong in ("", text[:-1], text + "x", text.swapcase()):
        assert sessions.authenticate(wrong, True) is None
    clock.now += IDLE_S - 1
    assert sessions.authenticate(text, True) == ann(world)
    clock.now += IDLE_S - 1
    assert sessions.authenticate(text, False) == ann(world)
    clock.now += IDLE_S
    assert sessions.authenticate(text, True) is None
    assert sessions.left_s(text) == 0


def test_a_session_that_is_always_used_ends_all_the_same(world: World) -> None:
    clock = Clock()
    sessions = WebSessions(world.log.tables, world.broker.users, wall_s=clock)
    text, _ = sessions.begin(ann(world))
    for _ in range(LIFE_S // 600 - 1):
        clock.now += 600
        assert sessions.authenticate(text, True) is not None
    assert 0 < sessions.left_s(text) <= 600
    clock.now += 600
    assert sessions.authenticate(text, True) is None


def test_use_is_written_once_a_minute(world: World) -> None:
    clock = Clock()
    sessions = WebSessions(world.log.tables, world.broker.users, wall_s=clock)
    text, _ = sessions.begin(ann(world))
    (key,) = world.log.tables.keys("web_session")
    written = world.log.tables.get("web_session", key)
    clock.now += 59
    sessions.used(text)
    assert world.log.tables.get("web_session", key) == written
    clock.now += 1
    sessions.used(text)
    assert world.log.tables.get("web_session", key) != written


def test_a_session_ends_at_logout_and_with_its_user(world: World) -> None:
    sessions, told = world.broker.web_sessions, []
    sessions.on_ended.append(lambda: told.append(1))
    first, _ = sessions.begin(ann(world))
    second, _ = sessions.begin(ann(world))
    assert sessions.end(first) and not sessions.end(first) and told == [1]
    assert sessions.authenticate(first, True) is None
    assert sessions.authenticate(second, True) == ann(world)
    world.broker.administration.delete_user("ann")
    assert sessions.authenticate(second, True) is None and told == [1, 1]
    world.broker.administration.put_user("ann", "pw", ("management",))
    assert sessions.authenticate(second, True) is None


@pytest.mark.parametrize(
    ("stored", "tags"), [("pw2", ("management",)), ("pw", ("administrator",)), ("pw", ())]
)
def test_a_session_ends_when_the_password_or_the_tags_change(
    world: World, stored: str, tags: tuple[str, ...]
) -> None:
    text, _ = world.broker.web_sessions.begin(ann(world))
    world.broker.administration.put_user("ann", "pw", ("management",))
    assert world.broker.web_sessions.left_s(text) > 0
    world.broker.administration.put_user("ann", stored, tags)
    assert world.broker.web_sessions.authenticate(text, True) is None
    assert world.broker.web_sessions.left_s(text) == 0


def test_loopback_users_have_loopback_sessions(world: World) -> None:
    guest = world.broker.users.identity("guest")
    assert guest is not None
    text, _ = world.broker.web_sessions.begin(guest)
    assert world.broker.web_sessions.authenticate(text, True) == guest
    with pytest.raises(AuthenticationRefused):
        world.broker.web_sessions.authenticate(text, False)


def test_the_stored_row_logs_nobody_in_and_a_session_holds_after_a_restart(world: World) -> None:
    text, _ = world.broker.web_sessions.begin(ann(world))
    (key,) = world.log.tables.keys("web_session")
    assert len(key) == 32
    assert text.encode() not in key + (world.log.tables.get("web_session", key) or b"")
    world.turn()
    world.restart()
    assert world.broker.web_sessions.authenticate(text, True) == ann(world)


def test_a_session_of_a_token_has_its_rights_and_its_time(world: World) -> None:
    clock = Clock()
    sessions = WebSessions(world.log.tables, world.broker.users, wall_s=clock)
    grants, tags = Grants.parse(["read:%2F/orders-*", "tag:monitoring"], clock.now + 90)
    text, _ = sessions.begin(Identity("machine", tags, grants=grants))
    found = sessions.authenticate(text, False)
    assert found == Identity("machine", tags, grants=grants)
    assert found.grants is not None and found.grants.ends_at == clock.now + 90
    clock.now += 90
    assert sessions.authenticate(text, False) is None


def test_a_user_has_so_many_sessions_at_most(world: World) -> None:
    clock = Clock()
    sessions = WebSessions(world.log.tables, world.broker.users, wall_s=clock)
    texts = []
    for _ in range(101):
        clock.now += 1
        texts.append(sessions.begin(ann(world))[0])
    assert sessions.authenticate(texts[0], True) is None
    assert all(sessions.authenticate(text, True) for text in texts[1:])
    clock.now += IDLE_S
    sessions.begin(ann(world))
    assert len(list(world.log.tables.keys("web_session"))) == 1  # what has ended is forgotten


def test_the_default_clock_is_the_time_of_day(world: World) -> None:
    text, _ = world.broker.web_sessions.begin(ann(world))
    assert abs(world.broker.web_sessions.left_s(text) - IDLE_S) < 60
