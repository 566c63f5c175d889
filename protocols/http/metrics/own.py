"""Metrics with penstock's own names: its log, its quotas, its webhooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from penstock.protocols.http.management.context import Management, Replication
from penstock.protocols.http.metrics.exposition import Histogram, Kind, Metric, of_one
from penstock.protocols.http.webhooks.endpoint import STATES, Outcome
from penstock.protocols.links.link import Link, State
from penstock.protocols.net.admitting.admission import LIMITS

__all__ = ["own", "own_of_cluster"]


def own(api: Management) -> Iterator[Metric | Histogram]:
    """All of them, with their whole names."""
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
        ("damaged_ranges", "gauge", "Damaged ranges of log files found since the start"),
        (
            "delayed_retrying",
            "gauge",
            "Delayed messages that are due and whose read from the disk is retried",
        ),
        ("delayed_lost", "counter", "Delayed messages that were due and are damaged"),
        ("scrubbed_bytes", "counter", "Bytes of closed segments that were read again to find damage"),
        ("scrubbed_segments", "counter", "Closed segments that were read again to find damage"),
    ):
        suffix = "_total" if kind == "counter" else ""
        yield of_one(f"penstock_log_{name}{suffix}", kind, text, logged[name])  # type: ignore[arg-type]
    paused = int(log.paused)
    yield of_one("penstock_publishers_paused", "gauge", "1 while publishers must wait", paused)
    yield Metric(
        "penstock_vhost_log_bytes",
        "gauge",
        "Bytes of a vhost's messages in the segment files of the log",
        [({"vhost": vhost.name}, log.held_bytes(vhost.lp)) for vhost in api.broker.vhosts.values()],
    )
    yield Metric(
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
        yield Metric(f"penstock_publishers_{name}", kind, text, values)  # type: ignore[arg-type]
    refused = Counter[str]()
    for _, listener in api.registry.listeners():
        refused.update(listener.refused)
    yield Metric(
        "penstock_connections_refused_total",
        "counter",
        "Connections closed at once because of a limit, by its option",
        [({"limit": limit}, refused[limit]) for limit in LIMITS],
    )
    yield from _webhooks(api)
    yield from _links(api)
    if api.replication is not None:
        yield from own_of_cluster(api.replication)
    turns = api.broker.tick.turns
    yield of_one("penstock_turns_total", "counter", "Turns of the event loop that moved messages", turns)


def own_of_cluster(replication: Replication) -> Iterator[Metric | Histogram]:
    """Of the owner of a cluster, and of its standbys."""
    figures = replication.statistics()
    for name, kind, text in (
        (
            "claim_offset",
            "gauge",
            "Offset of the CLAIM by which the log is owned; it rises by a takeover",
        ),
        ("lease_held", "gauge", "1 while messages are handed out, 0 while Kafka does not answer"),
        ("unanswered_seconds", "gauge", "Time since the newest entry that Kafka answered was sent"),
        ("unanswered_bytes", "gauge", "Bytes of entries that Kafka has not answered"),
        ("sent_bytes", "counter", "Bytes of all entries ever, by all owners"),
        ("claims", "counter", "Times that a node became the owner, by all nodes"),
        ("gaps_read", "counter", "Times that entries of others were read before anything more was confirmed"),
        ("trimmed_to_offset", "gauge", "Entries below it were deleted"),
        ("files_sent_again", "counter", "Files that were sent once more, so that old entries could go"),
    ):
        suffix = "_total" if kind == "counter" else ""
        yield of_one(f"penstock_cluster_{name}{suffix}", kind, text, figures[name])  # type: ignore[arg-type]
    yield _answer_times(*replication.answer_times())
    others = [({"node": node.node}, node) for node in replication.nodes if node.role != "owner"]
    yield Metric(
        "penstock_cluster_standby",
        "gauge",
        "1 for a standby that follows the log, 0 for a node that is gone",
        [(labels, int(node.role == "standby")) for labels, node in others],
    )
    yield Metric(
        "penstock_cluster_lag_entries",
        "gauge",
        "Entries of the log that a node has not",
        [(labels, node.lag_entries) for labels, node in others],
    )
    yield Metric(
        "penstock_cluster_lag_bytes",
        "gauge",
        "Bytes of the entries that a node has not",
        [(labels, node.lag_bytes) for labels, node in others],
    )
    yield Metric(
        "penstock_cluster_lag_seconds",
        "gauge",
        "Time since the oldest entry was written that a node has not",
        [(labels, node.lag_s) for labels, node in others],
    )
    yield Metric(
        "penstock_cluster_seen_seconds",
        "gauge",
        "Age of what is known of a node",
        [(labels, node.seen_s) for labels, node in others],
    )


def _links(api: Management) -> Iterator[Metric]:
    links = list(api.links)
    states = Counter((link.kind, link.state.value) for link in links)
    yield Metric(
        "penstock_links",
        "gauge",
        "Links to other brokers by state",
        [({"kind": kind, "state": state}, count) for (kind, state), count in sorted(states.items())],
    )
    figures: list[tuple[str, Kind, str, Callable[[Link], int]]] = [
        ("forwarded_total", "counter", "Messages moved by a link", lambda link: link.counts.forwarded),
        ("faults_total", "counter", "Times that a link lost a connection", lambda link: link.counts.faults),
        ("up", "gauge", "1 while a link moves messages", lambda link: int(link.state is State.RUNNING)),
    ]
    for name, kind, text, of in figures:
        yield Metric(
            f"penstock_link_{name}",
            kind,
            text,
            [({"kind": link.kind, "vhost": link.vhost, "link": link.name}, of(link)) for link in links],
        )


def _answer_times(bounds: Sequence[float], counts: Sequence[int], sum_s: float) -> Histogram:
    text = "Time from sending an entry to Kafka's answer"
    return Histogram("penstock_cluster_answer_seconds", text, {}, [*map(str, bounds)], counts, sum_s)


def _webhooks(api: Management) -> Iterator[Metric]:
    workers = list(api.webhooks)
    results = {one.value: 0 for one in Outcome}
    for worker in workers:
        for name, count in worker.counts.outcomes.items():
            results[name] += count
    told = "Requests to webhooks, by what came of them"
    yield Metric(
        "penstock_webhook_attempts_total",
        "counter",
        told,
        [({"result": name}, count) for name, count in results.items()],
    )
    states = Counter(worker.state for worker in workers)
    told = "Webhooks by state"
    yield Metric("penstock_webhooks", "gauge", told, [({"state": name}, states[name]) for name in STATES])
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
        yield of_one(f"penstock_webhook_{name}", kind, f"{text} by webhooks", value)  # type: ignore[arg-type]
