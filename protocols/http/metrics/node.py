"""The process and its machine, under RabbitMQ's names.

Metrics that only Erlang has are left out: docs/reference/metrics.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.protocols.http.management.cluster_name import cluster_name
from penstock.protocols.http.management.context import PRODUCT, RABBITMQ_VERSION, Management
from penstock.protocols.http.management.node import host
from penstock.protocols.http.metrics.exposition import Metric, of_one

__all__ = ["about", "alarms", "coarse", "files", "limits", "started"]


def about(api: Management, endpoint: str) -> Iterator[Metric]:
    """The identity of this node; every expression of RabbitMQ's dashboards joins on it."""
    build = {
        "rabbitmq_version": RABBITMQ_VERSION,
        "prometheus_plugin_version": RABBITMQ_VERSION,
        "prometheus_client_version": api.version,
        "erlang_version": "0.0",
        "product_name": PRODUCT,
        "product_version": api.version,
    }
    yield Metric("build_info", "untyped", "Versions of the gateway", [(build, 1)])
    identity = {
        "rabbitmq_node": api.node,
        "rabbitmq_cluster": cluster_name(api),
        "rabbitmq_cluster_permanent_id": f"penstock-cluster-id-{api.cluster}",
        "rabbitmq_endpoint": endpoint,
    }
    yield Metric("identity_info", "untyped", "Node and cluster identity", [(identity, 1)])


def started(api: Management) -> Iterator[Metric]:
    """The one name that all exporters share; it has no prefix."""
    told = "Start time of the process since unix epoch in seconds"
    yield of_one("process_start_time_seconds", "gauge", told, api.started_at)


def coarse(api: Management) -> Iterator[Metric]:
    """Resources in use: RabbitMQ's family node_coarse_metrics."""
    figures = host.read(api.data_dir)
    yield of_one("process_open_fds", "gauge", "Open file descriptors", figures.fd_used)
    yield of_one("process_open_tcp_sockets", "gauge", "Open TCP sockets", _sockets(api))
    yield of_one("process_resident_memory_bytes", "gauge", "Memory used in bytes", figures.rss)
    told = "Disk space available in bytes"
    yield of_one("disk_space_available_bytes", "gauge", told, figures.disk_free)
    yield of_one("erlang_processes_used", "gauge", "Threads of the gateway", figures.threads)
    told = "Context switches of the gateway's threads"
    yield of_one("erlang_scheduler_context_switches_total", "counter", told, figures.context_switches)


def limits(api: Management) -> Iterator[Metric]:
    """Limits of resources: RabbitMQ's family node_metrics."""
    figures = host.read(api.data_dir)
    yield of_one("process_max_fds", "gauge", "Open file descriptors limit", figures.fd_total)
    yield of_one("process_max_tcp_sockets", "gauge", "Open TCP sockets limit", figures.fd_total)
    told = "Memory above which publishers wait"
    yield of_one("resident_memory_limit_bytes", "gauge", told, api.memory_limit)
    told = "Free disk space below which publishers wait, in bytes"
    yield of_one("disk_space_available_limit_bytes", "gauge", told, api.disk_free_limit)
    yield of_one("erlang_processes_limit", "gauge", "Threads that there may be", figures.threads_max)
    yield of_one("erlang_uptime_seconds", "gauge", "Seconds since the start", api.uptime_ms / 1000)


def files(api: Management) -> Iterator[Metric]:
    """Reads, writes and syncs: RabbitMQ's family node_persister_metrics.

    Operations and bytes are the process's, as the system counts them; times are those of the log.
    """
    figures = host.read(api.data_dir)
    logged = api.broker.log.statistics()
    for name, text, value in (
        ("read_ops", "Total number of I/O read operations", figures.io_reads),
        ("read_bytes", "Total number of I/O bytes read", figures.io_read_bytes),
        ("read_time_seconds", "Total time of reads of records by threads", logged["cold_read_us"] / 1e6),
        ("write_ops", "Total number of I/O write operations", figures.io_writes),
        ("write_bytes", "Total number of I/O bytes written", figures.io_write_bytes),
        ("write_time_seconds", "Total time of writes to the log", logged["write_us"] / 1e6),
        ("sync_ops", "Total number of I/O sync operations", logged["syncs"]),
        ("sync_time_seconds", "Total time of syncs of the log", logged["sync_us"] / 1e6),
    ):
        yield of_one(f"io_{name}_total", "counter", text, value)


def alarms(api: Management) -> Iterator[Metric]:
    """Why publishers may have to wait."""
    raised = api.broker.log.alarms
    figures = host.read(api.data_dir)
    for name, text, value in (
        ("free_disk_space_watermark", "1 while the disk is nearly full", "disk" in raised),
        ("memory_used_watermark", "1 while memory is short", "memory" in raised),
        ("file_descriptor_limit", "1 when no file can be opened", figures.fd_used >= figures.fd_total),
    ):
        yield of_one(f"alarms_{name}", "gauge", text, int(value))


def _sockets(api: Management) -> int:
    return sum(len(listener.connections) for _, listener in api.registry.listeners())
