"""Timers of wills and session ends. The module text is in _timers.pyx."""

from collections.abc import Iterator

from penstock.protocols.mqtt.clients.client import Client

class Timers:
    """Of all sessions of a broker."""

    def __init__(self) -> None: ...
    def arm(self, at: float, client: Client, now: float) -> bool:
        """Tell of the client at its `will_at` or `ends_at`, which is `at`; True: `next` has come nearer."""

    def next(self) -> float | None:
        """When `due` is to be asked next; None: not at all."""

    def due(self, now: float) -> Iterator[Client]:
        """The clients whose time has come, in the order of the times; each perhaps more than once."""
