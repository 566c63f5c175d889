"""Routes and the table that finds them by key: what the scanners of the front ends ask per message.

See `_routes.pyx` for how a table stays right while bindings come and go. Kernels cimport `Route` and
`RouteTable.lookup` from `_routes.pxd`; this face is for Python code and tests.
"""

from collections.abc import Callable
from typing import Any

from penstock.log_core.batch._appender import Target
from penstock.router.exchanges.recent_history import Recent
from penstock.subscriptions.cursor._cursor import Cursor

class Route:
    """The queues that one (exchange, routing key) or topic resolves to. Immutable; shared between keys."""

    target: Target
    """The feeds a record goes to."""
    scopes: tuple[Scope, ...]
    """The exchanges it went through: it is right as long as none of them changed for its key."""
    lp: int
    """The log partition its records belong to."""
    routed: bool
    """True when at least one queue gets the message."""
    durable: bool
    """True when at least one of them is durable: then a persistent message is confirmed after a sync."""
    error: Exception | None
    """A `RoutingError` when nothing may or can be published there."""
    per_message: bool
    """True when the headers of each message decide: publish it through `Vhost.publish`."""
    guards: tuple[Cursor, ...]
    """Of the queues that may refuse a message; each has a feed of its own in `target`."""
    recents: tuple[Recent, ...]
    """Of the exchanges that remember what came through them; a message of such a route is looked at alone."""
    special: bool
    """True when `per_message`, or when there are guards: scanners ask `must_look(size)` then."""

    def __init__(
        self,
        target: Target,
        scopes: tuple[Scope, ...],
        routed: bool,
        durable: bool,
        per_message: bool,
        error: Exception | None = None,
        lp: int = 0,
        guards: tuple[Cursor, ...] = (),
        recents: tuple[Recent, ...] = (),
    ) -> None: ...

class Topology:
    """The counters of one vhost that tell its route tables what they may still believe."""

    changes: int
    """Rises with every change of a scope."""
    epoch: int
    """Rises when every table of the vhost must forget all (permissions changed)."""

    def renew(self) -> None:
        """All tables of the vhost forget everything at their next lookup."""

class Scope:
    """The versions of one exchange: one wide counter, and cells by literal words of the key."""

    def __init__(self, topology: Topology, cells: int = 256) -> None:
        """`cells` is a power of two; more cells, fewer routes resolved again without need."""

    def touch_all(self) -> None:
        """Something changed for every key."""

    def touch_exact(self, pattern: bytes) -> None:
        """A binding with this literal pattern came or went: only this key is concerned."""

    def touch_below(self, prefix: bytes) -> None:
        """A binding with wildcards after the literal words `prefix` came or went ("" concerns every key)."""

class RouteTable:
    """The routes of one (vhost, identity, encoding), by key; bounded in entries and key bytes."""

    topology: Topology
    enc: int
    limit: int
    bytes_limit: int
    count: int
    """Keys it holds."""
    key_bytes: int
    """Bytes of their keys."""
    misses: int
    """How often `resolve` was asked, since it was made."""

    def __init__(
        self,
        topology: Topology,
        enc: int,
        resolve: Callable[[bytes], Route],
        limit: int = 200_000,
        bytes_limit: int = 32 << 20,
        matcher: Callable[[], Callable[[bytes], list[Any]] | None] | None = None,
    ) -> None:
        """`resolve(key)` answers the route of a key block in the encoding `enc` (1 AMQP 0-9-1, 2 MQTT 5).

        It must not raise for what a peer can send: a refusal is a `Route` with `error`.

        `matcher()` is asked after each change of the topology. It answers what finds the objects by which
        alone the route of a key is decided in the exchange that keys come to; None: something else decides,
        too. Keys for which it finds the same share a route, as long as that leads to no other exchange.
        """

    def route(self, key: bytes) -> Route:
        """The route of `key`, the same bytes as a record's key block."""

    def clear(self) -> None:
        """Forget all routes."""

def measure(table: RouteTable, keys: list[bytes], rounds: int) -> float:
    """Seconds that `rounds` passes of lookups over `keys` take in C; for the benchmark."""
