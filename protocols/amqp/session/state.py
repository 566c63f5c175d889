"""The state of a connection, and the login that is to be checked."""

from __future__ import annotations

from enum import Enum

from penstock.lazy_dataclass import dataclass

__all__ = ["Login", "State"]


class State(Enum):
    """Where the connection is."""

    HEADER = "waiting for the protocol header"
    START = "starting"
    LOGIN = "logging in"
    TUNE = "tuning"
    OPEN = "opening"
    RUNNING = "running"
    CLOSING = "closing"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Login:
    """A login to be checked."""

    user: str
    password: bytes
    certified: bool = False
    """A client certificate has proved the name; there is no password."""
    anonymous: bool = False
    """There is no name either."""
    scram: None = None
    """No such login here."""
