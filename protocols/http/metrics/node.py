"""Metrics of the gateway as a whole: RabbitMQ's names, and penstock's own. Nothing in here is per queue.

Label sets are there from the start with 0, so that a rate over them begins at once. What is not counted has
no metric: see docs/management.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.protocols.facts import SIZES, Totals
from penstock.protocols.http.management import host
from penstock.protocols.http.management.context import PRODUCT, RABBITMQ_VERSION, Management
from penstock.protocols.http.management.rates import QueueSums
from penstock.protocols.http.metrics.exposition import Kind, head, labels_of, metric, sample
from penstock.protocols.http.webhooks.endpoint import Outcome
from penstock.protocols.http.webhooks.worker import STATES

if TYPE_CHECKING:
    from penstock.protocols.registry import Live

__all__ = ["about", "aggregated", "queue_sums"]

_TYPES: Final = ("classic", "quorum", "stream")
_PROTOCOLS: Final = {"AMQP": "amqp091", "MQTT": "mqtt", "Penstock": "native"}
"""By how the protocols of connections begin."""
_LOGINS: Final = {"amqp": "amqp091", "mqtt": "mqtt", "native": "native", "http": "http"}
_REASONS: Final = ("expired", "rejected", "maxlen", "delivery_limit")
_SIZE_LABELS: Final = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08")


def about(api: Management, endpoint: str) -> Iterator[str]:
    """Who this is; every expression of RabbitMQ's dashboards joins on it."""
    build = {
        "rabbitmq_version": RABBITMQ_VERSION,
        "prometheus_plugin_version": RABBITMQ_VERSION,
        "prometheus_client_version": api.version,
        "erlang_version": "0.0",
        "product_name": PRODUCT,
        "product_version": api.version,
    }
    yield metric("rabbitmq_build_info", "untyped", "Versions of the gateway", [(build, 1)])
    identity = {
        "rabbitmq_node": api.node,
        "rabbitmq_cluster": api.cluster,
        "rabbitmq_cluster_permanent_id": f"penstock-cluster-id-{api.cluster}",
        "rabbitmq_endpoint": endpoint,
    }
    yield metric("rabbitmq_identity_info", "untyped", "Node and cluster identity", [(identity, 1)])


def one(name: str, kind: Kind, text: str, value: float) -> str:
    """A metric with one value and no labels."""
    return head(name, kind, text) + sample(name, value)


def aggregated(api: Management) -> Iterator[str]:
    """Everything that is one number for the gateway, or one per protocol and queue type."""
    lives = api.registry.connections()
    yield from about(api, "aggregated")
    yield from _process(api)
    yield from _churn(api, lives)
    yield from _queues(api)
    yield from _global(api, lives)
    yield from _logins(api)
    yield from _dead_letters(api)
    yield from _own(api)


def _process(api: Management) -> Iterator[str]:
    figures = host.read(api.data_dir)
    logged = api.broker.log.statistics()
    alarms = api.broker.log.alarms
    for name, kind, text, value in (
        ("process_open_fds", "gauge", "Open file descriptors", figures.fd_used),
        ("process_max_fds", "gauge", "Open file descriptors limit", figures.fd_total),
        ("process_open_tcp_sockets", "gauge", "Open TCP sockets", _sockets(api)),
        ("process_resident_memory_bytes", "gauge", "Memory used in bytes", figures.rss),
        ("resident_memory_limit_bytes", "gauge", "Memory above which publishers wait", api.memory_limit),
        ("disk_space_available_bytes", "gauge", "Disk space available in bytes", figures.disk_free),
        (
            "disk_space_available_limit_bytes",
            "gauge",
            "Free disk space below which publishers wait, in bytes",
            api.disk_free_limit,
        ),
        ("erlang_uptime_seconds", "gauge", "Seconds since the start", api.uptime_ms / 1000),
        (
            "alarms_free_disk_space_watermark",
            "gauge",
            "1 while the disk is nearly full",
            int("disk" in alarms),
        ),
        ("alarms_memory_used_watermark", "gauge", "1 while memory is short", int("memory" in alarms)),
        ("alarms_file_descriptor_limit", "gauge", "1 when no file can be opened", int(_full(figures))),
        ("io_read_ops_total", "counter", "Total number of I/O read operations", figures.io_reads),
        ("io_read_bytes_total", "counter", "Total number of I/O bytes read", figures.io_read_bytes),
        ("io_write_ops_total", "counter", "Total number of I/O write operations", figures.io_writes),
        ("io_write_bytes_total", "counter", "Total number of I/O bytes written", figures.io_write_bytes),
        ("io_sync_ops_total", "counter", "Total number of I/O sync operations", logged["syncs"]),
    ):
        yield one(f"rabbitmq_{name}", kind, text, value)  # type: ignore[arg-type]


def _full(figures: host.HostFigures) -> bool:
    return figures.fd_used >= figures.fd_total


def _sockets(api: Management) -> int:
    return sum(len(listener.connections) for _, listener in api.registry.listeners())


def _churn(api: Management, lives: list[Live]) -> Iterator[str]:
    opened = closed = 0
    for protocol in ("amqp", "mqtt", "native"):
        for listener in api.registry.of(protocol):
            opened += listener.opened
            closed += listener.closed
    channels_opened, channels_closed = api.registry.channels()
    queues = api.broker.queues
    channels = [channel for live in lives for channel in live.facts.channels]
    consumers = sum(len(channel.consumers) for channel in channels)
    consumers += sum(len(live.facts.consumers) for live in lives)
    for name, kind, text, value in (
        ("connections", "gauge", "Connections currently open", len(lives)),
        ("channels", "gauge", "Channels currently open", len(channels)),
        ("consumers", "gauge", "Consumers currently connected", consumers),
        ("queues", "gauge", "Queues available", len(queues)),
        ("connections_opened_total", "counter", "Total number of connections opened", opened),
        ("connections_closed_total", "counter", "Total number of connections closed", closed),
        ("channels_opened_total", "counter", "Total number of channels opened", channels_opened),
        ("channels_closed_total", "counter", "Total number of channels closed", channels_closed),
        ("queues_declared_total", "counter", "Total number of queues declared", queues.declared),
        ("queues_created_total", "counter", "Total number of queues created", queues.created),
        ("queues_deleted_total", "counter", "Total number of queues deleted", queues.deleted),
    ):
        yield one(f"rabbitmq_{name}", kind, text, value)  # type: ignore[arg-type]


def queue_sums(api: Management) -> dict[tuple[str, str], QueueSums]:
    """Totals by (protocol, type of queue); sessions of MQTT clients are classic queues of their protocol."""
    sums = {("amqp091", kind): QueueSums() for kind in _TYPES}
    sums["mqtt", "classic"] = QueueSums()
    for (_, protocol, kind), one in api.sampler.queue_sums().items():
        sums.setdefault((protocol, kind), QueueSums()).add(one)
    return sums


def _queues(api: Management) -> Iterator[str]:
    sums = queue_sums(api)
    ready = sum(of.ready for of in sums.values())
    unacked = sum(of.unacked for of in sums.values())
    for name, kind, text, value in (
        ("queue_messages_ready", "gauge", "Messages ready to be delivered to consumers", ready),
        ("queue_messages_unacked", "gauge", "Messages delivered but not yet acknowledged", unacked),
        ("queue_messages", "gauge", "Sum of ready and unacknowledged messages", ready + unacked),
        ("queue_consumers", "gauge", "Consumers on queues", sum(of.consumers for of in sums.values())),
        (
            "queue_messages_published_total",
            "counter",
            "Total number of messages published to queues",
            sum(of.counter("publish") for of in sums.values()),
        ),
    ):
        yield one(f"rabbitmq_{name}", kind, text, value)  # type: ignore[arg-type]
    for name, text, field in (
        ("delivered_total", "Total number of messages delivered to consumers", "deliver_get"),
        ("redelivered_total", "Total number of messages given back to be delivered again", "redeliver"),
        ("acknowledged_total", "Total number of messages that left their queue for good", "ack"),
    ):
        yield metric(
            f"rabbitmq_global_messages_{name}",
            "counter",
            text,
            [
                ({"protocol": protocol, "queue_type": f"rabbit_{kind}_queue"}, of.counter(field))
                for (protocol, kind), of in sums.items()
            ],
        )


def _global(api: Management, lives: list[Live]) -> Iterator[str]:
    totals = {
        "amqp091": api.registry.totals("amqp"),
        "mqtt": api.registry.totals("mqtt"),
        "native": api.registry.totals("native"),
        "http": Totals(published=api.messages.published, delivered=api.messages.delivered),
    }
    publishers = dict.fromkeys(totals, 0)
    consumers = dict.fromkeys(totals, 0)
    for live in lives:
        name = _PROTOCOLS[live.facts.protocol.split()[0]]
        publishers[name] += live.facts.totals.published > 0
        consumers[name] += len(live.facts.consumers)
        consumers[name] += sum(len(channel.consumers) for channel in live.facts.channels)

    def by_protocol(name: str, text: str, values: dict[str, int], kind: Kind = "counter") -> str:
        return metric(
            f"rabbitmq_global_{name}",
            kind,
            text,
            [({"protocol": protocol}, value) for protocol, value in values.items()],
        )

    yield by_protocol("publishers", "Current number of publishers", publishers, "gauge")
    yield by_protocol("consumers", "Current number of consumers", consumers, "gauge")
    for name, text, field in (
        ("received", "received from publishers", "published"),
        ("received_confirm", "received from publishers expecting confirmations", "awaiting_confirm"),
        ("confirmed", "confirmed to publishers", "confirmed"),
        ("unroutable_dropped", "published as non-mandatory and dropped as unroutable", "dropped"),
        ("unroutable_returned", "published as mandatory and returned as unroutable", "returned"),
    ):
        values = {protocol: getattr(of, field) for protocol, of in totals.items()}
        yield by_protocol(f"messages_{name}_total", f"Total number of messages {text}", values)
    routed = {name: of.published - of.dropped - of.returned for name, of in totals.items()}
    yield by_protocol("messages_routed_total", "Total number of messages routed to queues", routed)
    amqp = totals["amqp091"]
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
    yield _sizes(amqp)


def _logins(api: Management) -> Iterator[str]:
    attempts = api.broker.users.attempts
    for name, text, outcomes in (
        ("attempts", "Total number of authentication attempts", (True, False)),
        ("attempts_succeeded", "Total number of successful authentication attempts", (True,)),
        ("attempts_failed", "Total number of failed authentication attempts", (False,)),
    ):
        values = [
            ({"protocol": told}, sum(attempts[protocol, right] for right in outcomes))
            for protocol, told in _LOGINS.items()
        ]
        yield metric(f"rabbitmq_auth_{name}_total", "counter", text, values)


def _dead_letters(api: Management) -> Iterator[str]:
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
        yield metric(f"rabbitmq_global_messages_dead_lettered_{reason}_total", "counter", text, values)


def _sizes(totals: Totals) -> str:
    name = "rabbitmq_message_size_bytes"
    lines = [head(name, "histogram", "Size of messages received from AMQP publishers")]
    count = 0
    assert len(_SIZE_LABELS) == len(SIZES)
    for label, more in zip((*_SIZE_LABELS, "+Inf"), totals.sizes, strict=True):
        count += more
        lines.append(sample(f"{name}_bucket", count, labels_of({"protocol": "amqp091", "le": label})))
    lines.append(sample(f"{name}_sum", totals.size_sum, labels_of({"protocol": "amqp091"})))
    lines.append(sample(f"{name}_count", count, labels_of({"protocol": "amqp091"})))
    return "".join(lines)


def _own(api: Management) -> Iterator[str]:
    log = api.broker.log
    logged = log.statistics()
    for name, kind, text in (
        ("appended_bytes", "counter", "Bytes appended to the log"),
        ("backlog_bytes", "gauge", "Bytes appended and not yet durable"),
        ("syncs", "counter", "Times the log was synced"),
        ("written_lsn", "gauge", "Position of the last record that is written"),
        ("synced_lsn", "gauge", "Position of the last record that is durable"),
        ("first_lsn", "gauge", "Position of the first record that is kept"),
        ("segments", "gauge", "Segment files of the log"),
        ("segment_bytes", "gauge", "Bytes in the segment files of the log"),
        ("feeds", "gauge", "Feeds"),
        ("feed_bytes", "gauge", "Memory of the feeds"),
        ("tail_bytes", "gauge", "Memory of the tail cache"),
        ("read_bytes", "gauge", "Memory of the read cache"),
        ("tail_hits", "counter", "Batches that consumers found in the tail cache"),
        ("read_hits", "counter", "Batches that consumers found in the read cache"),
        ("cache_misses", "counter", "Batches that consumers found in neither"),
        ("duplicates", "counter", "Messages of named producers that came again and were not appended"),
        ("cold_reads", "counter", "Reads of records that were no longer in memory"),
        ("damaged_places", "gauge", "Places of the log found damaged since the start"),
        ("scrubbed_bytes", "counter", "Bytes of closed segments that were read again to find damage"),
        ("scrubbed_segments", "counter", "Closed segments that were read again to find damage"),
    ):
        suffix = "_total" if kind == "counter" else ""
        yield one(f"penstock_log_{name}{suffix}", kind, text, logged[name])  # type: ignore[arg-type]
    paused = int(log.paused)
    yield one("penstock_publishers_paused", "gauge", "1 while publishers must wait", paused)
    yield metric(
        "penstock_vhost_log_bytes",
        "gauge",
        "Bytes of a vhost's messages in the segment files of the log",
        [({"vhost": vhost.name}, log.held_bytes(vhost.lp)) for vhost in api.broker.vhosts.values()],
    )
    yield metric(
        "penstock_vhost_evicted_messages_total",
        "counter",
        "Messages that a vhost's backlog quota has let go of",
        [({"vhost": name}, api.broker.quotas.evicted[name]) for name in api.broker.vhosts],
    )
    rates = api.broker.rates
    for name, kind, text, of in (
        ("slowed_total", "counter", "Times a publisher had to wait for a rate quota", rates.slowed),
        (
            "slowed_seconds_total",
            "counter",
            "Time that publishers had to wait for rate quotas",
            rates.slowed_s,
        ),
    ):
        values = [({"quota": scope}, value) for scope, value in of.items()]
        yield metric(f"penstock_publishers_{name}", kind, text, values)  # type: ignore[arg-type]
    yield from _webhooks(api)
    turns = api.broker.tick.turns
    yield one("penstock_turns_total", "counter", "Turns of the event loop that moved messages", turns)


def _webhooks(api: Management) -> Iterator[str]:
    workers = list(api.webhooks)
    results = {one.value: 0 for one in Outcome}
    for worker in workers:
        for name, count in worker.counts.outcomes.items():
            results[name] += count
    told = "Requests to webhooks, by what came of them"
    yield metric(
        "penstock_webhook_attempts_total",
        "counter",
        told,
        [({"result": name}, count) for name, count in results.items()],
    )
    states = Counter(worker.state for worker in workers)
    told = "Webhooks by state"
    yield metric("penstock_webhooks", "gauge", told, [({"state": name}, states[name]) for name in STATES])
    for name, kind, text, value in (
        ("delivered_total", "counter", "Messages delivered", sum(w.counts.delivered for w in workers)),
        ("dead_total", "counter", "Messages given up", sum(w.counts.dead for w in workers)),
        ("seconds_total", "counter", "Time of requests", sum(w.counts.seconds for w in workers)),
        (
            "held",
            "gauge",
            "Messages under way or waiting for their next attempt",
            sum(w.held for w in workers),
        ),
    ):
        yield one(f"penstock_webhook_{name}", kind, f"{text} by webhooks", value)  # type: ignore[arg-type]
