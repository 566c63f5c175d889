"""The configuration: declared once (`options`), read from its sources (`sources`), shown (`render`).

Imports only the standard library, so that any part may import its section's type from here.
"""

from __future__ import annotations

from penstock.config.kinds import Address
from penstock.config.options import (
    Amqp,
    Auth,
    Config,
    Http,
    Log,
    Management,
    Metrics,
    Mqtt,
    Native,
    Server,
    Tls,
)
from penstock.config.sources import Loaded, load
from penstock.config.users import User

__all__ = [
    "Address",
    "Amqp",
    "Auth",
    "Config",
    "Http",
    "Loaded",
    "Log",
    "Management",
    "Metrics",
    "Mqtt",
    "Native",
    "Server",
    "Tls",
    "User",
    "load",
]
