"""Rate quotas of users and vhosts: what is counted together, who waits how long, and when it is over."""

from __future__ import annotations

import pytest

from penstock.log_core.batch._appender import Appender
from penstock.log_core.state.tables import Tables
from penstock.router.authentication.users import AuthOptions, Users
from penstock.router.errors import InvalidParameter
from penstock.router.limits.limits import USER_LIMITS, VHOST_LIMITS, check_limits
from penstock.router.limits.rate_quotas import Rates


class Vhost:
    def __init__(self) -> None:
        self.limits: dict[str, int] = {}


class World:
    """User ann, vhosts v and w; the clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.users = Users(Tables(Appender(lambda: 1)), AuthOptions())
        self.users.set_user("ann", "", ())
        self.vhosts = {"v": Vhost(), "w": Vhost()}
        self.rates = Rates(self.users, self.vhosts, clock=lambda: self.now)  # type: ignore[arg-type]
        self.changes = 0
        self.rates.on_change.append(self.changed)

    def changed(self) -> None:
        self.changes += 1

    def limit(self, vhost: str, **limits: int) -> None:
        self.vhosts[vhost].limits = {name.replace("_", "-"): value for name, value in limits.items()}
        self.rates.limits_changed()


def test_without_limits_nobody_waits_and_nothing_is_kept() -> None:
    world = World()
    assert not world.rates.hold("ann", "v")
    assert world.rates.spend("ann", "v", 10**9, 10**9) == 0
    world.limit("v", max_queues=5)
    assert world.changes == 0


def test_all_publishers_to_a_vhost_share_its_rate() -> None:
    world = World()
    world.limit("v", max_message_rate=10)
    assert world.rates.hold("ann", "v")
    assert not world.rates.hold("ann", "w")
    assert world.rates.spend("ann", "v", 20, 0) == 0  # a rested bucket has two seconds' worth
    assert world.rates.spend("bob", "v", 5, 0) == pytest.approx(0.5)
    assert world.rates.spend("ann", "v", 5, 0) == pytest.approx(1.0)
    assert world.rates.spend("ann", "w", 10**6, 0) == 0
    world.now = 1.0
    assert world.rates.refuses("ann", "v") == 0
    assert world.rates.spend("ann", "v", 1, 0) == pytest.approx(0.1)


def test_the_longest_of_all_rates_counts() -> None:
    world = World()
    world.limit("v", max_message_rate=1000, max_byte_rate=1000)
    world.users.set_limits("ann", {"max-message-rate": 1})
    assert world.changes == 2
    assert world.rates.spend("bob", "v", 10, 3000) == pytest.approx(1.0)
    assert world.rates.spend("ann", "w", 10, 3000) == pytest.approx(8.0)
    assert world.rates.slowed == {"user": 1, "vhost": 1}
    assert world.rates.slowed_s["user"] == pytest.approx(8.0)


def test_a_publish_that_does_not_wait_is_charged_before_the_next() -> None:
    world = World()
    world.limit("v", max_message_rate=1)
    world.rates.charge("ann", "v", 5, 0)
    assert world.rates.slowed == {"user": 0, "vhost": 0}
    assert world.rates.refuses("ann", "v") == pytest.approx(3.0)
    assert world.rates.slowed["vhost"] == 1


def test_another_limit_leaves_the_bucket_as_it_is_and_another_rate_makes_it_anew() -> None:
    world = World()
    world.limit("v", max_message_rate=1)
    world.rates.charge("ann", "v", 5, 0)
    world.limit("v", max_message_rate=1, max_queues=7)
    assert world.rates.refuses("ann", "v") > 0
    world.limit("v", max_message_rate=2)
    assert world.rates.refuses("ann", "v") == 0
    world.limit("v", max_message_rate=-1)
    assert not world.rates.hold("ann", "v")


def test_a_rate_of_nothing_is_refused() -> None:
    for known in (USER_LIMITS, VHOST_LIMITS):
        with pytest.raises(InvalidParameter, match="at least 1"):
            check_limits({"max-message-rate": 0}, known)
