"""The caller of an operation: a user who logged in, and the user's connection."""

from __future__ import annotations

from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.router.authorization._identity import Identity

__all__ = ["BROKER", "Actor", "Identity"]

BROKER: Final = Identity("rmq-internal")
"""The broker itself, for what an administrator has it do: it may do everything. Compared with `is`."""


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """An identity on a connection."""

    identity: Identity
    owner: object
    """Stands for the connection, compared with `is`: exclusive queues belong to it and die with it."""
