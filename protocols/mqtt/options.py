"""Options of the MQTT front end, with the key names of the configuration's section `mqtt`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from penstock.lazy_dataclass import dataclass

__all__ = ["TOPIC_LEVELS_MAX", "MqttOptions"]

TOPIC_LEVELS_MAX: Final = 128
"""Levels of a topic or filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions:
    """Limits and defaults of MQTT connections and sessions."""

    listen: str = "127.0.0.1:1883"
    """HOST:PORT; "" = off."""
    unix_listen: str = ""
    """Path of a socket in the file system; "" = off."""
    tls_listen: str = ""
    """HOST:PORT for TLS; "" = off."""
    ws_listen: str = ""
    """HOST:PORT for WebSocket; "" = off."""
    wss_listen: str = ""
    """HOST:PORT for WebSocket over TLS; "" = off."""
    ws_paths: Sequence[str] = ("/mqtt", "/ws")
    """Where WebSocket clients connect; "*" = anywhere."""
    ws_origins: Sequence[str] = ()
    """Pages whose scripts may connect; () = all."""
    cert_login: bool = False
    """A client without a user name is whom its certificate names."""
    allow_anonymous: Literal["loopback"] | bool = "loopback"
    """The peers that may connect without a user name."""
    allow_any_login: Literal["loopback"] | bool = False
    """The peers that may connect with a user name that nobody has, and any password."""
    max_packet_bytes: int = 1 << 20
    """The largest packet accepted."""
    receive_maximum: int = 32_768
    """QoS 1 and 2 messages a 5.0 client may have under way to us."""
    max_inflight: int = 4096
    """QoS 1 and 2 messages under way to a client; a 5.0 client may ask for less."""
    topic_alias_maximum: int = 64
    """Topic aliases a 5.0 client may set."""
    sessions_by: Literal["user", "client"] = "user"
    """Whose a session is: its user's alone, or everybody's who comes with its client id."""
    session_expiry_max_s: int = 604800
    """How long a session outlives its connection at most."""
    max_queued_messages: int = 0
    """Messages that wait for one session at most; 0 = any number."""
    max_lag_bytes: int = 128 << 20
    max_queued_bytes: int = 0
    """Bytes of their payloads; 0 = any number."""
    queue_full: Literal["drop-oldest", "drop-newest", "disconnect"] = "drop-oldest"
    """The fate of messages for a session with more."""
    queue_qos0_messages: bool = False
    """Messages of QoS 0 wait for sessions that are away, too."""
    shared_strategy: Literal["round-robin", "random", "sticky", "hash-topic", "hash-clientid"] = "round-robin"
    """Which member of a shared subscription gets the next message."""
    shared_strategy_of: Sequence[str] = ()
    """GROUP=STRATEGY, for groups that have another one."""
    dead_letter_topic: str = ""
    """Where dropped messages are published; "" = nowhere."""
    max_connect_rate: int = 0
    """CONNECTs per second of all clients; 0 = any number."""
    max_message_rate: int = 0
    """Messages per second that one client may publish; 0 = any number."""
    max_byte_rate: int = 0
    """Bytes per second that one client may send; 0 = any number."""
    response_information: str = ""
    """Told to 5.0 clients that ask for it, with {client_id} replaced; "" = nothing is told."""
    server_reference: str = ""
    """Where 5.0 clients are sent when the gateway stops; "" = nowhere."""
    sys_interval_s: float = 10.0
    """How often `$SYS` is published; 0 = never."""
    acl_file: str = ""
    """Access rights per topic, in Mosquitto's syntax; "" = none besides the users' permissions."""
    amqtt_config: str = ""
    """Configuration file of amqtt whose plugins authorize clients; "" = none."""
    amqtt_user: str = ""
    """The user whose rights those have that such plugins let in; "" = the default user."""
    keepalive_max_s: int = 0
    """The longest keep-alive granted to 5.0 clients; 0 = what they ask for."""
