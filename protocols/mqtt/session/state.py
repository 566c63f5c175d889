"""The states of an MQTT connection.

NEW --CONNECT--> LOGIN --accepted--> OPENING --CONNACK has left--> OPEN
 |                 |  <--AUTH--> AUTH
 +-- anything else, refusal ------> CLOSED
"""

from __future__ import annotations

from enum import Enum

__all__ = ["State"]


class State(Enum):
    """Where a connection is; see the module's text."""

    NEW = "waiting for CONNECT"
    LOGIN = "verifying the login"
    AUTH = "waiting for the next AUTH"
    OPENING = "waiting for the session's row to be durable"
    OPEN = "open"
    CLOSED = "closed"
