"""The loads of `python -m bench.connections`: many connections, one small message each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ROWS", "Row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One load. Payloads have `size` bytes."""

    name: str
    protocol: Literal["mqtt", "amqp", "amqp10"] = "mqtt"
    layer: Literal["tcp", "tls", "ws"] = "tcp"
    publishers: int
    consumers: int
    pairs: bool = False
    """Consumer i gets what publisher i sends; else every consumer gets everything (AMQP: through queue 0)."""
    qos: int = 0
    """Of what is published by MQTT."""
    consumer_qos: int = 0
    """Of the subscriptions."""
    durable: bool = False
    """AMQP: durable queues, persistent messages and confirms."""
    acknowledges: bool = False
    """AMQP: consumers acknowledge; else they get everything as acknowledged."""
    rate: float = 0.0
    """Messages per second over all publishers; 0: each keeps one message under way, and sends the next one
    when it is acknowledged."""
    size: int = 100
    flooded: bool = False
    """One more connection publishes as fast as it can, to a topic of its own."""
    bar: float = 1.0
    """CPU per delivered message, at most, as a part of the peer's."""
    p99_bar_ms: float = 0.0
    """The 99th percentile of latencies, at most; then the CPU has no bar. 0: it has none itself."""

    @property
    def closed(self) -> bool:
        """Whether publishers wait for acknowledgements."""
        return not self.rate

    @property
    def settles_at_once(self) -> bool:
        """Whether durable messages are settled as soon as they are delivered."""
        return self.durable and not self.acknowledges

    @property
    def copies(self) -> int:
        """How often a message is delivered."""
        return 1 if self.pairs or self.protocol == "amqp" else self.consumers

    @property
    def connections(self) -> int:
        """Open at once."""
        return self.publishers + self.consumers


ROWS: Final = (
    Row(name="mqtt_1000_to_1_qos0", publishers=1000, consumers=1, rate=20_000, bar=0.6),
    Row(name="mqtt_1000_to_1_qos1_closed", publishers=1000, consumers=1, qos=1, bar=0.65),
    Row(name="mqtt_100_to_1_qos1_closed", publishers=100, consumers=1, qos=1, bar=0.6),
    Row(name="mqtt_1000_pairs_qos0", publishers=1000, consumers=1000, pairs=True, rate=20_000, bar=0.9),
    Row(name="mqtt_1000_pairs_qos1_closed", publishers=1000, consumers=1000, pairs=True, qos=1, bar=0.95),
    Row(name="mqtt_1_to_1_qos1_closed", publishers=1, consumers=1, qos=1, bar=0.9),
    Row(name="mqtt_1_to_1_qos0", publishers=1, consumers=1, rate=1000, bar=0.9),
    Row(name="mqtt_1_to_1000_qos0", publishers=1, consumers=1000, rate=100, bar=0.6),
    Row(
        name="mqtt_100_pairs_qos1_both_closed",
        publishers=100,
        consumers=100,
        pairs=True,
        qos=1,
        consumer_qos=1,
    ),
    Row(name="mqtt_100_pairs_qos1_tls_closed", layer="tls", publishers=100, consumers=100, pairs=True, qos=1),
    Row(name="mqtt_100_pairs_qos1_ws_closed", layer="ws", publishers=100, consumers=100, pairs=True, qos=1),
    Row(
        name="mqtt_1000_pairs_qos0_beside_flood",
        publishers=1000,
        consumers=1000,
        pairs=True,
        rate=1000,
        flooded=True,
        p99_bar_ms=5.0,
    ),
    Row(name="mqtt_5000_pairs_qos0", publishers=5000, consumers=5000, pairs=True, rate=20_000),
    Row(
        name="amqp_1_to_1_durable_closed",
        protocol="amqp",
        publishers=1,
        consumers=1,
        pairs=True,
        durable=True,
        bar=0.4,
    ),
    Row(
        name="amqp_100_pairs_durable_closed",
        protocol="amqp",
        publishers=100,
        consumers=100,
        pairs=True,
        durable=True,
        bar=0.2,
    ),
    Row(
        name="amqp_100_pairs_durable_acknowledged_closed",
        protocol="amqp",
        publishers=100,
        consumers=100,
        pairs=True,
        durable=True,
        acknowledges=True,
        bar=0.4,
    ),
)
