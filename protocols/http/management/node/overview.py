"""/api/overview, /api/nodes, and what else tells of the whole."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock import logs
from penstock.protocols.http.management import views
from penstock.protocols.http.management.bodies import Body, Given, Text
from penstock.protocols.http.management.cluster_name import cluster_name, rename_cluster
from penstock.protocols.http.management.context import (
    LISTENER_PROTOCOLS,
    PRODUCT,
    RABBITMQ_VERSION,
    Management,
    absent,
)
from penstock.protocols.http.management.history import LEVELS, OF_CONNECTION, OF_QUEUE
from penstock.protocols.http.management.node import host
from penstock.protocols.http.management.node.host import HostFigures
from penstock.protocols.http.management.plots import Curve, add_samples
from penstock.protocols.http.management.rates import GAUGES, TOTALS, Walk, total_counters
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.server.numbers import whole
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.protocols.net.connection_info import Totals
from penstock.router.exchanges.exchanges import TYPES

if TYPE_CHECKING:
    from penstock.protocols.listening.registry import Live

__all__ = [
    "CHURN",
    "FIGURES",
    "MEMORY_PARTS",
    "NAME",
    "WATERMARK",
    "add",
    "is_open",
    "memory_of",
    "totals_of_all",
]

NAME: Final = Body({"name": Text()}, "name")
WATERMARK: Final = Body(
    {
        "fraction": Given({"type": "number", "minimum": 0, "maximum": 1}),
        "bytes": Given({"type": "integer", "minimum": 0}),
    },
    one_of=("fraction", "bytes"),
)
_CLIENTS: Final = ("amqp", "mqtt")
CHURN: Final = (
    "channel_closed",
    "channel_created",
    "connection_closed",
    "connection_created",
    "queue_created",
    "queue_declared",
    "queue_deleted",
)
FIGURES: Final = (
    "mem_used",
    "fd_used",
    "sockets_used",
    "proc_used",
    "disk_free",
    "context_switches",
    "io_read_count",
    "io_write_count",
    "io_read_bytes",
    "io_write_bytes",
    "io_sync_count",
    "disk_reads",
)
"""Figures of the node that have a rate."""
_HOST_S: Final = 1.0
_SPANS: Final = [span for span, _ in LEVELS]
_RETENTION: Final = {
    "global": _SPANS,
    "basic": _SPANS[:OF_QUEUE],
    "detailed": _SPANS[:OF_CONNECTION],
}
_CONTEXTS: Final = {
    "management": "RabbitMQ Management",
    "management_tls": "RabbitMQ Management",
    "metrics": "RabbitMQ Prometheus",
}


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Overview(api)
    routes = api.app.routes
    for path, handler in (
        ("/api/overview", api.answers.shared(handlers.overview)),
        ("/api/cluster-name", handlers.cluster_name),
        ("/api/whoami", handlers.whoami),
        ("/api/auth", handlers.auth),
        ("/api/version", handlers.version),
        ("/api/extensions", handlers.extensions),
        ("/api/findings", handlers.findings),
        ("/api/deprecated-features", handlers.nothing),
        ("/api/deprecated-features/used", handlers.nothing),
        ("/api/nodes", api.answers.shared(handlers.nodes)),
        ("/api/nodes/{node}", api.answers.shared(handlers.node)),
        ("/api/nodes/{node}/memory", handlers.memory),
        ("/api/nodes/{node}/memory/relative", handlers.memory_relative),
    ):
        routes.add("GET", path, handler)
    routes.add("PUT", "/api/cluster-name", handlers.rename)
    routes.add("DELETE", "/api/reset", handlers.reset)
    routes.add("DELETE", "/api/reset/{node}", handlers.reset)
    routes.add("PUT", "/api/nodes/{node}/memory-high-watermark", handlers.limit_memory)


def is_open(request: Request) -> bool:
    """Whether a page asks what it needs before its user logs in: the version, and the ways to log in."""
    return request.method in ("GET", "HEAD") and list(request.segments) in (
        ["api", "version"],
        ["api", "auth"],
    )


def totals_of_all(api: Management) -> Totals:
    """The messages that all clients moved since the start."""
    sum_ = Totals()
    for protocol in _CLIENTS:
        sum_.add(api.registry.totals(protocol))
    return _with_others(api, sum_)


def _with_others(api: Management, sum_: Totals) -> Totals:
    """The same totals with the messages that no AMQP or MQTT connection moved."""
    sum_.published += api.messages.published
    sum_.delivered += api.messages.delivered
    sum_.got += api.messages.delivered
    # Queues know what became of a delivery, by whichever protocol it went.
    sums = list(api.sampler.queues.by_type().values())
    sum_.acknowledged, consumed, got = (
        sum(one.counter(name) for one in sums) for name in ("ack", "deliver_no_ack", "get_no_ack")
    )
    # Never more than there were: a queue also counts what was too large for its client.
    sum_.delivered_auto, sum_.got_auto = min(consumed, sum_.consumed), min(got, sum_.got)
    return sum_


def memory_of(api: Management) -> dict[str, Any]:
    """RabbitMQ's breakdown: what is known of ours in its places, the rest as other_system."""
    rss = host.read(api.data_dir).rss
    logged = api.broker.log.statistics()
    caches = logged["tail_bytes"] + logged["read_bytes"]
    index = logged["feed_bytes"]
    parts = dict.fromkeys(MEMORY_PARTS, 0)
    parts.update(binary=caches, msg_index=index, other_system=max(rss - caches - index, 0))
    return {**parts, "strategy": "rss", "total": {"rss": rss, "allocated": rss, "erlang": 0}}


class _Overview:
    def __init__(self, api: Management) -> None:
        self._api = api
        self._host: tuple[float, HostFigures] | None = None
        """When it was read, and what."""
        api.sampler.extra.append(self._sampled)

    def _sampled(self) -> Walk:
        api = self._api
        sum_ = Totals()
        for protocol in _CLIENTS:
            for part in api.registry.totals_in_parts(protocol):
                sum_.add(part)
                yield None
        yield "totals", total_counters(_with_others(api, sum_))
        yield "churn", self._churn()
        yield GAUGES, self._figures()

    def _host_figures(self) -> HostFigures:
        """Those of the last second: every page that is open asks for them."""
        now = self._api.clock()
        if self._host is None or not 0 <= now - self._host[0] < _HOST_S:
            self._host = now, host.read(self._api.data_dir)
        return self._host[1]

    def _figures(self) -> tuple[int, ...]:
        """The values of `FIGURES`."""
        api, figures = self._api, self._host_figures()
        logged = api.broker.log.statistics()
        return (
            figures.rss,
            figures.fd_used,
            sum(len(listener.connections) for _, listener in api.registry.listeners()),
            figures.threads,
            figures.disk_free,
            figures.context_switches,
            figures.io_reads,
            figures.io_writes,
            figures.io_read_bytes,
            figures.io_write_bytes,
            logged["syncs"],
            logged["cold_reads"],
        )

    def _churn(self) -> tuple[int, ...]:
        api = self._api
        queues = api.broker.queues
        channels_opened, channels_closed = api.registry.channels()
        opened = closed = 0
        for protocol in ("amqp", "mqtt"):
            for listener in api.registry.of(protocol):
                opened += listener.opened
                closed += listener.closed
        return (
            channels_closed,
            channels_opened,
            closed,
            opened,
            queues.created,
            queues.declared,
            queues.deleted,
        )

    async def overview(self, request: Request) -> Response:
        from penstock.protocols.http.management.node.blocked import blocked  # a start has no use for it

        api = self._api
        api.identity(request)
        lives = api.registry.connections()
        ready = unacked = queues = exchanges = 0
        sums = api.sampler.queues.sums()
        vhosts = api.vhosts(request)
        for vhost in vhosts:
            exchanges += len(vhost.exchanges)
            for (name, _, _), one in sums.items():
                if name == vhost.name:
                    queues += one.queues
                    ready += one.ready
                    unacked += one.unacked
        totals = totals_of_all(api)
        rates = api.sampler.rates("totals", len(TOTALS))
        growth, publish = views.growths(TOTALS, rates), rates[TOTALS.index("publish")]
        shown = {
            "management_version": RABBITMQ_VERSION,
            "rates_mode": "basic",
            "sample_retention_policies": _RETENTION,
            "exchange_types": _exchange_types(),
            "product_version": api.version,
            "product_name": PRODUCT,
            "rabbitmq_version": RABBITMQ_VERSION,
            "cluster_name": cluster_name(api),
            "cluster_tags": {},
            "node_tags": {},
            "erlang_version": "0.0",
            "erlang_full_version": f"CPython {sys.version.split()[0]}",
            "release_series_support_status": "supported",
            "disable_stats": False,
            "enable_queue_totals": False,
            "is_op_policy_updating_enabled": True,
            "message_stats": {
                **views.stats_of_totals(totals, rates),
                # Reads of records that were not in memory; a record is written once.
                **views.stats(
                    ("disk_reads", "disk_writes"),
                    (self._figures()[-1], totals.published),
                    (api.sampler.rates(GAUGES, len(FIGURES))[-1], publish),
                ),
            },
            "churn_rates": views.stats(CHURN, self._churn(), api.sampler.rates("churn", len(CHURN))),
            "queue_totals": {
                "messages": ready + unacked,
                "messages_details": {"rate": growth["messages"]},
                "messages_ready": ready,
                "messages_ready_details": {"rate": growth["messages_ready"]},
                "messages_unacknowledged": unacked,
                "messages_unacknowledged_details": {"rate": growth["messages_unacknowledged"]},
            },
            "object_totals": {
                "channels": sum(len(live.info.channels) for live in lives),
                "connections": len(lives),
                **({"consumers": _consumers(lives)} if api.sees_all(request) else {}),
                "exchanges": exchanges,
                "queues": queues,
            },
            "statistics_db_event_queue": 0,
            "penstock": {
                "duplicates": api.broker.log.producers.duplicates,
                "delayed": api.broker.delayed.statistics()["delayed"],
                "webhooks": len(list(api.webhooks)),
                "log": _log_figures(api),
                "clients": dict(Counter(live.info.protocol for live in lives)),
                "blocked": blocked(api, [vhost.name for vhost in vhosts], api.seen(request, lives)),
            },
            "node": api.node,
            "listeners": self._listeners(),
            "contexts": self._contexts(),
        }
        self._add_samples(request, shown, totals)
        return one_of(request, shown)

    def _add_samples(self, request: Request, shown: dict[str, Any], totals: Totals) -> None:
        api, figures = self._api, self._figures()
        counted = total_counters(totals)
        reads, writes = [""] * len(FIGURES), [""] * len(TOTALS)
        reads[-1], writes[0] = "disk_reads", "disk_writes"
        add_samples(
            request,
            "msg_rates",
            shown["message_stats"],
            api.curve("totals", TOTALS, counted),
            api.curve(GAUGES, reads, figures),
            api.curve("totals", writes, counted),
        )
        add_samples(request, "msg_rates", shown["churn_rates"], self._churn_curve())
        curves = [one for vhost in api.vhosts(request) for one in views.vhost_lengths(api, vhost)]
        add_samples(request, "lengths", shown["queue_totals"], *curves)

    def _churn_curve(self) -> Curve:
        return self._api.curve("churn", CHURN, self._churn())

    def _listeners(self) -> list[dict[str, Any]]:
        api = self._api
        return [
            {
                "node": api.node,
                "protocol": LISTENER_PROTOCOLS[name],
                "ip_address": listener.address.rpartition(":")[0].strip("[]"),
                "port": listener.port,
                "socket_opts": [],
            }
            for name, listener in api.registry.accepting()
        ]

    def _contexts(self) -> list[dict[str, Any]]:
        api = self._api
        return [
            {
                "ssl_opts": [],
                "node": api.node,
                "description": _CONTEXTS[name],
                "path": "/",
                "ip": listener.address.rpartition(":")[0].strip("[]"),
                "port": str(listener.port),
            }
            for name, listener in api.registry.accepting()
            if name in _CONTEXTS
        ]

    async def cluster_name(self, request: Request) -> Response:
        self._api.identity(request)
        return json_response({"name": cluster_name(self._api)})

    async def rename(self, request: Request) -> Response:
        self._api.require(request)
        await rename_cluster(self._api, NAME.read(await request.json())["name"])
        return Response(204)

    async def whoami(self, request: Request) -> Response:
        return json_response(self._api.whoami(request))

    async def auth(self, request: Request) -> Response:
        """The ways to log in besides a password: of RabbitMQ 4.2, and of 3.10, whose page asks for others."""
        flow, told = self._api.code_flow, {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
        if flow is None:
            return json_response({**told, "oauth_enabled": False})
        options = flow.options
        return json_response(
            {
                **told,
                "oauth_enabled": True,
                "oauth_client_id": options.client_id,
                "oauth_provider_url": options.issuer,
                "oauth_scopes": " ".join(options.scopes),
                "oauth_disable_basic_auth": False,
            }
        )

    async def version(self, request: Request) -> Response:
        return json_response(RABBITMQ_VERSION)

    async def extensions(self, request: Request) -> Response:
        self._api.identity(request)
        return json_response([{"javascript": "dispatcher.js"}])

    async def findings(self, request: Request) -> Response:
        from penstock.protocols.http.management.node.findings import reply_findings  # as above

        self._api.require(request, "monitoring")
        return await reply_findings(self._api, request)

    async def reset(self, request: Request) -> Response:
        """Forget the histories, of all workers; RabbitMQ's page has a button for it."""
        api = self._api
        api.require(request)
        if request.names.get("node", api.node) != api.node and not request.part:
            raise absent()
        api.sampler.history.clear()
        if api.forwarder is not None and not request.part:
            await api.forwarder.everywhere(request, api.place, b"")
        return Response(204)

    async def nothing(self, request: Request) -> Response:
        """Things that do not exist here: an empty list, for tools that ask all the same."""
        self._api.identity(request)
        return json_response([])

    # Nodes

    async def nodes(self, request: Request) -> Response:
        self._api.require(request, "monitoring")
        rows = [self._node(), *_other_nodes(self._api)]
        return await reply_list(request, rows, lambda item: item, lambda item: (item["name"],))

    async def node(self, request: Request) -> Response:
        self._api.require(request, "monitoring")
        if request.names["node"] != self._api.node:
            raise absent()
        shown = self._node()
        figures = self._api.curve(GAUGES, FIGURES, self._figures())
        add_samples(request, "node_stats", shown, figures, self._churn_curve())
        return one_of(request, shown)

    async def limit_memory(self, request: Request) -> Response:
        """{"fraction": F} of the memory there is, or {"bytes": N}: above it publishers wait."""
        api = self._api
        api.require(request)
        memory = api.registry.memory
        if request.names["node"] != api.node or memory is None:
            raise absent()
        body = WATERMARK.read(await request.json())
        fraction, limit = body["fraction"], body["bytes"]
        if limit is None and isinstance(fraction, int | float) and 0 <= fraction <= 1:
            limit = int(fraction * memory.available_bytes)
        limit = whole(limit)
        if limit is None or limit < 0:
            raise HttpError(400, "bad_request", "a fraction of the memory from 0 to 1, or a number of bytes")
        # 0 means no limit here, and nothing may be used with RabbitMQ: then everything is above it.
        memory.change(max(limit, 1))
        return json_response({"bytes": memory.limit_bytes})

    def _node(self) -> dict[str, Any]:
        api, figures = self._api, self._host_figures()
        alarms = api.broker.log.alarms
        rates = api.sampler.rates(GAUGES, len(FIGURES))
        return {
            "partitions": [],
            "os_pid": api.os_pid,
            "fd_total": figures.fd_total,
            "sockets_total": figures.fd_total,
            "mem_limit": api.memory_limit,
            "mem_alarm": "memory" in alarms,
            "disk_free_limit": api.disk_free_limit,
            "disk_free_alarm": "disk" in alarms,
            "proc_total": figures.threads_max,
            "rates_mode": "basic",
            "uptime": api.uptime_ms,
            "run_queue": 0,
            "processors": figures.processors,
            "exchange_types": _exchange_types(),
            "auth_mechanisms": [
                {"name": name, "description": "SASL mechanism", "enabled": True}
                for name in ("PLAIN", "AMQPLAIN")
            ],
            "applications": [{"name": PRODUCT, "description": PRODUCT, "version": api.version}],
            "contexts": self._contexts(),
            "log_files": ["<stderr>"],
            "log_level": logs.level(),
            "db_dir": str(api.data_dir.absolute()),
            "config_files": [],
            "net_ticktime": 60,
            "enabled_plugins": ["rabbitmq_management", "rabbitmq_mqtt", "rabbitmq_prometheus"],
            "mem_calculation_strategy": "rss",
            "ra_open_file_metrics": {},
            "name": api.node,
            "type": "disc",
            "running": api.is_running,
            "being_drained": False,
            **views.stats(FIGURES[:-1], self._figures()[:-1], rates[:-1]),
            **views.stats(CHURN, self._churn(), api.sampler.rates("churn", len(CHURN))),
            "cluster_links": [],
            "metrics_gc_queue_length": {},
        }

    async def memory(self, request: Request) -> Response:
        api = self._api
        api.require(request, "monitoring")
        if request.names["node"] != api.node:
            raise absent()
        return json_response({"memory": memory_of(api)})

    async def memory_relative(self, request: Request) -> Response:
        """Each part as per cent of what all of them are together, rounded up, as RabbitMQ has it."""
        api = self._api
        api.require(request, "monitoring")
        if request.names["node"] != api.node:
            raise absent()
        memory = memory_of(api)
        whole = sum(memory[part] for part in MEMORY_PARTS) or 1
        shares = {part: -(-100 * memory[part] // whole) for part in MEMORY_PARTS}
        return json_response({"memory": {**shares, "total": 100}})


MEMORY_PARTS: Final = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "metadata_store",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "metadata_store_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)


def _exchange_types() -> list[dict[str, Any]]:
    return [{"name": name, "description": f"AMQP {name} exchange", "enabled": True} for name in sorted(TYPES)]


def _consumers(lives: Sequence[Live]) -> int:
    """Those of all connections: RabbitMQ leaves them out for who does not see all."""
    return sum(
        len(live.info.consumers) + sum(len(channel.consumers) for channel in live.info.channels)
        for live in lives
    )


def _log_figures(api: Management) -> dict[str, Any]:
    """The log: bytes of its segments, bytes that the disk has not yet, and the average time of a sync."""
    log = api.broker.log
    figures = log.statistics()
    return {
        "bytes": sum(segment.end for segment in log.segments_from(0)),
        "backlog_bytes": figures["backlog_bytes"],
        "sync_us": figures["sync_us"] // figures["syncs"] if figures["syncs"] else None,
    }


def _other_nodes(api: Management) -> list[dict[str, Any]]:
    """The other nodes of the cluster, as RabbitMQ shows a node of which it has no figures."""
    if api.replication is None:
        return []
    return [
        {
            "name": f"penstock@{node.node}",
            "type": "disc",
            "running": node.role == "standby",
            "role": node.role,
            "lag_entries": node.lag_entries,
            "lag_bytes": node.lag_bytes,
        }
        for node in api.replication.nodes
        if node.role != "owner"
    ]
