"""The state that workers have in common: what worker 0 says holds in the others, what is missed is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.router.authentication.users import AuthOptions
from penstock.router.authorization.permissions import Permission, TopicPermission
from penstock.router.broker import Broker, BrokerOptions
from penstock.router.shared_state import Change, Mirror, Said, apply
from penstock.subscriptions.tick.tick import Tick
from tests.support.queues import Loop

OPTIONS = LogOptions(fsync="never", segment_bytes=1 << 20, min_free_bytes=0)


class Two:
    """Worker 0 and worker 1, with a wire between them that a test may cut."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cut = False
        self.logs = [Log.open(folder / str(number), OPTIONS) for number in (0, 1)]
        self.said = Said(self.logs[0].tables, self._tell)
        self.told: list[Change] = []
        self.zero = self._broker(0, self.said)
        self.mirror = Mirror(self.said.all())
        self.one = self._broker(1, self.mirror)
        self.told.clear()

    def _tell(self, change: Change, lsn: int) -> None:
        assert lsn >= 0
        self.told.append(change)

    def _broker(self, worker: int, shared: Said | Mirror) -> Broker:
        log = self.logs[worker]
        options = BrokerOptions(auth=AuthOptions(default_password="x"), worker=worker, workers=2)
        return Broker.open(log, Tick(log, Loop()), options, shared=shared)  # type: ignore[arg-type]

    def say(self) -> None:
        """Deliver the notices."""
        changes, self.told = self.told, []
        for change in changes:
            apply(self.one, self.mirror, change)

    def say_all(self) -> None:
        """Worker 1 has lost sight of worker 0, and gets all rows."""
        self.told = self.mirror.changes_to(self.said.all())
        self.say()

    def close(self) -> None:
        for broker in (self.zero, self.one):
            broker.close()
        for log in self.logs:
            log.close_sync()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    two = Two(tmp_path)
    yield two
    two.close()


def change_all(two: Two) -> None:
    admin = two.zero.administration
    admin.put_vhost("b", description="busy")
    admin.set_vhost_limits("b", {"max-queues": 3})
    admin.put_user("ann", "hash", ["monitoring"])
    admin.set_user_limits("ann", {"max-connections": 2})
    admin.set_permission("ann", "b", Permission(read="x"))
    admin.set_topic_permission("ann", "b", "amq.topic", TopicPermission(write="w", read="r"))
    two.token, _, _ = two.zero.tokens.issue("ann", "t", 60)  # type: ignore[attr-defined]
    ann = two.zero.users.identity("ann")
    assert ann is not None
    two.session, _ = two.zero.web_sessions.begin(ann)  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["say", "say_all"])
def test_changes_of_worker_0_hold_in_the_other(two: Two, way: str) -> None:
    change_all(two)
    assert "b" not in two.zero.vhosts and two.zero.elsewhere("b") == 1
    assert not two.one.knows("b")
    getattr(two, way)()
    assert two.one.elsewhere("/") == 0
    assert two.one.elsewhere("b") is None
    vhost = two.one.vhosts["b"]
    assert (vhost.metadata.description, vhost.limits) == ("busy", {"max-queues": 3})
    ann = two.one.users.identity("ann")
    assert ann is not None and ann.tags == {"monitoring"}
    assert two.one.users.limits("ann") == {"max-connections": 2}
    assert two.one.authorizer.allow(ann, "b", "read", "x")
    assert not two.one.authorizer.allow(ann, "b", "read", "y")
    assert not two.one.authorizer.allow_topic(ann, "b", "write", "amq.topic", b"other")
    assert two.one.tokens.authenticate(two.token, True).username == "ann"  # type: ignore[attr-defined]
    assert two.one.web_sessions.authenticate(two.session, True) == ann  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["say", "say_all"])
def test_removals_of_worker_0_hold_in_the_other(two: Two, way: str) -> None:
    change_all(two)
    two.say()
    ann = two.one.users.identity("ann")
    assert ann is not None
    heard: list[str] = []  # by those who hold what goes on by it
    two.one.on_permissions_changed.append(lambda user, vhost: heard.append(f"{user} in {vhost}"))
    two.one.users.on_changed.append(lambda: heard.append("users"))
    two.one.tokens.on_ended.append(lambda: heard.append("tokens"))
    two.one.web_sessions.on_ended.append(lambda: heard.append("session"))
    admin = two.zero.administration
    admin.clear_topic_permission("ann", "b")
    admin.clear_vhost_limits("b")
    getattr(two, way)()
    assert heard == ["ann in b"]
    admin.put_user("ann", "other hash")
    getattr(two, way)()
    assert heard.pop() == "users"
    two.zero.web_sessions.end(two.session)  # type: ignore[attr-defined]
    getattr(two, way)()
    assert heard.pop() == "session"
    two.zero.tokens.issue("ann", "u", 60)
    two.zero.tokens.revoke("ann", "u")
    getattr(two, way)()
    two.zero.tokens.revoke("ann", "t")
    getattr(two, way)()
    assert heard.pop() == "tokens"
    assert two.one.authorizer.allow_topic(ann, "b", "write", "amq.topic", b"other")
    assert two.one.vhosts["b"].limits == {}
    admin.delete_user("ann")
    getattr(two, way)()
    assert two.one.users.identity("ann") is None
    assert not two.one.authorizer.enter(ann, "b")
    assert two.one.tokens.of("ann") == []
    two.one.administration.delete_vhost("b")  # its worker first
    assert not two.one.knows("b")
    admin.delete_vhost("b")
    getattr(two, way)()
    assert not two.one.knows("b") and not two.zero.knows("b")
    assert two.mirror.changes_to(two.said.all()) == []


def test_vhosts_are_spread(two: Two) -> None:
    for number in range(5):
        two.zero.administration.put_vhost(f"v{number}")
    assert [two.zero.elsewhere(f"v{number}") for number in range(5)] == [1, None, 1, None, 1]


def test_a_start_with_fewer_workers_is_refused__it_names_the_vhosts_and_the_number(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.zero.administration.put_vhost("far")
    two.close()
    log = Log.open(tmp_path / "0", OPTIONS)
    with pytest.raises(StartError, match=r"'far'.*set server\.workers to 2"):
        Broker.open(log, Tick(log, Loop()), BrokerOptions(auth=AuthOptions(default_password="x")))
    log.close_sync()
