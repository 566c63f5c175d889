"""The caller of an operation: a user who logged in, and the user's connection."""

from __future__ import annotations

from dataclasses import field
from sys import intern
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.router.authorization.grants import Grants

__all__ = ["BROKER", "Actor", "Identity"]

_SEEING: Final = frozenset({"administrator", "monitoring"})
"""Tags of users who see everything."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user who proved to be one. Equal identities may do the same."""

    username: str
    tags: frozenset[str] = frozenset()
    """The user's tags for administration, e.g. "administrator"."""
    client_id: str = ""
    """The MQTT client id it came with; "" for others. Topic permissions may name it."""

    grants: Grants | None = None
    """The rights of a token, in place of the permissions of a user; None: those count."""
    guarded: bool = field(default=True, compare=False)
    """Whether a `TopicGuard` is asked, too. False: it was, when what is done now was asked for."""

    @property
    def sees_all(self) -> bool:
        """Whether the user may look at all vhosts, and at what other users do."""
        return not self.tags.isdisjoint(_SEEING)

    def of_client(self, client_id: str) -> Identity:
        """The same user, with this client id; the many sessions of a user share its name."""
        return Identity(intern(self.username), self.tags, client_id, self.grants, self.guarded)


BROKER: Final = Identity("rmq-internal")
"""The broker itself, for what an administrator has it do: it may do everything. Compared with `is`."""


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """An identity on a connection."""

    identity: Identity
    owner: object
    """Stands for the connection, compared with `is`: exclusive queues belong to it and die with it."""
