"""The sections `http`, `management` and `metrics`, which one front end serves."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import GIB, MIB, Bytes, Listen, Text, option
from penstock.config.sections.listener import Listener, TlsListener
from penstock.lazy_dataclass import dataclass

__all__ = ["Http", "Management", "Metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Http(TlsListener):
    """The HTTP API for messages; see docs/reference/http.md."""

    listen: str = field(
        default="127.0.0.1:15680",
        metadata=option(
            Listen(),
            "Address for HTTP clients. Everybody logs in, except for health pages.",
            when='clients run on other machines ("0.0.0.0:15680")',
        ),
    )
    tls_listen: str = field(
        default="",
        metadata=option(
            Listen(), "Address for HTTP clients with TLS; needs tls.cert_file.", when="clients use https"
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Management(TlsListener):
    """RabbitMQ's management API; see docs/reference/management.md."""

    listen: str = field(
        default="127.0.0.1:15672",
        metadata=option(
            Listen(),
            "Address of the management API, which `penstock` and `rabbitmqctl` commands use.",
            when="administrators work from other machines",
        ),
    )
    tls_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address of the management API with TLS, usually port 15671; needs tls.cert_file.",
            when='administrators work from other machines ("0.0.0.0:15671")',
        ),
    )
    load_definitions: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "A definitions.json, RabbitMQ's or our own, that is imported at each start, before clients can "
            "connect. New data then gets no default user if it brings users of its own.",
            when="users, queues and policies are kept in a file of yours",
        ),
    )
    history_bytes: int = field(
        default=64 * MIB,
        metadata=option(
            Bytes(0, 16 * GIB),
            "The most memory for the history of counters, from which pages draw plots. Above it the history "
            "of single queues and connections is cut first. 0 = no history.",
            when="plots of thousands of busy queues have gaps (raise), or nobody looks at plots (0)",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Listener):
    """Metrics for Prometheus; see docs/reference/metrics.md."""

    listen: str = field(
        default="127.0.0.1:15692",
        metadata=option(
            Listen(),
            "Address of the metrics pages. Clients on this machine need no login.",
            when='Prometheus runs on another machine ("0.0.0.0:15692")',
        ),
    )
