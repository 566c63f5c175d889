"""Whom a listener for WebSockets lets in. The layer is `websocket`, which the first connection loads."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lazy_dataclass import dataclass

__all__ = ["WebSocketRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketRules:
    """Whom a listener lets in."""

    paths: Sequence[str]
    """Accepted, without query; "*" = all."""
    subprotocols: Sequence[str]
    """The client must offer one of them; the first one here is chosen."""
    origins: Sequence[str] = ()
    """Pages that may connect, such as "https://example.org"; () = all. Without an Origin: always."""
    mqtt_packets: bool = False
    """The output is MQTT: each packet has a frame of its own. Else a frame has what one flush sends."""
