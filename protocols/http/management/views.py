"""Things of the broker as RabbitMQ's management API shows them: the keys, the types, the quirks.

A number that RabbitMQ leaves out while it is 0 is always there. Fields of Erlang only (reductions, garbage
collection, process memory) and those not counted here (bytes per queue, messages per exchange) are left out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.plots import Curve
from penstock.protocols.http.management.queue_totals import (
    LENGTHS,
    QUEUE_COUNTERS,
    queue_counters,
    queue_type,
)
from penstock.protocols.http.management.rates import TOTALS, total_counters, traffic_key
from penstock.protocols.http.shared.sparse_order import Sparse
from penstock.protocols.net.connection_info import ChannelInfo, ConsumerInfo, Totals
from penstock.router.arguments import encode_table
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.exchanges.exchanges import Exchange
from penstock.router.policies.policies import effective_definition
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.streams.lag import age_ms
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.protocols.listening.registry import Live
    from penstock.router.exchanges.entries import Binding
    from penstock.router.policies.policies import Policy, PolicyKind
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = [
    "MESSAGE_STATS",
    "BindingRow",
    "Bound",
    "Item",
    "binding",
    "bindings_from",
    "channel",
    "channel_curve",
    "connection",
    "connection_curve",
    "consumer",
    "consumers_of",
    "decoded_key",
    "exchange",
    "properties_key",
    "queue",
    "queue_curves",
    "queue_keys",
    "row_of",
    "session_bindings",
    "stats",
    "vhost",
    "vhost_lengths",
]

Item = dict[str, Any]

MESSAGE_STATS: Final = (
    "ack",
    "confirm",
    "deliver",
    "deliver_get",
    "deliver_no_ack",
    "drop_unroutable",
    "get",
    "get_empty",
    "get_no_ack",
    "publish",
    "redeliver",
    "return_unroutable",
)


def stats(names: Sequence[str], values: Sequence[int | float], rates: Sequence[float]) -> Item:
    """Each counter with its rate, as `x` and `x_details`."""
    shown: Item = {}
    for name, value, rate in zip(names, values, rates, strict=True):
        shown[name] = value
        shown[f"{name}_details"] = {"rate": rate}
    return shown


def message_stats(counted: Mapping[str, tuple[int, float]]) -> Item:
    """All message counters of RabbitMQ; those that `counted` does not have are 0: it did not happen."""
    pairs = [counted.get(name, (0, 0.0)) for name in MESSAGE_STATS]
    return stats(MESSAGE_STATS, [value for value, _ in pairs], [rate for _, rate in pairs])


_NO_STATS: Final[Item] = message_stats({})
"""Of which a queue that does not move has copies: a page has a hundred of them."""


_GROWTHS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "messages": (("publish", 1), ("ack", -1), ("deliver_no_ack", -1), ("get_no_ack", -1)),
    "messages_ready": (("publish", 1), ("deliver_get", -1)),
    "messages_unacknowledged": (("deliver", 1), ("get", 1), ("ack", -1)),
}
"""The counters that make a length grow (1) or shrink (-1)."""


def growths(names: Sequence[str], rates: Sequence[float]) -> dict[str, float]:
    """How fast the lengths of queues grow, by the rates of counters with these names."""
    by_name = dict(zip(names, rates, strict=True))
    return {
        length: sum(sign * by_name[name] for name, sign in counters) for length, counters in _GROWTHS.items()
    }


_POLICY_KINDS: Final[tuple[PolicyKind, PolicyKind]] = ("policy", "operator_policy")
_NO_GROWTHS: Final = growths(QUEUE_COUNTERS, (0.0,) * len(QUEUE_COUNTERS))


def stats_of_totals(totals: Totals, rates: Sequence[float]) -> Item:
    """Message statistics of totals, with the rates of `total_counters`."""
    return stats(TOTALS, total_counters(totals), rates)


def moment(seconds: float) -> str:
    """A time as RabbitMQ writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


# Queues


def _queue_stats(values: Sequence[int], rates: Sequence[float]) -> Item:
    """All message counters of a queue, of its `QUEUE_COUNTERS`."""
    shown = _NO_STATS.copy()
    if any(values) or any(rates):
        shown |= stats(QUEUE_COUNTERS, values, rates)
    return shown


def queue(api: Management, entry: QueueEntry, head_published_ms: Callable[[Queue], int | None]) -> Item:
    """A queue, or an MQTT session as one. `head_published_ms`: see `HeadTimes.of_request`."""
    found = entry.queue
    ready, unacked = found.ready_count, found.cursor.outstanding
    rates = api.sampler.rates(found, len(QUEUE_COUNTERS))
    growth = growths(QUEUE_COUNTERS, rates) if any(rates) else _NO_GROWTHS
    consumers = found.consumers
    kind = queue_type(entry)
    single = found.kind in (Kind.SINGLE, Kind.PREFERRED)
    active = consumers[0] if consumers else None
    tag = getattr(active, "tag", None)
    tag_text = tag.decode("utf-8", "replace") if isinstance(tag, bytes) else None
    has_credit = any(consumer.credit() > 0 for consumer in consumers[:100])
    utilisation = float(has_credit) if consumers else 0
    policy, operator = (_policy(api, of, entry) for of in _POLICY_KINDS)
    shown: Item = {
        "arguments": entry.arguments,
        "auto_delete": entry.auto_delete,
        "consumer_capacity": utilisation,
        "consumer_utilisation": utilisation,
        "consumers": found.consumer_count,
        "durable": entry.durable,
        "effective_policy_definition": effective_definition(policy, operator),
        "exclusive": entry.owner is not None or entry.kind == "session",
        "head_message_timestamp": None,
        "head_published_ms": head_published_ms(found) if ready or unacked else None,
        "kind": entry.kind,
        "message_stats": _queue_stats(queue_counters(found), rates),
        "messages": ready + unacked,
        "messages_details": {"rate": growth["messages"]},
        "messages_dropped": found.dropped,
        "messages_ready": ready,
        "messages_ready_details": {"rate": growth["messages_ready"]},
        "messages_unacknowledged": unacked,
        "messages_unacknowledged_details": {"rate": growth["messages_unacknowledged"]},
        "name": entry.listed_name,
        "node": api.node,
        "operator_policy": _name_of(operator),
        "policy": _name_of(policy),
        "state": "running",
        "type": kind if entry.kind == "queue" else "classic",
        "vhost": found.vhost,
    }
    if isinstance(found, Subscription):
        shown["subscription"] = {
            "stream": found.stream.name,
            "kind": found.arguments["x-subscription-kind"],
            "paused": found.paused,
            "lag": found.lag,
            "head_age_ms": age_ms(api.broker.log, found),
        }
    if kind == "classic":
        shown["exclusive_consumer_tag"] = tag_text if found.is_sole else None
        shown["single_active_consumer_tag"] = tag_text if single else None
    else:
        shown["leader"] = api.node
        shown["members"] = [api.node]
        shown["online"] = [api.node]
        shown["open_files"] = {api.node: 0}
        shown["single_active_consumer_ctag"] = tag_text if single else None
    return shown


def queue_keys(api: Management) -> dict[str, Callable[[QueueEntry], Any] | Sparse[QueueEntry]]:
    """How to read the columns that pages sort queues by, without making the row: as `queue` shows them."""
    rates_of, last, policy_names = api.sampler.rates_of_queue, api.sampler.queues.last, _policy_names(api)

    def moved() -> list[QueueEntry]:
        return [queue.data for queue in api.sampler.moved_queues() if isinstance(queue.data, QueueEntry)]

    def rate_of(at: int) -> Sparse[QueueEntry]:
        return Sparse(lambda entry: rates[at] if (rates := rates_of(entry.queue)) else 0.0, 0.0, moved)

    def growth_of(length: str) -> Sparse[QueueEntry]:
        def read(entry: QueueEntry) -> float:
            rates = rates_of(entry.queue)
            return growths(QUEUE_COUNTERS, rates)[length] if rates else 0.0

        return Sparse(read, 0.0, moved)

    def counter_of(at: int) -> Callable[[QueueEntry], int]:
        return lambda entry: last(entry)[at]

    keys: dict[str, Callable[[QueueEntry], Any] | Sparse[QueueEntry]] = {
        "messages": lambda entry: entry.queue.ready_count + entry.queue.cursor.outstanding,
        "messages_ready": lambda entry: entry.queue.ready_count,
        "messages_unacknowledged": lambda entry: entry.queue.cursor.outstanding,
        "messages_dropped": lambda entry: entry.queue.dropped,
        "consumers": lambda entry: entry.queue.consumer_count,
        "durable": lambda entry: entry.durable,
        "auto_delete": lambda entry: entry.auto_delete,
        "type": lambda entry: queue_type(entry) if entry.kind == "queue" else "classic",
        "state": lambda entry: "running",
        "exclusive": lambda entry: entry.owner is not None or entry.kind == "session",
        "policy": lambda entry: policy_names(entry)[1],
        "operator_policy": lambda entry: policy_names(entry)[2],
        # RabbitMQ's page sorts by these, too; here no queue has them.
        **dict.fromkeys(("memory", "message_bytes", "head_message_timestamp"), lambda entry: None),
    }
    for length in _GROWTHS:
        keys[f"{length}_details.rate"] = growth_of(length)
    for at, name in enumerate(QUEUE_COUNTERS):
        keys[f"message_stats.{name}"] = counter_of(at)
        keys[f"message_stats.{name}_details.rate"] = rate_of(at)
    return keys


_LENGTH_NAMES: Final = (
    ("",) * len(QUEUE_COUNTERS) + LENGTHS,
    ("",) * len(QUEUE_COUNTERS) + ("messages",) * 2,
)


def queue_curves(api: Management, entry: QueueEntry) -> tuple[Curve, tuple[Curve, ...]]:
    """The history of a queue's counters, and of its lengths."""
    found = entry.queue
    values = (*queue_counters(found), found.ready_count, found.cursor.outstanding)
    counters = api.curve(found, (*QUEUE_COUNTERS, "", ""), values)
    return counters, tuple(api.curve(found, names, values) for names in _LENGTH_NAMES)


def vhost_lengths(api: Management, found: Vhost) -> tuple[Curve, ...]:
    """The history of the lengths of all queues of a vhost."""
    sums = api.sampler.queues.of_vhost(found.name)
    values = sums.values
    return tuple(api.curve(("vhost", found.name), names, values) for names in _LENGTH_NAMES)


def vhost_traffic(api: Management, found: Vhost) -> Curve:
    """The history of what the connections of a vhost moved."""
    names = (*TOTALS, "recv_oct", "send_oct")
    return api.curve(traffic_key(found.name), names, api.sampler.traffic(found.name))


def connection_curve(api: Management, live: Live) -> Curve:
    """The history of a connection's bytes."""
    one = live.connection
    values = (*total_counters(live.info.totals), one.bytes_in, one.bytes_out)
    return api.curve(one.id, ("",) * len(TOTALS) + ("recv_oct", "send_oct"), values)


def channel_curve(api: Management, live: Live, one: ChannelInfo) -> Curve:
    """The history of a channel's messages."""
    return api.curve((live.connection.id, one.number), TOTALS, total_counters(one.totals))


def _policy(api: Management, kind: PolicyKind, entry: QueueEntry) -> Policy | None:
    """The policy of this kind that a queue has."""
    vhost = api.broker.vhosts.get(entry.queue.vhost)  # None: it went while the list was made
    if vhost is None or not vhost.policies.any(kind):
        return None
    return vhost.policies.of(kind, entry.listed_name, queue_type(entry))


def _name_of(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name


def _policy_names(api: Management) -> Callable[[QueueEntry], tuple[int, str | None, str | None]]:
    """How often the policies of a queue's vhost had changed, and the names of the two that it has.

    The queue remembers them until a policy changes: to search a pattern in a name takes some microseconds.
    """
    vhosts = api.broker.vhosts

    def read(entry: QueueEntry) -> tuple[int, str | None, str | None]:
        vhost = vhosts.get(entry.queue.vhost)
        if vhost is None:  # it went while the list was made
            return 0, None, None
        known = entry.policy_names
        if known is None or known[0] != vhost.policies.changes:
            policy, operator = (_name_of(_policy(api, kind, entry)) for kind in _POLICY_KINDS)
            known = entry.policy_names = vhost.policies.changes, policy, operator
        return known

    return read


# Exchanges and bindings


def exchange(found: Exchange, vhost_name: str) -> Item:
    """An exchange."""
    return {
        "arguments": found.arguments,
        "auto_delete": found.auto_delete,
        "durable": found.durable,
        "internal": found.internal,
        "name": found.name,
        "type": found.type,
        "user_who_performed_action": "none",
        "vhost": vhost_name,
    }


def properties_key(routing_key: str, arguments: Mapping[str, object]) -> str:
    """The key that tells a binding from others between the same two ends."""
    key = quote_plus(routing_key.encode("utf-8", "surrogateescape")).replace("~", "%7E")
    if arguments:
        digest = hashlib.blake2b(encode_table(arguments), digest_size=6).digest()
        return f"{key}~{base64.urlsafe_b64encode(digest).decode('ascii')}"
    return key or "~"


def decoded_key(key: str) -> str:
    """A properties key as it is in a path once that is decoded."""
    return unquote_plus(key)


class BindingRow(NamedTuple):
    """A binding of an exchange that has a name, as lists have it before they show it."""

    vhost: str
    source: str
    destination: str
    kind: str
    """"queue" or "exchange"."""
    key: str
    arguments: Mapping[str, object]

    @classmethod
    def of(cls, found: Binding, vhost_name: str) -> BindingRow:
        """That of a binding."""
        destination = found.destination
        if isinstance(destination, Exchange):
            kind, name = "exchange", destination.name
        else:
            kind, name = "queue", destination.listed_name
        return cls(vhost_name, found.source.name, name, kind, found.key, found.arguments)


Bound = BindingRow | QueueEntry
"""A binding in a list; a queue stands for the one that it has to the default exchange."""


def row_of(bound: Bound) -> BindingRow:
    """The ends, the key and the arguments of a binding."""
    if isinstance(bound, BindingRow):
        return bound
    return BindingRow(bound.queue.vhost, "", bound.name, "queue", bound.name, {})


def binding(bound: Bound) -> Item:
    """A binding."""
    row = row_of(bound)
    return {
        "source": row.source,
        "vhost": row.vhost,
        "destination": row.destination,
        "destination_type": row.kind,
        "routing_key": row.key,
        "arguments": row.arguments,
        "properties_key": properties_key(row.key, row.arguments),
    }


def bindings_from(source: Exchange, vhost: Vhost) -> Iterator[BindingRow]:
    """The bindings of an exchange that has a name, with those of MQTT sessions. They may change meanwhile."""
    for one in list(source.bindings.values()):
        yield BindingRow.of(one, vhost.name)
    if source is vhost.mqtt_exchange:
        for session in list(vhost.sessions.entries.values()):
            yield from session_bindings(session, vhost)


def session_bindings(session: QueueEntry, vhost: Vhost) -> list[BindingRow]:
    """The filters of an MQTT session as bindings."""
    source, name = vhost.mqtt_exchange.name, session.listed_name
    topics = vhost.sessions.topics(session.name)
    return [BindingRow(vhost.name, source, name, "queue", topic, {}) for topic in topics]


# Connections, channels, consumers


def peer_of(live: Live) -> tuple[str, int]:
    """Address and port of the client."""
    host, _, port = live.connection.peer.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def connection(api: Management, live: Live) -> Item:
    """A connection of an AMQP or MQTT client."""
    one, info = live.connection, live.info
    host, port = peer_of(live)
    received, sent = api.sampler.rates(one.id, len(TOTALS) + 2)[-2:]
    transport = one.transport
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    version, cipher = (tls.version(), tls.cipher()) if tls is not None else (None, None)
    return {
        "auth_mechanism": info.mechanism,
        "channel_max": info.channel_max,
        "channels": len(info.channels),
        "client_properties": info.client_properties,
        "connected_at": int(one.opened_at * 1000),
        "frame_max": info.frame_max,
        "host": one.server_address[0],
        "name": live.name,
        "node": api.node,
        "peer_cert_issuer": None,
        "peer_cert_subject": None,
        "peer_cert_validity": None,
        "peer_host": host,
        "peer_port": port,
        "port": one.server_address[1],
        "protocol": info.protocol,
        "recv_cnt": one.reads,
        "recv_oct": one.bytes_in,
        "recv_oct_details": {"rate": received},
        "send_cnt": one.writes,
        "send_oct": one.bytes_out,
        "send_oct_details": {"rate": sent},
        "send_pend": one.out.size,
        "ssl": tls is not None,
        "ssl_cipher": cipher[0] if cipher else None,
        "ssl_hash": None,
        "ssl_key_exchange": None,
        "ssl_protocol": version.lower() if version else None,
        "state": info.state,
        "timeout": info.timeout_s,
        "type": "network",
        "user": info.user,
        "user_who_performed_action": info.user,
        "user_provided_name": info.client_properties.get("connection_name"),
        "variable_map": {"client_id": info.client_id} if info.client_id else {},
        "vhost": info.vhost,
    }


def channel_details(api: Management, live: Live, number: int) -> Item:
    """Where a consumer is."""
    host, port = peer_of(live)
    return {
        "connection_name": live.name,
        "name": f"{live.name} ({number})",
        "node": api.node,
        "number": number,
        "peer_host": host,
        "peer_port": port,
        "user": live.info.user,
    }


def channel(api: Management, live: Live, one: ChannelInfo) -> Item:
    """A channel."""
    host, port = peer_of(live)
    rates = api.sampler.rates((live.connection.id, one.number), len(TOTALS))
    return {
        "acks_uncommitted": 0,
        "confirm": one.confirm,
        "connection_details": {"name": live.name, "peer_host": host, "peer_port": port},
        "consumer_count": len(one.consumers),
        "consumer_details": [consumer(api, live, one.number, each) for each in one.consumers],
        "global_prefetch_count": one.global_prefetch,
        "idle_since": moment(live.connection.opened_at),
        "message_stats": stats_of_totals(one.totals, rates),
        "messages_unacknowledged": one.unacknowledged,
        "messages_uncommitted": one.uncommitted,
        "messages_unconfirmed": one.unconfirmed,
        "name": f"{live.name} ({one.number})",
        "node": api.node,
        "number": one.number,
        "pending_raft_commands": 0,
        "prefetch_count": one.prefetch,
        "state": "flow" if live.info.state == "flow" else "running",
        "transactional": one.transactional,
        "user": live.info.user,
        "user_who_performed_action": live.info.user,
        "vhost": live.info.vhost,
    }


def _consumer_timeout(api: Management, vhost: str, queue: str) -> int:
    """Milliseconds in which a delivery of a queue must be acknowledged; 0: there is no such time.

    Never null, which strict clients (rabbitmqadmin-ng) refuse.
    """
    found = api.broker.vhosts.get(vhost)
    entry = found.queues.get(queue) if found is not None else None
    value = entry.effective.get("x-consumer-timeout") if entry is not None else None
    return value if isinstance(value, int) else 0


def consumers_of(live: Live) -> Iterator[tuple[int, ConsumerInfo]]:
    """The consumers of a connection, each with the number of its channel; 0: its protocol has none."""
    for channel in live.info.channels:
        for one in channel.consumers:
            yield channel.number, one
    for one in live.info.consumers:
        yield 0, one


def _activity(one: ConsumerInfo) -> str:
    if not one.active:
        return "waiting"
    return "single_active" if one.single else "up"


def consumer(api: Management, live: Live, number: int, one: ConsumerInfo) -> Item:
    """A consumer."""
    return {
        "arguments": one.arguments,
        "ack_required": one.ack_required,
        "active": one.active,
        "activity_status": _activity(one),
        "channel_details": channel_details(api, live, number),
        "consumer_tag": one.tag,
        "consumer_timeout": _consumer_timeout(api, live.info.vhost, one.queue),
        "exclusive": one.exclusive,
        "prefetch_count": one.prefetch,
        "queue": {"name": one.queue, "vhost": live.info.vhost},
    }


# Vhosts


def vhost(api: Management, found: Vhost, lives: Sequence[Live]) -> Item:
    """A vhost with the totals of its queues and connections."""
    sums = api.sampler.queues.of_vhost(found.name)
    rates = api.sampler.rates(("vhost", found.name), len(QUEUE_COUNTERS))
    growth = growths(QUEUE_COUNTERS, rates)
    ready, unacked = sums.ready, sums.unacked
    received = sent = 0
    totals = Totals()
    flows = [0.0] * (len(TOTALS) + 2)
    for live in lives:
        if live.info.vhost == found.name:
            totals.add(live.info.totals)
            received += live.connection.bytes_in
            sent += live.connection.bytes_out
            of_one = api.sampler.rates(live.connection.id, len(flows))
            flows = [a + b for a, b in zip(flows, of_one, strict=True)]
    counted = dict(zip(TOTALS, zip(total_counters(totals), flows[:-2], strict=True), strict=True))
    # Its queues know what went through them after a connection is gone, too.
    moved = zip(sums.values[1 : len(rates)], rates[1:], strict=True)
    counted |= dict(zip(QUEUE_COUNTERS[1:], moved, strict=True))
    return {
        "cluster_state": {api.node: "running"},
        "default_queue_type": found.metadata.default_queue_type or "undefined",
        "description": found.metadata.description,
        "log_bytes": api.broker.log.held_bytes(found.lp),
        "message_stats": message_stats(counted),
        "messages": ready + unacked,
        "messages_details": {"rate": growth["messages"]},
        "messages_ready": ready,
        "messages_ready_details": {"rate": growth["messages_ready"]},
        "messages_unacknowledged": unacked,
        "messages_unacknowledged_details": {"rate": growth["messages_unacknowledged"]},
        "metadata": {"description": found.metadata.description, "tags": list(found.metadata.tags)},
        "name": found.name,
        "recv_oct": received,
        "recv_oct_details": {"rate": flows[-2]},
        "send_oct": sent,
        "send_oct_details": {"rate": flows[-1]},
        "tags": list(found.metadata.tags),
        "tracing": found.firehose.is_on,
        "worker": api.broker.options.worker,
    }
