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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


class Connections:
    """See the module."""

    def __init__(
        self,
        user_limits: Callable[[str], Limits],
        after: Callable[[float, Callable[[], None]], Timer],
        *,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`user_limits` answers the limits of a user, `after` calls something so many seconds from now."""
        self._user_limits = user_limits
        self._after = after
        self._wall_s = wall_s
        self._ends: dict[Member, Timer] = {}
        """When logins by token end."""
        self._members: dict[Member, tuple[str, str]] = {}
        """With the user and the vhost it entered as."""
        self._of_user: dict[str, dict[Member, None]] = {}
        self._of_vhost: dict[str, dict[Member, None]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """All, oldest first; connections may leave meanwhile."""
        return iter(list(self._members))

    def enter(self, member: Member) -> None:
        """The connection is in its vhost.

        Raises:
            LimitReached: the vhost or the user has as many as it may have.

        """
        identity, vhost = member.identity, member.vhost
        user, of_user, of_vhost = identity.username, self._of_user, self._of_vhost
        if vhost.limits:
            most = over(vhost.limits, "max-connections", len(of_vhost.get(vhost.name, ())))
            if most is not None:
                raise LimitReached("vhost-connections", most, vhost=vhost.name, user=user)
        if limits := self._user_limits(user):
            most = over(limits, "max-connections", len(of_user.get(user, ())))
            if most is not None:
                raise LimitReached("user-connections", most, vhost=vhost.name, user=user)
        self._members[member] = user, vhost.name
        for index, name in ((of_user, user), (of_vhost, vhost.name)):
            if name not in index:
                index[name] = {}
            index[name][member] = None
        if identity.grants is not None:
            self._look(member)

    def _look(self, member: Member) -> None:
        """End the connection when its token's time is over; until then, look again."""
        grants = member.identity.grants
        if grants is None:
            return
        left_s = grants.ends_at - self._wall_s()
        if left_s > 0:
            # Not longer than a day: the clock may be set meanwhile.
            self._ends[member] = self._after(min(left_s + 0.01, 86_400.0), lambda: self._look(member))
            return
        self._ends.pop(member, None)
        member.force_close("the token's time is over; connect again with a new one")

    def leave(self, member: Member) -> None:
        """The connection is lost; fine when it never was in."""
        place = self._members.pop(member, None)
        if place is None:
            return
        timer = self._ends.pop(member, None)
        if timer is not None:
            timer.cancel()
        for index, name in zip((self._of_user, self._of_vhost), place, strict=True):
            del index[name][member]
            if not index[name]:
                del index[name]

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
