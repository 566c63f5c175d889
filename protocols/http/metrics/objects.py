"""Metrics per queue, channel and connection, and families of them on request; streamed, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.queue_totals import queue_counters
from penstock.protocols.http.metrics import node, totals
from penstock.protocols.http.metrics.exposition import (
    Histogram,
    Kind,
    Metric,
    head,
    labels_of,
    sample,
    written,
)
from penstock.protocols.http.metrics.own import own
from penstock.protocols.http.shared.lag import heads_known
from penstock.subscriptions.streams.lag import age_ms
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.protocols.listening.registry import Live
    from penstock.protocols.net.connection_info import ChannelInfo
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.exchanges.exchanges import Exchange
    from penstock.router.vhost.vhost import Vhost

__all__ = ["aggregated", "detailed", "per_object"]

_AT_ONCE: Final = 500

_Column = tuple[str, Kind, str, "Callable[..., float]"]

_QUEUE_COARSE: Final[Sequence[_Column]] = (
    (
        "queue_messages_ready",
        "gauge",
        "Messages ready to be delivered to consumers",
        lambda entry: entry.queue.ready_count,
    ),
    (
        "queue_messages_unacked",
        "gauge",
        "Messages delivered to consumers but not yet acknowledged",
        lambda entry: entry.queue.cursor.outstanding,
    ),
    (
        "queue_messages",
        "gauge",
        "Sum of ready and unacknowledged messages - total queue depth",
        lambda entry: entry.queue.ready_count + entry.queue.cursor.outstanding,
    ),
)
_QUEUE_CONSUMERS: Final[Sequence[_Column]] = (
    ("queue_consumers", "gauge", "Consumers on a queue", lambda entry: entry.queue.consumer_count),
)


def _takes(entry: QueueEntry) -> float:
    return float(any(consumer.credit() > 0 for consumer in entry.queue.consumers[:100]))


_QUEUE_MORE: Final[Sequence[_Column]] = (
    ("queue_consumer_utilisation", "gauge", "1 while some consumer takes messages", _takes),
    ("queue_consumer_capacity", "gauge", "1 while some consumer takes messages", _takes),
    (
        "queue_messages_published_total",
        "counter",
        "Total number of messages published to queues",
        lambda entry: queue_counters(entry.queue)[0],
    ),
    (
        "queue_delivered_total",
        "counter",
        "Total number of messages delivered from a queue",
        lambda entry: entry.queue.delivered,
    ),
    (
        "queue_messages_acked_total",
        "counter",
        "Total number of messages that left a queue for good",
        lambda entry: entry.queue.cursor.settled,
    ),
)
_CONNECTION: Final[Sequence[_Column]] = (
    (
        "connection_incoming_bytes_total",
        "counter",
        "Total number of bytes received on a connection",
        lambda live: live.connection.bytes_in,
    ),
    (
        "connection_outgoing_bytes_total",
        "counter",
        "Total number of bytes sent on a connection",
        lambda live: live.connection.bytes_out,
    ),
)
_CONNECTION_MORE: Final[Sequence[_Column]] = (
    (
        "connection_channels",
        "gauge",
        "Channels on a connection",
        lambda live: len(live.info.channels),
    ),
    (
        "connection_pending_packets",
        "gauge",
        "Bytes waiting to be sent on a connection",
        lambda live: live.connection.out.size,
    ),
)
_CHANNEL: Final[Sequence[_Column]] = (
    ("channel_consumers", "gauge", "Consumers on a channel", lambda one: len(one.consumers)),
    (
        "channel_messages_unacked",
        "gauge",
        "Delivered but not yet acknowledged messages",
        lambda one: one.unacknowledged,
    ),
    (
        "channel_messages_unconfirmed",
        "gauge",
        "Published but not yet confirmed messages",
        lambda one: one.unconfirmed,
    ),
    (
        "channel_messages_uncommitted",
        "gauge",
        "Messages received in a transaction but not yet committed",
        lambda one: one.uncommitted,
    ),
    ("channel_prefetch", "gauge", "Shared prefetch limit of a channel", lambda one: one.global_prefetch),
    ("consumer_prefetch", "gauge", "Prefetch limit of each new consumer", lambda one: one.prefetch),
)
_CHANNEL_EXCHANGE: Final[Sequence[_Column]] = (
    (
        "channel_messages_published_total",
        "counter",
        "Total number of messages published on a channel",
        lambda one: one.totals.published,
    ),
    (
        "channel_messages_confirmed_total",
        "counter",
        "Total number of messages confirmed on a channel",
        lambda one: one.totals.confirmed,
    ),
    (
        "channel_messages_unroutable_returned_total",
        "counter",
        "Total number of mandatory messages returned as unroutable",
        lambda one: one.totals.returned,
    ),
    (
        "channel_messages_unroutable_dropped_total",
        "counter",
        "Total number of messages dropped as unroutable",
        lambda one: one.totals.dropped,
    ),
)
_CHANNEL_QUEUE: Final[Sequence[_Column]] = (
    (
        "channel_messages_delivered_ack_total",
        "counter",
        "Total number of messages delivered with acknowledgement",
        lambda one: one.totals.consumed - one.totals.delivered_auto,
    ),
    (
        "channel_messages_delivered_total",
        "counter",
        "Total number of messages delivered without acknowledgement",
        lambda one: one.totals.delivered_auto,
    ),
    (
        "channel_messages_redelivered_total",
        "counter",
        "Total number of messages redelivered to consumers",
        lambda one: one.totals.redelivered,
    ),
    (
        "channel_messages_acked_total",
        "counter",
        "Total number of messages acknowledged by consumers",
        lambda one: one.totals.acknowledged,
    ),
    (
        "channel_get_ack_total",
        "counter",
        "Total number of messages fetched with basic.get and acknowledged by hand",
        lambda one: one.totals.got - one.totals.got_auto,
    ),
    (
        "channel_get_total",
        "counter",
        "Total number of messages fetched with basic.get without acknowledgement",
        lambda one: one.totals.got_auto,
    ),
    (
        "channel_get_empty_total",
        "counter",
        "Total number of times basic.get fetched no message",
        lambda one: one.totals.get_empty,
    ),
)


def _subscription(entry: QueueEntry) -> Subscription:
    assert isinstance(entry.queue, Subscription)
    return entry.queue


_SUBSCRIPTION: Final[Sequence[_Column]] = (
    (
        "subscription_backlog_messages",
        "gauge",
        "Messages of a stream that wait for a subscription's consumers",
        lambda entry: entry.queue.ready_count,
    ),
    (
        "subscription_unacked_messages",
        "gauge",
        "Messages of a stream that a subscription's consumers have and did not settle",
        lambda entry: entry.queue.cursor.outstanding,
    ),
    (
        "subscription_lag_messages",
        "gauge",
        "Messages of a stream that a subscription has not settled",
        lambda entry: _subscription(entry).lag,
    ),
    (
        "subscription_head_age_seconds",
        "gauge",
        "Age of the oldest message that a subscription has not settled; 0 without one",
        lambda entry: (age_ms(_subscription(entry).log, _subscription(entry)) or 0) / 1000,
    ),
    (
        "subscription_consumers",
        "gauge",
        "Consumers of a subscription",
        lambda entry: entry.queue.consumer_count,
    ),
    (
        "subscription_paused",
        "gauge",
        "1 while a subscription is paused",
        lambda entry: float(_subscription(entry).paused),
    ),
)

_FAMILIES: Final = {
    "queue_coarse_metrics": ("queue", _QUEUE_COARSE),
    "queue_consumer_count": ("queue", _QUEUE_CONSUMERS),
    "queue_metrics": ("queue", (*_QUEUE_CONSUMERS, *_QUEUE_MORE)),
    "connection_coarse_metrics": ("connection", _CONNECTION),
    "connection_metrics": ("connection", _CONNECTION_MORE),
    "channel_metrics": ("channel", _CHANNEL),
    "channel_exchange_metrics": ("channel", _CHANNEL_EXCHANGE),
    "channel_queue_metrics": ("channel", _CHANNEL_QUEUE),
    "subscription_metrics": ("subscription", _SUBSCRIPTION),
}
"""By the names RabbitMQ has for them: what they are about, and their metrics. The last one is ours. The
messages of a channel are not divided by exchange or queue."""

_WHOLE: Final[Mapping[str, Callable[[Management], Iterator[Metric]]]] = {
    "connection_churn_metrics": totals.churn,
    "auth_attempt_metrics": totals.logins,
    "node_coarse_metrics": node.coarse,
    "node_metrics": node.limits,
    "node_persister_metrics": node.files,
}
"""Families of the gateway as a whole."""


async def per_object(api: Management) -> AsyncGenerator[bytes, None]:
    """Everything, for every object, and what is the gateway's as a whole."""
    lives = api.registry.connections()
    per_each = {prefixed for _, columns in _FAMILIES.values() for prefixed, *_ in columns}
    moved = totals.totals(api)
    shared = (one for one in aggregated(api, lives, moved) if one.name not in per_each)
    yield "".join((*written("rabbitmq_", shared), *written("", own(api)))).encode()
    async for text in _families(api, _FAMILIES, "rabbitmq_", None):
        yield text
    yield "".join(written("rabbitmq_", node.about(api, "per-object"))).encode()
    yield "".join(written("", node.started(api))).encode()


def aggregated(api: Management, lives: list[Live], moved: totals.ByProtocol) -> Iterator[Metric | Histogram]:
    """Everything that is one number for the gateway, or one per protocol and queue type."""
    yield from node.coarse(api)
    yield from node.limits(api)
    yield from node.alarms(api)
    yield from node.files(api)
    yield from totals.churn(api)
    yield from totals.connections(api, lives)
    yield from totals.channels(lives, moved)
    yield from totals.queues(api, moved)
    yield from totals.clients(lives, moved)
    yield from totals.logins(api)
    yield from totals.dead_letters(api)
    yield totals.sizes(moved["amqp091"])


async def detailed(
    api: Management, families: Iterable[str], vhosts: frozenset[str] | None
) -> AsyncGenerator[bytes, None]:
    """The families asked for, of the objects in `vhosts` (None: all); unknown ones give nothing."""
    asked = list(dict.fromkeys(families))
    for name in asked:
        if name in _WHOLE:
            yield "".join(written("rabbitmq_detailed_", _WHOLE[name](api))).encode()
        elif name in _CLUSTER:
            yield "".join(written("rabbitmq_cluster_", _CLUSTER[name](_vhosts(api, vhosts)))).encode()
    async for text in _families(api, asked, "rabbitmq_detailed_", vhosts):
        yield text
    yield "".join(written("rabbitmq_", node.about(api, "detailed"))).encode()


def _vhosts(api: Management, names: frozenset[str] | None) -> list[Vhost]:
    return [vhost for vhost in api.broker.vhosts.values() if names is None or vhost.name in names]


def _status(vhosts: list[Vhost]) -> Iterator[Metric]:
    told = "Whether a vhost is running"
    yield Metric("vhost_status", "gauge", told, (({"vhost": vhost.name}, 1) for vhost in vhosts))


def _exchanges(vhosts: list[Vhost]) -> Iterator[tuple[dict[str, str], Exchange]]:
    for vhost in vhosts:
        for name, exchange in vhost.exchanges.items():
            yield {"vhost": vhost.name, "exchange": name, "type": exchange.type}, exchange


def _exchange_names(vhosts: list[Vhost]) -> Iterator[Metric]:
    values = ((labels, 1) for labels, _ in _exchanges(vhosts))
    yield Metric("exchange_name", "gauge", "Exchanges there are", values)


def _exchange_bindings(vhosts: list[Vhost]) -> Iterator[Metric]:
    values = ((labels, len(exchange.bindings)) for labels, exchange in _exchanges(vhosts))
    yield Metric("exchange_bindings", "gauge", "Bindings of an exchange", values)


_CLUSTER: Final[Mapping[str, Callable[[list[Vhost]], Iterator[Metric]]]] = {
    "vhost_status": _status,
    "exchange_names": _exchange_names,
    "exchange_bindings": _exchange_bindings,
}
"""Families whose names begin with rabbitmq_cluster_."""


async def _families(
    api: Management, families: Iterable[str], prefix: str, vhosts: frozenset[str] | None
) -> AsyncGenerator[bytes, None]:
    wanted = [_FAMILIES[name] for name in dict.fromkeys(families) if name in _FAMILIES]
    lives = [live for live in api.registry.connections() if vhosts is None or live.info.vhost in vhosts]
    channels = [(live, channel) for live in lives for channel in live.info.channels]
    places = _vhosts(api, vhosts)
    entries = [entry for vhost in places for entry in vhost.entries() if entry.is_listed]
    streamed = [entry for vhost in places for entry in vhost.subscriptions.entries.values()]
    seen: set[str] = set()
    for about_what, columns in wanted:
        ours = about_what == "subscription"
        if ours:
            await heads_known(api.broker.log, (entry.queue for entry in streamed))
        for column, kind, text, value in columns:
            if column in seen:
                continue
            seen.add(column)
            name = ("penstock_" if ours else prefix) + column
            yield head(name, kind, text).encode()
            if about_what == "queue":
                rows = ((_of_queue(entry), value(entry)) for entry in entries if not entry.queue.deleted)
            elif ours:
                rows = ((_of_subscription(one), value(one)) for one in streamed if not one.queue.deleted)
            elif about_what == "connection":
                rows = ((_of_connection(live), value(live)) for live in lives)
            else:
                rows = ((_of_channel(*pair), value(pair[1])) for pair in channels)
            lines: list[str] = []
            for labels, number in rows:
                lines.append(sample(name, number, labels))
                if len(lines) == _AT_ONCE:
                    yield "".join(lines).encode()
                    lines.clear()
                    await asyncio.sleep(0)
            if lines:
                yield "".join(lines).encode()


def _of_queue(entry: QueueEntry) -> str:
    return labels_of({"vhost": entry.queue.vhost, "queue": entry.listed_name})


def _of_subscription(entry: QueueEntry) -> str:
    names = {"stream": entry.arguments["x-stream"], "subscription": entry.arguments["x-subscription"]}
    return labels_of({"vhost": entry.queue.vhost, **{name: str(value) for name, value in names.items()}})


def _of_connection(live: Live) -> str:
    return labels_of({"connection": live.name, "vhost": live.info.vhost, "user": live.info.user})


def _of_channel(live: Live, channel: ChannelInfo) -> str:
    return labels_of({"channel": f"{live.name} ({channel.number})", "vhost": live.info.vhost})
