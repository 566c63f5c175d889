"""Messages, clients and queues of the gateway as a whole, in RabbitMQ's words. Nothing in here is per queue.

Label sets are there from the start with 0, so that a rate over them begins at once. Counters never fall: what
connections and queues counted that are gone is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.logins import PROTOCOLS
from penstock.protocols.http.management.queue_totals import QueueSums
from penstock.protocols.http.metrics.exposition import Histogram, Kind, Metric, of_one
from penstock.protocols.net.connection_info import SIZES, Totals

if TYPE_CHECKING:
    from penstock.protocols.listening.registry import Live

__all__ = [
    "ByProtocol",
    "channels",
    "churn",
    "clients",
    "connections",
    "dead_letters",
    "logins",
    "queues",
    "sizes",
    "totals",
]

_TYPES: Final = ("classic", "quorum", "stream")
_MQTT: Final = ("mqtt310", "mqtt311", "mqtt50")
_REASONS: Final = ("expired", "rejected", "maxlen", "delivery_limit")
_SIZE_LABELS: Final = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08")
_CLIENTS: Final = ("amqp", "mqtt", "native")

ByProtocol = Mapping[str, Totals]


def totals(api: Management) -> ByProtocol:
    """Messages that clients moved, by protocol and version. It asks every connection: once for a page."""
    found = {name: Totals() for name in ("amqp091", "amqp10", *_MQTT, "native")}
    for front_end in _CLIENTS:
        for spoken, moved in api.registry.totals_by_version(front_end).items():
            if spoken:
                found[spoken].add(moved)
    found["http"] = Totals(published=api.messages.published, delivered=api.messages.delivered)
    return found


def churn(api: Management) -> Iterator[Metric]:
    """Connections and channels that began and ended: RabbitMQ's family connection_churn_metrics."""
    opened = closed = 0
    for protocol in _CLIENTS:
        for listener in api.registry.of(protocol):
            opened += listener.opened
            closed += listener.closed
    channels_opened, channels_closed = api.registry.channels()
    made = api.broker.queues
    for name, text, value in (
        ("connections_opened", "connections opened", opened),
        ("connections_closed", "connections closed", closed),
        ("channels_opened", "channels opened", channels_opened),
        ("channels_closed", "channels closed", channels_closed),
        ("queues_declared", "queues declared", made.declared),
        ("queues_created", "queues created", made.created),
        ("queues_deleted", "queues deleted", made.deleted),
    ):
        yield of_one(f"{name}_total", "counter", f"Total number of {text}", value)


def connections(api: Management, lives: list[Live]) -> Iterator[Metric]:
    """All connections of clients."""
    yield of_one("connections", "gauge", "Connections currently open", len(lives))
    sums = [api.registry.bytes(protocol) for protocol in _CLIENTS]
    told = "Total number of bytes {} on connections"
    received, sent = (sum(pair[way] for pair in sums) for way in (0, 1))
    yield of_one("connection_incoming_bytes_total", "counter", told.format("received"), received)
    yield of_one("connection_outgoing_bytes_total", "counter", told.format("sent"), sent)
    waiting = sum(live.connection.out.size for live in lives)
    yield of_one("connection_pending_packets", "gauge", "Bytes waiting to be sent on connections", waiting)


def channels(lives: list[Live], of: ByProtocol) -> Iterator[Metric]:
    """All channels of AMQP: gauges of those that are open, and what all of them moved."""
    found = [channel for live in lives for channel in live.info.channels]
    consumers = sum(len(channel.consumers) for channel in found)
    everywhere = consumers + sum(len(live.info.consumers) for live in lives)
    yield of_one("channels", "gauge", "Channels currently open", len(found))
    yield of_one("connection_channels", "gauge", "Channels on connections", len(found))
    yield of_one("consumers", "gauge", "Consumers currently connected", everywhere)
    for name, text, value in (
        ("channel_consumers", "Consumers on channels", consumers),
        (
            "channel_messages_unacked",
            "Delivered but not yet acknowledged messages",
            sum(one.unacknowledged for one in found),
        ),
        (
            "channel_messages_unconfirmed",
            "Published but not yet confirmed messages",
            sum(one.unconfirmed for one in found),
        ),
        (
            "channel_messages_uncommitted",
            "Messages received in a transaction but not yet committed",
            sum(one.uncommitted for one in found),
        ),
        ("channel_prefetch", "Shared prefetch limits of channels", sum(one.global_prefetch for one in found)),
        ("consumer_prefetch", "Prefetch limits of new consumers", sum(one.prefetch for one in found)),
    ):
        yield of_one(name, "gauge", text, value)
    moved = of["amqp091"]
    for name, text, value in (
        ("messages_published", "published on channels", moved.published),
        ("messages_confirmed", "confirmed on channels", moved.confirmed),
        ("messages_unroutable_returned", "returned as unroutable", moved.returned),
        ("messages_unroutable_dropped", "dropped as unroutable", moved.dropped),
        (
            "messages_delivered_ack",
            "delivered with acknowledgement",
            moved.consumed - moved.delivered_auto,
        ),
        ("messages_delivered", "delivered without acknowledgement", moved.delivered_auto),
        ("messages_redelivered", "redelivered to consumers", moved.redelivered),
        ("messages_acked", "acknowledged by consumers", moved.acknowledged),
        ("get_ack", "fetched with basic.get and acknowledged by hand", moved.got - moved.got_auto),
        ("get", "fetched with basic.get without acknowledgement", moved.got_auto),
    ):
        yield of_one(f"channel_{name}_total", "counter", f"Total number of messages {text}", value)
    told = "Total number of times basic.get fetched no message"
    yield of_one("channel_get_empty_total", "counter", told, moved.get_empty)


def queues(api: Management, moved: ByProtocol) -> Iterator[Metric]:
    """All queues; those of MQTT clients are classic queues of their protocol."""
    sums = {("amqp091", kind): QueueSums() for kind in _TYPES}
    sums.update(api.sampler.queues.by_type())
    ready = sum(of.ready for of in sums.values())
    unacked = sum(of.unacked for of in sums.values())
    consumers = sum(of.consumers for of in sums.values())
    yield of_one("queues", "gauge", "Queues available", sum(of.queues for of in sums.values()))
    yield of_one("queue_messages_ready", "gauge", "Messages ready to be delivered to consumers", ready)
    told = "Messages delivered but not yet acknowledged"
    yield of_one("queue_messages_unacked", "gauge", told, unacked)
    yield of_one("queue_messages", "gauge", "Sum of ready and unacknowledged messages", ready + unacked)
    yield of_one("queue_consumers", "gauge", "Consumers on queues", consumers)
    told = "Total number of messages published to queues"
    published = sum(of.counter("publish") for of in sums.values())
    yield of_one("queue_messages_published_total", "counter", told, published)
    for name, text, field, of_mqtt in (
        ("delivered", "delivered to consumers", "deliver_get", "delivered"),
        ("acknowledged", "acknowledged or rejected for good", "ack", "acknowledged"),
        ("redelivered", "given back to be delivered again", "redeliver", ""),
    ):
        values = [
            ({"protocol": protocol, "queue_type": f"rabbit_{kind}_queue"}, of.counter(field))
            for (protocol, kind), of in sums.items()
            if protocol != "mqtt"
        ]
        if of_mqtt:
            values += [
                ({"protocol": spoken, "queue_type": "rabbit_classic_queue"}, getattr(moved[spoken], of_mqtt))
                for spoken in _MQTT
            ]
        told = f"Total number of messages {text}"
        yield Metric(f"global_messages_{name}_total", "counter", told, values)


def clients(lives: list[Live], moved: ByProtocol) -> Iterator[Metric]:
    """The messages that each protocol moved."""
    publishers = dict.fromkeys(moved, 0)
    consumers = dict.fromkeys(moved, 0)
    for live in lives:
        name = live.connection.spoken
        publishers[name] += live.info.totals.published > 0
        consumers[name] += len(live.info.consumers)
        consumers[name] += sum(len(channel.consumers) for channel in live.info.channels)

    def by_protocol(name: str, text: str, values: Mapping[str, int], kind: Kind = "counter") -> Metric:
        labelled = [({"protocol": protocol}, value) for protocol, value in values.items()]
        return Metric(f"global_{name}", kind, text, labelled)

    yield by_protocol("publishers", "Current number of publishers", publishers, "gauge")
    yield by_protocol("consumers", "Current number of consumers", consumers, "gauge")
    for name, text, field in (
        ("received", "received from publishers", "published"),
        ("received_confirm", "received from publishers expecting confirmations", "awaiting_confirm"),
        ("confirmed", "confirmed to publishers", "confirmed"),
        ("unroutable_dropped", "published as non-mandatory and dropped as unroutable", "dropped"),
        ("unroutable_returned", "published as mandatory and returned as unroutable", "returned"),
    ):
        values = {protocol: getattr(of, field) for protocol, of in moved.items()}
        yield by_protocol(f"messages_{name}_total", f"Total number of messages {text}", values)
    routed = {name: of.published - of.dropped - of.returned for name, of in moved.items()}
    yield by_protocol("messages_routed_total", "Total number of messages routed to queues", routed)
    amqp = moved["amqp091"]
    for name, text, value in (
        ("delivered_consume_auto_ack", "to consumers without acknowledgement", amqp.delivered_auto),
        (
            "delivered_consume_manual_ack",
            "to consumers with acknowledgement",
            amqp.consumed - amqp.delivered_auto,
        ),
        ("delivered_get_auto_ack", "by basic.get without acknowledgement", amqp.got_auto),
        ("delivered_get_manual_ack", "by basic.get with acknowledgement", amqp.got - amqp.got_auto),
    ):
        told = f"Total number of messages delivered {text}"
        yield by_protocol(f"messages_{name}_total", told, {"amqp091": value})
    told = "Total number of times basic.get fetched no message"
    yield by_protocol("messages_get_empty_total", told, {"amqp091": amqp.get_empty})


def logins(api: Management) -> Iterator[Metric]:
    """RabbitMQ's family auth_attempt_metrics."""
    attempts = api.broker.users.attempts
    for name, text, outcomes in (
        ("attempts", "authentication attempts", (True, False)),
        ("attempts_succeeded", "successful authentication attempts", (True,)),
        ("attempts_failed", "failed authentication attempts", (False,)),
    ):
        values = [
            ({"protocol": told}, sum(attempts[protocol, right] for right in outcomes))
            for protocol, told in PROTOCOLS.items()
        ]
        yield Metric(f"auth_{name}_total", "counter", f"Total number of {text}", values)


def dead_letters(api: Management) -> Iterator[Metric]:
    """By reason; those that had to be kept (at least once), when they are in their new queue."""
    counts = api.broker.dead_letters
    for reason in _REASONS:
        values = [
            (
                {
                    "queue_type": f"rabbit_{kind}_queue",
                    "dead_letter_strategy": "at_least_once" if insists else "at_most_once",
                },
                counts[kind, reason, insists],
            )
            for kind in _TYPES[:2]
            for insists in (False, True)
        ]
        text = f"Total number of messages dead-lettered, reason {reason}"
        yield Metric(f"global_messages_dead_lettered_{reason}_total", "counter", text, values)
    labels = {"queue_type": "rabbit_quorum_queue", "dead_letter_strategy": "at_least_once"}
    text = "Total number of messages dead-lettered and confirmed by their new queues"
    confirmed = sum(counts["quorum", reason, True] for reason in _REASONS)
    yield Metric("global_messages_dead_lettered_confirmed_total", "counter", text, [(labels, confirmed)])


def sizes(amqp: Totals) -> Histogram:
    """The messages that AMQP clients published, by size."""
    assert len(_SIZE_LABELS) == len(SIZES)
    text = "Size of messages received from AMQP publishers"
    labels = {"protocol": "amqp091"}
    return Histogram("message_size_bytes", text, labels, _SIZE_LABELS, amqp.sizes, amqp.size_sum)
