"""The section `server`: the process as a whole."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal

from penstock.config.kinds import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Choice,
    Count,
    Names,
    Networks,
    Seconds,
    Share,
    Text,
    option,
)
from penstock.lazy_dataclass import dataclass

__all__ = ["WORKERS_MAX", "Server"]

WORKERS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The process as a whole: its log lines, its connections, its end."""

    name: str = field(
        default="",
        metadata=option(
            Text(),
            "The name of this gateway: in the API, in metrics, and for other brokers, which tell by it where "
            'a message has been. "" = the name of the host, or in a cluster cluster.name.',
            when="several gateways on one host are linked",
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info",
        metadata=option(
            Choice(("debug", "info", "warning", "error")),
            "The least severe log line that is written. At info, a connection writes one line when it opens "
            "and one when it closes.",
            when='you look for the cause of a problem ("debug"), or connections come so fast that their '
            'lines are noise ("warning")',
        ),
    )
    log_format: Literal["text", "json"] = field(
        default="text",
        metadata=option(
            Choice(("text", "json")),
            "How log lines are written to standard error: for people, or as JSON lines.",
            when="a log collector reads the lines",
        ),
    )
    output_buffer_bytes: int = field(
        default=MIB,
        metadata=option(
            Bytes(16 * KIB, GIB),
            "High-water mark of what waits to be sent to one connection. Above it the connection's consumers "
            "get no more messages until it has drained.",
            when="consumers on a link with a high delay do not fill it (raise), or thousands of slow "
            "consumers hold too much memory (lower)",
        ),
    )
    output_stuck_s: float = field(
        default=30.0,
        metadata=option(
            Seconds(0.1, 86400),
            "A connection whose output is eight times above its mark, and that takes none of it for so long, "
            "is closed. Above eight marks it is not read either.",
            when="healthy clients stop reading for longer than this",
        ),
    )
    buffer_budget: int | float = field(
        default=0.2,
        metadata=option(
            Share(16 * MIB, 1024 * GIB),
            "What the buffers of all connections may hold together: a part of what the machine or its "
            "control group has, or a size. Above it the mark of each connection falls, and those who take "
            "none of their output are closed, the largest first. 0 = no limit.",
            when="other programs on the machine need the memory (lower), or thousands of slow connections "
            "are closed (raise)",
        ),
    )
    workers: int = field(
        default=1,
        metadata=option(
            Count(1, WORKERS_MAX),
            "Processes that share the ports. Each has vhosts of its own, with a log of its own in data_dir, "
            "and uses one core: one vhost is no faster with more of them. Caches and limits of memory are "
            "divided among them; limits of connections hold for each.",
            when="several vhosts together need more than one core",
        ),
    )
    login_timeout_s: float = field(
        default=10.0,
        metadata=option(
            Seconds(0.1, 3600),
            "A client that needs longer for its login is disconnected; TLS and WebSocket handshakes have "
            "the same time.",
            when="clients on bad links need longer to connect",
        ),
    )
    drain_timeout_s: float = field(
        default=10.0,
        metadata=option(
            Seconds(0, 3600),
            "How long a stop waits for connections to take what is under way before it closes them, and "
            "for Kafka to keep what was written. The owner of a cluster waits at most 0.2 s for connections.",
            when="your service manager kills the gateway sooner, or consumers need longer to finish",
        ),
    )
    max_connections: int = field(
        default=0,
        metadata=option(
            Count(0, 10_000_000),
            "Connections open at once on each listener; further ones are refused. 0 = no limit.",
            when="a fault in your clients must not use up the descriptors",
        ),
    )
    max_connections_per_address: int = field(
        default=0,
        metadata=option(
            Count(0, 10_000_000),
            "Connections open at once from one address, on all listeners together; an IPv6 address counts as "
            "its /64, loopback is not limited. 0 = no limit.",
            when="clients are not yours, and one of them could take all connections",
        ),
    )
    accept_rate_per_address: int = field(
        default=1000,
        metadata=option(
            Count(0, 10_000_000),
            "Connections per second accepted from one address, on all listeners together, with a burst of "
            "two seconds; further ones are refused. 0 = no limit.",
            when="many clients behind one address reconnect at the same time (raise)",
        ),
    )
    coalesce_us: int = field(
        default=150,
        metadata=option(
            Count(0, 1000),
            "Microseconds to wait for more clients when many of them send small messages shortly after one "
            "another. It halves the CPU of such a load and adds about so much to its latency. The gateway "
            "waits only where that brings messages and slows no client down.",
            when="each microsecond of latency counts (0)",
        ),
    )
    proxy_networks: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Networks(),
            "Where trusted proxies are: connections from there must begin with a PROXY header (version 1 or "
            "2), and count as from the address that it names. List nothing but the proxies themselves.",
            when="a load balancer stands before the gateway",
        ),
    )
    host_names: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Names(),
            "Names by which browsers on this machine reach the gateway, such as broker.example.org. HTTP and "
            "WebSocket clients count as local (loopback_users, logins without a name) only if they use one "
            "of these names, localhost, an address, or the machine's own name: other names could be pointed "
            "here by somebody else.",
            when="browsers on this machine use another name than localhost",
        ),
    )
    memory_high_watermark: int | float = field(
        default=0.6,
        metadata=option(
            Share(16 * MIB, 1024 * GIB),
            "Publishers are stopped while the gateway uses more memory than this: a part of what the machine "
            "or its control group has, or a size. 0 = no limit.",
            when="other programs on the machine need the memory",
        ),
    )
