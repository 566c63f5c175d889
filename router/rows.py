"""The router's records in the log's tables, and what it asks of them.

A row's key is a digest of what names the thing, so that no name or filter is too long for a key; the row's
value says it all again in full, as an encoded table (`arguments`):

    table        key of                                         value
    vhost        name                                           name, description, tags, default_queue_type,
                                                                limits
    user         name                                           name, hash, tags, limits
    permission   vhost, user                                    vhost, user, configure, write, read
    topic_permission  vhost, user, exchange                     vhost, user, exchange, write, read
    exchange     vhost, name                                    its key, type, auto_delete, internal, args
    queue        vhost, kind, name                              its key, qid, auto_delete, arguments; without
                                                                what is "queue", false or empty
    binding      vhost, kind, destination, source, key, args    its key, at (a position)
    feed         the feed's id (log_core.tables.feed_key)       vhost, exchange, syntax, pattern; or empty
    session, filter                                             see `sessions`, `filters`
    policy       vhost, kind, name                              its key, pattern, definition, priority,
                                                                apply_to
    parameter    vhost, component, name                         see `parameters`
    seen, delay_name                                            see `deduplication`, `delay_names`
    retained     vhost, topic                                   see `retained`
    half         its id                                         see `half`
    lp           (the log partition, u32 big-endian)            name of its vhost; see `partitions`
    format                                                      see `formats`

Kinds of destinations: "queue", "exchange", "share"; of queues also "subscription". Only what is durable has
a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from penstock.log_core.producers import OWNER_SIZE
from penstock.router._row_keys import digest_of, row_key, row_part
from penstock.router.names import text, wire

__all__ = [
    "ProducerName",
    "Store",
    "Tables",
    "digest_of",
    "producer_name",
    "producer_parts",
    "row_key",
    "row_part",
]


class Tables(Protocol):
    """The part of the log's durable tables that the router needs."""

    def put(self, table: str, key: bytes, value: bytes) -> int:
        """Set a row; the LSN of the change."""

    def delete(self, table: str, key: bytes) -> int:
        """Remove a row; the LSN of the change, 0 when there was none."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The row's value, or None."""

    def items(self, table: str) -> Iterable[tuple[bytes, bytes]]:
        """All rows of a table; not to be changed meanwhile."""


class Store(Protocol):
    """The part of the log that the router needs to change several rows at once."""

    @property
    def tables(self) -> Tables:
        """Durable rows."""

    def unit(self) -> AbstractContextManager[object]:
        """All puts and deletes within it are kept, or none."""


class ProducerName(NamedTuple):
    """The log's name of a named producer, and the label that lists read."""

    key: bytes
    label: bytes


def producer_name(protocol: str, vhost: str, user: str, name: str) -> ProducerName:
    """A name is its user's in the vhost, and no other protocol's.

    Whose it is stands in front of the digest of it all: the log lets nobody have too many.
    """
    key = b"\0" + protocol.encode() + row_key(vhost, user)[:OWNER_SIZE] + row_key(vhost, user, name)
    parts = [wire(part) for part in (protocol, vhost, user, name)]
    return ProducerName(key, b"".join(len(part).to_bytes(2, "big") + part for part in parts))


def producer_parts(label: bytes) -> tuple[str, str, str, str] | None:
    """Protocol, vhost, user and name of a label; None: it has none of them."""
    parts = []
    while label:
        size = 2 + int.from_bytes(label[:2], "big")
        parts.append(text(label[2:size]))
        label = label[size:]
    if len(parts) != 4:
        return None
    protocol, vhost, user, name = parts
    return protocol, vhost, user, name
