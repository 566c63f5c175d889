"""Rate quotas: how much the publishers of a user, or to a vhost, may publish per second, all together.

    max-message-rate   messages      max-byte-rate   bytes, as they come from the network

Limits of users and vhosts (`limits`). Nothing is dropped: whose bucket is overdrawn is not read until it is
full enough again, and over HTTP told to come later. It is asked once per read, not per message, so one read
may overdraw it; a bucket that rested has what two seconds bring. Costs nothing while nobody has such a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.router.limits.limits import BYTE_RATE, MESSAGE_RATE, Limits, limit_of
from penstock.router.limits.token_buckets import Bucket

if TYPE_CHECKING:
    from penstock.router.authentication.users import Users
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Meter", "Rates"]

SCOPES: Final = ("user", "vhost")


class Meter:
    """The rate limit of the publishers of one user, or to one vhost."""

    def __init__(self, rates: tuple[int | None, int | None], now: float) -> None:
        """`rates`: messages and bytes per second; None: as many as there are."""
        self.rates = rates
        self._messages, self._bytes = (Bucket(rate, now) if rate is not None else None for rate in rates)

    def take(self, messages: int, nbytes: int, now: float) -> float:
        """So much was published: seconds until more may be."""
        return max(
            self._messages.take(messages, now) if self._messages is not None else 0.0,
            self._bytes.take(nbytes, now) if self._bytes is not None else 0.0,
        )


class Rates:
    """Those of all users and vhosts."""

    def __init__(
        self, users: Users, vhosts: Mapping[str, Vhost], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._users = users
        self._vhosts = vhosts
        self._clock = clock
        self._meters: dict[tuple[str, str], Meter] = {}
        """By scope and name."""
        self.any = False
        """Whether anybody is held to a rate."""
        self.slowed: dict[str, int] = dict.fromkeys(SCOPES, 0)
        """How often a publisher was held, or refused over HTTP, by what held it longest."""
        self.slowed_s: dict[str, float] = dict.fromkeys(SCOPES, 0.0)
        """And for how long."""
        self.on_change: list[Callable[[], object]] = []
        """Called when other rates hold: ask `of` again."""
        users.on_changed.append(self.limits_changed)

    def limits_changed(self) -> None:
        """The limits of a user or a vhost have changed, or it is gone."""
        named = {
            **self._limited("user", ((name, self._users.limits(name)) for name in self._users.names())),
            **self._limited("vhost", ((name, vhost.limits) for name, vhost in self._vhosts.items())),
        }
        if named == {key: meter.rates for key, meter in self._meters.items()}:
            return
        now, before = self._clock(), self._meters
        self._meters = {
            key: before[key] if key in before and before[key].rates == rates else Meter(rates, now)
            for key, rates in named.items()
        }
        self.any = bool(self._meters)
        for told in list(self.on_change):
            told()

    def _limited(
        self, scope: str, limits: Iterable[tuple[str, Limits]]
    ) -> dict[tuple[str, str], tuple[int | None, int | None]]:
        return {
            (scope, name): (limit_of(one, MESSAGE_RATE), limit_of(one, BYTE_RATE))
            for name, one in limits
            if limit_of(one, MESSAGE_RATE) is not None or limit_of(one, BYTE_RATE) is not None
        }

    def hold(self, user: str, vhost: str) -> bool:
        """Whether a publisher to the vhost, as this user, is held to any rate."""
        meters = self._meters
        return bool(meters) and (("user", user) in meters or ("vhost", vhost) in meters)

    def spend(self, user: str, vhost: str, messages: int, nbytes: int) -> float:
        """So much was published by one: for how many seconds it waits now."""
        longest, by = self._take(user, vhost, messages, nbytes)
        if by:
            self.slowed[by] += 1
            self.slowed_s[by] += longest
        return longest

    def charge(self, user: str, vhost: str, messages: int, nbytes: int) -> None:
        """The same of one that does not wait, but asks `refuses` before the next."""
        self._take(user, vhost, messages, nbytes)

    def refuses(self, user: str, vhost: str) -> float:
        """For how many seconds nothing may be published; 0: it may."""
        return self.spend(user, vhost, 0, 0)

    def _take(self, user: str, vhost: str, messages: int, nbytes: int) -> tuple[float, str]:
        longest, by = 0.0, ""
        if self._meters:
            now = self._clock()
            for key in (("user", user), ("vhost", vhost)):
                meter = self._meters.get(key)
                if meter is not None and (wait_s := meter.take(messages, nbytes, now)) > longest:
                    longest, by = wait_s, key[0]
        return longest, by
