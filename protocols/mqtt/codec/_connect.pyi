"""CONNECT of any version; the ordinary one is read without a step in Python."""

from penstock.protocols.mqtt.codec.packets import Will
from penstock.protocols.mqtt.codec.properties import Properties

class Connect:
    """CONNECT of any version; what a version lacks has the value that means the same."""

    version: int
    """The protocol level: 3, 4 or 5."""
    client_id: str
    clean_start: bool
    keep_alive_s: int
    user_name: str | None
    password: bytes | None
    will: Will | None
    properties: Properties
    bridge: bool
    """A broker of Mosquitto's kind connects: what it published does not come back to it, and RETAIN stays."""

    def __init__(
        self,
        version: int,
        client_id: str,
        clean_start: bool,
        keep_alive_s: int,
        user_name: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
        bridge: bool = False,
    ) -> None: ...
