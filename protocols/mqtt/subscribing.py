"""SUBSCRIBE and UNSUBSCRIBE on a session, and what a match of several subscriptions means.

A filter is a membership of the session's queue in the filter's feed, with a tag of its own; a record that
several filters match comes once, with the set of their tags (mqtt5:3.3.4-2 leaves the choice; one copy with
all identifiers is ours).

Source: MQTT 5.0 sections 3.8 to 3.11 and 3.3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.mqtt import packets, reasons
from penstock.protocols.mqtt._deliver import Choice
from penstock.protocols.mqtt.clients import Client, Clients
from penstock.protocols.mqtt.filters import FILTERS_MAX, check_filter, refusal_of
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.properties import encode_block
from penstock.protocols.mqtt.reasons import Violation
from penstock.protocols.mqtt.rows import Subscription
from penstock.router.errors import AccessRefused, InvalidPattern

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["choose", "ids_of", "subscribe", "unsubscribe"]


def subscribe(
    clients: Clients, options: MqttOptions, client: Client, packet: packets.Subscribe, version: int
) -> tuple[list[int], list[Subscription], int]:
    """Add or change the filters of a SUBSCRIBE.

    Returns:
        A result per filter (the QoS granted, or why not), the subscriptions that want retained messages,
        and the LSN that SUBACK waits for.

    Raises:
        MqttError: a filter that is none, or options that no filter may have.

    """
    for line in packet.filters:
        check_filter(line.topic)
        if line.no_local and line.topic.startswith("$share/"):
            raise Violation("no-local on a shared subscription")  # mqtt5:3.8.3-4
    results = []
    wanted = []
    lsn = 0
    for line in packet.filters:
        refusal = refusal_of(line.topic, options.max_topic_levels)
        if refusal:
            results.append(refusal)
            continue
        known = client.subscriptions.get(line.topic)
        if known is None and len(client.subscriptions) >= FILTERS_MAX:
            results.append(reasons.QUOTA_EXCEEDED)
            continue
        if known is None:
            try:
                joined = client.vhost.subscribe(
                    client.client_id, line.topic, client.next_tag, client.identity
                )
            except AccessRefused:
                results.append(reasons.NOT_AUTHORIZED)
                continue
            except InvalidPattern:
                results.append(reasons.TOPIC_FILTER_INVALID)
                continue
            lsn = max(lsn, joined.lsn)
            subscription = Subscription(line.topic, client.next_tag)
            client.next_tag += 1
            client.subscriptions[line.topic] = client.by_tag[subscription.tag] = subscription
        else:
            subscription = known
            clients.broker.no_local_sessions -= known.no_local
        clients.broker.no_local_sessions += line.no_local
        subscription.update(line, packet.subscription_id)
        lsn = max(lsn, clients.save_subscription(client, subscription))
        if line.retain_handling == 0 or (line.retain_handling == 1 and known is None):
            wanted.append(subscription)
        results.append(line.qos)
    return results, wanted, lsn


def unsubscribe(clients: Clients, client: Client, packet: packets.Unsubscribe) -> tuple[list[int], int]:
    """Remove filters; a result per filter and the LSN that UNSUBACK waits for.

    Raises:
        MqttError: a filter that is none.

    """
    for topic in packet.filters:
        check_filter(topic)
    results = []
    lsn = 0
    for topic in packet.filters:
        known = client.subscriptions.pop(topic, None)
        if known is None:
            results.append(reasons.NO_SUBSCRIPTION_EXISTED)
            continue
        del client.by_tag[known.tag]
        clients.broker.no_local_sessions -= known.no_local
        removed = client.vhost.unsubscribe(client.client_id, topic).lsn
        lsn = max(lsn, removed, clients.delete_subscription(client, topic))
        results.append(reasons.SUCCESS)
    return results, lsn


def choose(client: Client, tags: Iterable[int]) -> Choice | None:
    """What a record that matched these tags means for the session; None = not for it.

    The highest QoS of all that match (mqtt5:3.3.4-2), the identifiers of all (mqtt5:3.3.4-3). A filter that
    was unsubscribed does not count: what it still had waiting is not sent. For the session's own messages
    the filters with no-local do not count (mqtt5:3.8.3-3).
    """
    matching = [client.by_tag[tag] for tag in tags if tag in client.by_tag]
    if not matching:
        return None
    theirs = [s for s in matching if not s.no_local]
    if len(theirs) == len(matching):
        return _choice(matching)
    own = _choice(theirs) if theirs else None
    return _choice(matching, own, no_local=True)


def _choice(matching: list[Subscription], own: Choice | None = None, *, no_local: bool = False) -> Choice:
    return Choice(
        max(s.qos for s in matching),
        any(s.retain_as_published for s in matching),
        ids_of(s.identifier for s in matching),
        own,
        no_local,
    )


def ids_of(identifiers: Iterable[int]) -> bytes:
    """Subscription identifiers as properties; 0 is none."""
    return encode_block({"subscription_ids": [i for i in identifiers if i]})
