"""The configuration as one frozen, typed value: `Config`, a field per section.

Every option of penstock is declared once, as a field of its section (`sections/`): name, type, default, kind
(range and unit) and what it does. From these declarations come the TOML file, the environment, --set,
`penstock config show|schema` and the page docs/reference/configuration.md.
"""

from __future__ import annotations

from dataclasses import field

from penstock.config.sections.amqp import Amqp
from penstock.config.sections.audit import Audit
from penstock.config.sections.auth import Auth
from penstock.config.sections.cluster import Cluster, Kafka
from penstock.config.sections.events import Events
from penstock.config.sections.http import Http, Management, Metrics
from penstock.config.sections.links import Links
from penstock.config.sections.log import Log
from penstock.config.sections.mqtt import Mqtt
from penstock.config.sections.native import Native
from penstock.config.sections.oauth import OAuth
from penstock.config.sections.server import Server
from penstock.config.sections.telemetry import Telemetry
from penstock.config.sections.tls import Tls
from penstock.config.sections.webhooks import Webhooks
from penstock.lazy_dataclass import dataclass

__all__ = [
    "Amqp",
    "Auth",
    "Cluster",
    "Config",
    "Events",
    "Http",
    "Kafka",
    "Links",
    "Log",
    "Management",
    "Metrics",
    "Mqtt",
    "Native",
    "OAuth",
    "Server",
    "Telemetry",
    "Tls",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration: one field per section, e.g. `config.log.segment_bytes`."""

    server: Server = field(default_factory=Server)
    log: Log = field(default_factory=Log)
    cluster: Cluster = field(default_factory=Cluster)
    kafka: Kafka = field(default_factory=Kafka)
    events: Events = field(default_factory=Events)
    audit: Audit = field(default_factory=Audit)
    tls: Tls = field(default_factory=Tls)
    amqp: Amqp = field(default_factory=Amqp)
    mqtt: Mqtt = field(default_factory=Mqtt)
    http: Http = field(default_factory=Http)
    webhooks: Webhooks = field(default_factory=Webhooks)
    links: Links = field(default_factory=Links)
    management: Management = field(default_factory=Management)
    metrics: Metrics = field(default_factory=Metrics)
    native: Native = field(default_factory=Native)
    auth: Auth = field(default_factory=Auth)
    oauth: OAuth = field(default_factory=OAuth)
    telemetry: Telemetry = field(default_factory=Telemetry)
