"""Options of the MQTT front end, with the key names of the configuration's section `mqtt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MqttOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions:
    """Limits and defaults of MQTT connections and sessions."""

    listen: str = "127.0.0.1:1883"
    """HOST:PORT; "" = off."""
    allow_anonymous: Literal["loopback"] | bool = "loopback"
    """Who may connect without a user name."""
    max_packet_bytes: int = 1 << 20
    """The largest packet accepted."""
    receive_maximum: int = 1000
    """QoS 1 and 2 messages a 5.0 client may have under way to us."""
    max_inflight: int = 4096
    """QoS 1 and 2 messages under way to a client; a 5.0 client may ask for less."""
    topic_alias_maximum: int = 64
    """Topic aliases a 5.0 client may set."""
    session_expiry_max_s: int = 604800
    """How long a session outlives its connection at most."""
    max_topic_levels: int = 128
    """Levels of a topic or filter."""
    connect_timeout_s: float = 10.0
    """Time to send a complete CONNECT and be logged in."""
    keepalive_max_s: int = 0
    """The longest keep-alive granted to 5.0 clients; 0 = what they ask for."""
