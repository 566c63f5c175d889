"""The connections in a vhost: found by user and by vhost, and told when their permissions have changed.

A front end enters its connection after the login, and removes it when it is lost. The router speaks to a
connection through `Member`; the front end chooses the words for the client. A connection that logged in by
a token ends when the token expires, unless its identity has a later time by then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from penstock.router.errors import LimitReached
from penstock.router.limits.limits import Limits, over
from penstock.router.vhost._connections import Index

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Connections", "Member"]


class Member(Protocol):
    """A connection of a client, as the router sees it."""

    @property
    def identity(self) -> Identity:
        """Its user."""

    @property
    def vhost(self) -> Vhost:
        """Its vhost."""

    @property
    def channel_count(self) -> int:
        """Channels it has open; 0 where there are none."""

    def permissions_changed(self) -> None:
        """The rights or tags of its user changed: ask again about what goes on.

        That is consumers, subscriptions, the vhost itself. Publishes need nothing: their routes are resolved
        again.
        """

    def force_close(self, reason: str) -> None:
        """Say goodbye, and why, and close. The connection leaves when it is gone."""


class Timer(Protocol):
    """Something that is called later."""

    def cancel(self) -> None: ...


class Connections(Index):
    """See the module."""

    def __init__(
        self,
        user_limits: Callable[[str], Limits],
        after: Callable[[float, Callable[[], None]], Timer],
        *,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`user_limits` answers the limits of a user, `after` calls something so many seconds from now."""
        super().__init__(user_limits)
        self._user_limits = user_limits
        self._after = after
        self._wall_s = wall_s

    def watch(self, member: Member) -> None:
        """End the connection when its token's time is over; until then, look again."""
        grants = member.identity.grants
        if grants is None:
            return
        left_s = grants.ends_at - self._wall_s()
        if left_s > 0:
            # Not longer than a day: the clock may be set meanwhile.
            self._ends[member] = self._after(min(left_s + 0.01, 86_400.0), lambda: self.watch(member))
            return
        self._ends.pop(member, None)
        member.force_close("the token's time is over; connect again with a new one")

    def check_channel(self, user: str) -> None:
        """Whether one of the user's connections may open a channel.

        Raises:
            LimitReached: they have as many as the user may have.

        """
        limits = self._user_limits(user)
        if "max-channels" in limits:
            most = over(limits, "max-channels", sum(member.channel_count for member in self.of(user=user)))
            if most is not None:
                raise LimitReached("user-channels", most, user=user)

    def of(self, *, user: str | None = None, vhost: str | None = None) -> list[Member]:
        """Those of a user, or in a vhost, or both, oldest first."""
        if user is None:
            return list(self._members if vhost is None else self._of_vhost.get(vhost, ()))
        return [m for m in self._of_user.get(user, ()) if vhost in (None, self._members[m][1])]

    def permissions_changed(self, user: str, vhost: str) -> None:
        """A user's rights in a vhost changed."""
        for member in self.of(user=user, vhost=vhost):
            member.permissions_changed()
