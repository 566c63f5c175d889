"""The named workloads, and what penstock must reach in each."""

from __future__ import annotations

from dataclasses import dataclass

from bench.load import Load


@dataclass(frozen=True, slots=True)
class Workload:
    """A load with a name, and the goal it is held to."""

    name: str
    load: Load
    goal: float | None = None
    """At least this many times the peer's messages per broker-CPU-second.

    None in latency workloads, where p50 and p99 must not be above the peer's.
    """

    @property
    def peer(self) -> str:
        """The broker it is compared with."""
        return "rabbitmq" if self.load.protocol == "amqp" else "mosquitto"


WORKLOADS = (
    Workload("mqtt_qos0_100B_1_to_1", Load("mqtt"), goal=8),
    Workload("mqtt_qos1_100B_1_to_1", Load("mqtt", qos=1), goal=5),
    Workload("mqtt_qos0_100B_1_to_10", Load("mqtt", consumers=10), goal=10),
    Workload("mqtt_qos0_16B_1_to_1", Load("mqtt", size=16), goal=8),
    Workload("mqtt_qos0_latency_1000_per_s", Load("mqtt", rate=1000)),
    Workload("mqtt_qos1_latency_1000_per_s", Load("mqtt", qos=1, rate=1000)),
    Workload("amqp_transient_autoack_100B_1_to_1", Load("amqp"), goal=15),
    Workload(
        "amqp_durable_confirm_ack_100B_1_to_1", Load("amqp", durable=True, confirm=True, ack=True), goal=15
    ),
    Workload("amqp_transient_autoack_100B_1_queue_10_consumers", Load("amqp", consumers=10), goal=15),
    Workload(
        "amqp_durable_confirm_ack_latency_1000_per_s",
        Load("amqp", durable=True, confirm=True, ack=True, rate=1000),
    ),
)
