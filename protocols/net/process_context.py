"""Objects that all listeners of the process share."""

from __future__ import annotations

from dataclasses import field

from penstock.lazy_dataclass import dataclass
from penstock.protocols.net.admitting.admission import Admission
from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.open_socket import OpenSocket
from penstock.protocols.tls.contexts import Tls
from penstock.protocols.workers.handover import HandoverSockets

__all__ = ["ProcessContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """One per process; a front end hands it on to its listeners and connections."""

    tls: Tls | None = None
    """None = no certificate is configured, so no listener has TLS."""
    admission: Admission = field(default_factory=Admission)
    buffers: Buffers = field(default_factory=Buffers)
    host_names: frozenset[str] = frozenset()
    """Names of this gateway in URLs, in lower case; see `browser.own_host`."""
    handover: HandoverSockets | None = None
    """The ways to the other workers of the gateway; None: there are none."""
    open_sockets: dict[str, OpenSocket] = field(default_factory=dict)
    """By `section.option`; a listener takes its own out."""
    name: str = "penstock"
    """Of the gateway, for its peers."""
