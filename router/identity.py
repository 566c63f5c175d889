"""Who asks: a user who logged in, and the connection it asks through."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Actor", "Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A user who proved to be one. Equal identities may do the same."""

    username: str
    tags: frozenset[str] = frozenset()
    """What the user may administer, e.g. "administrator"."""


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """An identity on a connection."""

    identity: Identity
    owner: object
    """Stands for the connection, compared with `is`: exclusive queues belong to it and die with it."""
