"""The state of a connection, and the login that is to be checked."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.router.authentication.users import ScramLogin

__all__ = ["Login", "State"]


class State(Enum):
    """Where the connection is."""

    HEADER = "waiting for the protocol header"
    SASL = "waiting for sasl-init or sasl-response"
    LOGIN = "logging in"
    SECOND_HEADER = "waiting for the header behind SASL"
    OPEN = "waiting for open"
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
    scram: ScramLogin | None = None
    """The exchange whose last message `password` is."""
