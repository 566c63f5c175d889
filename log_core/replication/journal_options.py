"""The settings by which a node reaches the journal in Kafka."""

from __future__ import annotations

from dataclasses import field

from penstock.lazy_dataclass import dataclass

__all__ = ["KafkaOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """See the sections `kafka` and `cluster` of the configuration."""

    bootstrap_servers: tuple[str, ...]
    topic: str
    security_protocol: str = "plaintext"
    sasl_mechanism: str = ""
    username: str = ""
    password: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    compression: str = "none"
    answer_timeout_s: float = 10.0
    """Seconds after which a request counts as not answered."""
    allow_weak: bool = False
    options: dict[str, str] = field(default_factory=dict)
    """Further settings of librdkafka."""

    def client(self) -> dict[str, str | int | bool]:
        """The settings that all clients share, in librdkafka's names."""
        found: dict[str, str | int | bool] = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol,
            # A broker that is frozen keeps its connections open: its successor is found after this time.
            "socket.timeout.ms": 6000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "log_level": 2,  # each failed attempt to connect is level 3: `KafkaJournal` tells it once
        }
        words = {
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.cert_file,
            "ssl.key.location": self.key_file,
        }
        return found | {name: word for name, word in words.items() if word} | self.options
