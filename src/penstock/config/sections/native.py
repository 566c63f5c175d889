"""The section `native`: the protocol of the SDK."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import GIB, KIB, MIB, Bytes, Count, Listen, Seconds, option
from penstock.config.sections.listener import TlsListener
from penstock.lazy_dataclass import dataclass

__all__ = ["Native"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Native(TlsListener):
    """The native protocol of the Python SDK; see docs/reference/native.md."""

    listen: str = field(
        default="127.0.0.1:15690",
        metadata=option(
            Listen(),
            "Address for native clients, such as the Python SDK.",
            when='clients run on other machines ("0.0.0.0:15690")',
        ),
    )
    tls_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for native clients with TLS, by default port 15691; needs tls.cert_file.",
            when='clients use TLS ("0.0.0.0:15691")',
        ),
    )
    max_frame_bytes: int = field(
        default=16 * MIB,
        metadata=option(
            Bytes(64 * KIB, GIB),
            "The largest frame taken from a client that is logged in; a batch of messages is one frame.",
            when="one message or batch is larger",
        ),
    )
    max_unacked: int = field(
        default=50_000,
        metadata=option(
            Count(1, 10_000_000),
            "Messages that one consumer may hold without acknowledging them, whatever credit it grants.",
            when="consumers hold more messages while they work",
        ),
    )
    heartbeat_s: float = field(
        default=30.0,
        metadata=option(
            Seconds(0.1, 3600),
            "A client that was silent for so long is asked whether it is there; one that does not answer for "
            "as long again is cut off.",
            when="dead peers must be noticed sooner",
        ),
    )
