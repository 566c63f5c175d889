"""Replies that wait for the disk. The module text is in _replies.pyx."""

from collections.abc import Callable

from penstock.log_core.log import Log
from penstock.protocols.mqtt.session.host import Host

class Replies:
    """The replies of one connection that are no acknowledgements of messages."""

    sent: int
    """Replies that left or wait."""

    def __init__(self, host: Host, log: Log) -> None: ...
    def send(self, data: bytes, lsn: int = 0, then: Callable[[], None] | None = None) -> None:
        """Send `data` when `lsn` is durable and every reply before it has left; after it do `then`."""

    def release(self) -> None:
        """Send those whose turn has come. Call it when the log has synced."""

    def clear(self) -> None:
        """The connection is over: nothing more is sent."""
