"""A connection as the router knows it."""

from __future__ import annotations

from penstock.router.authorization.identity import Identity
from tests.unit.router.conftest import World


class Member:
    """A connection that counts what it is told."""

    def __init__(self, world: World, user: str) -> None:
        self.identity = Identity(user)
        self.vhost = world.vhost
        self.told = 0
        self.channel_count = 0
        self.closed: list[str] = []

    def permissions_changed(self) -> None:
        self.told += 1

    def force_close(self, reason: str) -> None:
        self.closed.append(reason)
