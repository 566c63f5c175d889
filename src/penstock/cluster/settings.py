"""The settings of a node, from the sections `cluster` and `kafka` of the configuration."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.config import Address, Config
from penstock.errors import ConfigError
from penstock.log_core.replication.journal_options import KafkaOptions

__all__ = ["journal_options", "listeners", "node_name", "suspect_least_s"]

_FENCE: Final = frozenset(
    {
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "transactional.id",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "auto.offset.reset",
        "group.id",
        "isolation.level",
    }
)
"""Settings of librdkafka by which the promises hold."""


def suspect_least_s(lease_s: float) -> float:
    """The shortest suspicion: clocks differ a little, and the end of a lease is noticed a little late."""
    return lease_s * 1.05 + 0.5


def node_name(config: Config) -> str:
    """The name of this node."""
    return config.cluster.node or socket.gethostname()


def listeners(config: Config) -> Iterator[tuple[str, Address]]:
    """The TCP listeners of the owner that are on, as `section.option` and address."""
    for section in dataclasses.fields(config):
        if section.name == "cluster":
            continue
        options = getattr(config, section.name)
        for option in dataclasses.fields(options):
            value = getattr(options, option.name)
            if option.name.endswith("listen") and option.name != "unix_listen" and value:
                yield f"{section.name}.{option.name}", Address.parse(value)


def journal_options(config: Config) -> KafkaOptions:
    """How this node reaches Kafka. Raises ConfigError: settings exclude each other, a file is missing."""
    kafka = config.kafka
    if not kafka.bootstrap_servers:
        raise ConfigError(
            'log.engine = "kafka" needs the addresses of brokers',
            key="kafka.bootstrap_servers",
            remedy='set it to ["HOST:9092", ...]',
        )
    if config.server.workers > 1:
        raise ConfigError(
            "a replicated log is served by one process", key="server.workers", remedy="set it to 1"
        )
    if config.log.folders:
        raise ConfigError("a replicated log lies in one folder", key="log.folders", remedy="leave it empty")
    cluster = config.cluster
    if cluster.suspect_s < suspect_least_s(cluster.lease_s):
        raise ConfigError(
            "another node would serve before this one stops",
            key="cluster.suspect_s",
            remedy=f"set it to {suspect_least_s(cluster.lease_s):g} or more, or lower cluster.lease_s",
        )
    for name, address in listeners(config):
        if address.port == 0:
            raise ConfigError(
                "the nodes of a cluster need a port that stays", key=name, remedy="give it a number"
            )
    further = {}
    for pair in kafka.options:
        name, equals, value = pair.partition("=")
        if not equals or name in _FENCE:
            why = "the promises of the log depend on it" if equals else "it is not NAME=VALUE"
            raise ConfigError(f"{pair!r} cannot be set: {why}", key="kafka.options", remedy="leave it out")
        further[name] = value
    return KafkaOptions(
        bootstrap_servers=kafka.bootstrap_servers,
        topic=kafka.topic or f"penstock.{config.cluster.name}.log",
        security_protocol=kafka.security_protocol,
        sasl_mechanism=kafka.sasl_mechanism,
        username=kafka.username,
        password=_password(kafka.password_file),
        ca_file=kafka.ca_file,
        cert_file=kafka.cert_file,
        key_file=kafka.key_file,
        compression=kafka.compression,
        answer_timeout_s=kafka.answer_timeout_s,
        allow_weak=kafka.allow_weak,
        options=further,
    )


def _password(file: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}", key="kafka.password_file", remedy="correct the path"
        ) from error
