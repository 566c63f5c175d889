"""The sections `cluster` and `kafka`: several nodes over one log that Kafka keeps."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from penstock.config.kinds import GIB, MIB, Bytes, Choice, Listen, Names, Seconds, Switch, Text, option
from penstock.lazy_dataclass import dataclass

__all__ = ["Cluster", "Kafka"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes of one log; used when log.engine is "kafka"."""

    name: str = field(
        default="penstock",
        metadata=option(
            Text(),
            "Name of the cluster: the same on all its nodes.",
            when="several clusters share one Kafka, or pages shall show a name of yours",
        ),
    )
    node: str = field(
        default="",
        metadata=option(
            Text(),
            "Name of this node, unique in the cluster. Empty: the name of the host.",
            when="two nodes run on one host",
        ),
    )
    advertise: str = field(
        default="",
        metadata=option(
            Text(),
            "Host name or address where the other nodes reach the listeners of this one. Empty: the host "
            "of each listener.",
            when="a node listens on 0.0.0.0, or others reach it by another address",
        ),
    )
    health_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address of pages for load balancers: /healthz, /readyz and /owner of this node itself. Other "
            "listeners of a standby answer as the owner does. Empty: none.",
            when="a load balancer stands before the nodes",
        ),
    )
    watch_listen: str = field(
        default="",
        metadata=option(
            Listen(empty="any free port"),
            "Address at which standbys watch the owner: they keep a connection, whose end tells them that "
            "its process ended. Empty: any free port of the host where other nodes reach this one.",
            when="a firewall between the nodes lets only known ports pass",
        ),
    )
    lease_s: float = field(
        default=2.0,
        metadata=option(
            Seconds(0.5, 3600),
            "The owner hands out no messages once Kafka has not answered for so long. Publishers wait from "
            "half of that time on. It goes on with the next answer. cluster.suspect_s must be 1.05 times "
            "that plus 0.5 s or more.",
            when="Kafka's answers take longer than this without a fault",
        ),
    )
    suspect_s: float = field(
        default=3.0,
        metadata=option(
            Seconds(1, 3600),
            "A standby takes over after so long without a sign of the owner while Kafka answers.",
            when="take-overs come too late (lower), or without a cause (raise)",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """The Kafka cluster that keeps the log; used when log.engine is "kafka"."""

    bootstrap_servers: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Names(), "Brokers to begin with; the others are found by them.", when='log.engine is "kafka"'
        ),
    )
    topic: str = field(
        default="",
        metadata=option(
            Text(),
            "The topic of the log. Empty: penstock.<cluster.name>.log. It is made when it is missing.",
            when="your Kafka has rules for names",
        ),
    )
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = field(
        default="plaintext",
        metadata=option(
            Choice(("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
            "How brokers are talked to.",
            when="the brokers want TLS or a login",
        ),
    )
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = field(
        default="",
        metadata=option(
            Choice(("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
            "How this node logs in to Kafka.",
            when="the brokers want a login",
        ),
    )
    username: str = field(
        default="", metadata=option(Text(), "Kafka's name for the nodes.", when="the brokers want a login")
    )
    password_file: str = field(
        default="",
        metadata=option(
            Text(),
            "File with the password; a line feed at its end is ignored.",
            when="the brokers want a login",
        ),
    )
    ca_file: str = field(
        default="",
        metadata=option(
            Text(),
            "Certificates of authorities for the brokers, PEM.",
            when="the brokers' certificates are from an authority of your own",
        ),
    )
    cert_file: str = field(
        default="",
        metadata=option(
            Text(), "Certificate of the nodes, PEM.", when="the brokers want client certificates"
        ),
    )
    key_file: str = field(
        default="",
        metadata=option(Text(), "Its private key, PEM.", when="the brokers want client certificates"),
    )
    compression: Literal["none", "lz4", "zstd"] = field(
        default="none",
        metadata=option(
            Choice(("none", "lz4", "zstd")),
            "Compression of entries on their way and in Kafka.",
            when="the network between nodes and brokers is the limit",
        ),
    )
    spare_bytes: int = field(
        default=GIB,
        metadata=option(
            Bytes(MIB, 1024 * 1024 * GIB),
            "The topic may hold twice the folder and so many bytes more. Above that the owner sends old "
            "files again, so that Kafka can delete what is older.",
            when="the brokers' disks are small (lower), or queues keep old messages and that "
            "traffic is too much (raise)",
        ),
    )
    answer_timeout_s: float = field(
        default=10.0,
        metadata=option(
            Seconds(1, 3600),
            "How long a start waits for an answer of the brokers.",
            when="brokers and nodes start at the same time",
        ),
    )
    options: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Names(),
            "Further settings of librdkafka as NAME=VALUE. Those that the promises of the log depend on "
            "are refused.",
            when="your brokers need a setting that has no option here",
        ),
    )
    allow_weak: bool = field(
        default=False,
        metadata=option(
            Switch(),
            "Accept a topic that may lose confirmed messages: fewer than 3 copies, min.insync.replicas "
            "below 2.",
            when="never for real data",
        ),
    )
