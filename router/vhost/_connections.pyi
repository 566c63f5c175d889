"""The connections in a vhost. The module text is in _connections.pyx."""

from collections.abc import Callable, Iterator

from penstock.router.limits.limits import Limits
from penstock.router.vhost.connections import Member, Timer

class Index:
    """A part of `Connections`, which derives from it."""

    @property
    def _members(self) -> dict[Member, tuple[str, str]]:
        """With the user and the vhost it entered as."""

    @property
    def _of_user(self) -> dict[str, dict[Member, None]]: ...
    @property
    def _of_vhost(self) -> dict[str, dict[Member, None]]: ...
    @property
    def _ends(self) -> dict[Member, Timer]:
        """When logins by token end."""

    def __init__(self, user_limits: Callable[[str], Limits]) -> None:
        """`user_limits` answers the limits of a user."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Member]:
        """All, oldest first; connections may leave meanwhile."""

    def enter(self, member: Member) -> None:
        """The connection is in its vhost.

        Raises:
            LimitReached: the vhost or the user has as many as it may have.

        """

    def leave(self, member: Member) -> None:
        """The connection is lost; fine when it never was in."""

    def watch(self, member: Member) -> None:
        """End the connection when its token's time is over. `Connections`'."""
