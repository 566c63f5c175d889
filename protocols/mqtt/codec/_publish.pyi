"""The face of the kernel `_publish`; how it works stands in _publish.pyx."""

from __future__ import annotations

from collections.abc import Callable

from penstock.protocols.net.outbuffer import OutBuffer

class PublishEncoder:
    """The encoder of PUBLISH packets for one client; `_deliver.Deliverer` knows what to send it."""

    version: int
    max_packet: int
    """The client's maximum packet size (mqtt5:3.1.2-25)."""
    alias_maximum: int
    """Topic aliases the client takes; 0 = none."""
    out: OutBuffer
    delivered_bytes: int
    """Payload of what was encoded."""

    def __init__(
        self, out: OutBuffer, version: int, translate: Callable[[bytes, bytes], tuple[bytes | None, bytes]]
    ) -> None:
        """`translate` is `translate.mqtt5_from_amqp091`."""
