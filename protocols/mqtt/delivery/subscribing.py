"""SUBSCRIBE and UNSUBSCRIBE on a session, and what a match of several subscriptions means.

A record that several filters match comes once, with the set of their tags (mqtt5:3.3.4-2 leaves the choice;
one copy with all identifiers is ours). A tag stands for what filters ask alike: see `filterset`.

Source: MQTT 5.0 sections 3.8 to 3.11 and 3.3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.mqtt.clients.clients import Client, Clients, permit
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec._deliver import Choice
from penstock.protocols.mqtt.codec.properties import encode_block
from penstock.protocols.mqtt.codec.reasons import MqttError, Violation
from penstock.protocols.mqtt.delivery.replays import Replays, is_replay
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.publishing.sys_topics import is_sys
from penstock.protocols.mqtt.subscriptions.filters import FILTERS_MAX, check_filter, refusal_of
from penstock.protocols.mqtt.subscriptions.filterset import Subscription, Terms
from penstock.protocols.mqtt.subscriptions.shared import (
    Taken,
    filter_of,
    is_exclusive,
    is_shared,
    split_shared,
)
from penstock.router.errors import AccessRefused, InvalidPattern

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["choice_of_shared", "choose", "ids_of", "restore", "subscribe", "unsubscribe"]


def subscribe(
    clients: Clients,
    options: MqttOptions,
    client: Client,
    replays: Replays,
    packet: packets.Subscribe,
    version: int,
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
        if is_shared(line.topic):
            split_shared(line.topic)
            if line.no_local and not is_exclusive(line.topic):
                raise Violation("no-local on a shared subscription")  # mqtt5:3.8.3-4
    results = []
    wanted = []
    lsn = 0
    with client.vhost.sessions.changing(client.client_id) as kept:
        for line in packet.filters:
            if is_replay(line.topic):
                results.append(replays.subscribe(line, packet.subscription_id))
                continue
            refusal = refusal_of(line.topic)
            if refusal:
                results.append(refusal)
                continue
            known = client.subscriptions.get(line.topic)
            if known is None and len(client.subscriptions) >= FILTERS_MAX:
                results.append(reasons.QUOTA_EXCEEDED)
                continue
            try:
                if known is None:
                    subscription, joined = _add(clients, client, line, packet.subscription_id)
                else:
                    subscription, joined = _change(clients, client, known, line, packet.subscription_id)
            except AccessRefused:
                results.append(reasons.NOT_AUTHORIZED)
                continue
            except Taken:
                results.append(reasons.QUOTA_EXCEEDED)
                continue
            except InvalidPattern:
                results.append(reasons.TOPIC_FILTER_INVALID)
                continue
            lsn = max(lsn, joined)
            if is_shared(line.topic) and not is_exclusive(line.topic):
                pass  # mqtt5:4.8.2: the group gets no retained messages
            elif line.retain_handling == 0 or (line.retain_handling == 1 and known is None):
                wanted.append(subscription)
            results.append(line.qos)
    clients.tick.schedule()
    return results, wanted, max(lsn, kept.lsn)


def restore(
    clients: Clients, options: MqttOptions, client: Client, lines: Iterable[tuple[packets.Filter, int]]
) -> int:
    """Give a new session its filters, each with its subscription identifier; the LSN to wait for.

    Raises:
        AccessRefused: its user may not read that.
        MqttError: a filter that is none, or that another session has for itself.

    """
    lsn = 0
    with client.vhost.sessions.changing(client.client_id) as kept:
        for line, identifier in lines:
            try:
                check_filter(line.topic)
                if is_shared(line.topic):
                    split_shared(line.topic)
            except MqttError as error:
                raise Violation(f"'{line.topic}': {error.message}") from error
            if refusal_of(line.topic) or is_replay(line.topic):
                raise Violation(f"'{line.topic}' is no filter that a session can keep")
            if len(client.subscriptions) >= FILTERS_MAX:
                raise Violation(f"a session has {FILTERS_MAX} filters at most")
            if line.topic in client.subscriptions:
                continue
            try:
                lsn = max(lsn, _add(clients, client, line, identifier)[1])
            except (Taken, InvalidPattern) as error:
                raise Violation(f"'{line.topic}': {error}") from error
    clients.tick.schedule()
    return max(lsn, kept.lsn)


def _add(clients: Clients, client: Client, line: packets.Filter, identifier: int) -> tuple[Subscription, int]:
    if is_sys(filter_of(line.topic)):
        permit(client, line.topic, client.identity)
    lsn = clients.shares.join(client, line.topic) if is_shared(line.topic) else 0
    terms = client.filters.terms_of(line, identifier)
    subscription = Subscription(line.topic, terms, line.retain_handling)
    lsn = max(lsn, _bind(client, subscription))
    client.filters.add(subscription)
    clients.count_no_local(client, int(line.no_local))
    return subscription, lsn


def _change(
    clients: Clients, client: Client, known: Subscription, line: packets.Filter, identifier: int
) -> tuple[Subscription, int]:
    permit(client, line.topic, client.identity)
    clients.count_no_local(client, line.no_local - known.no_local)
    client.filters.change(known, line, identifier)
    return known, _bind(client, known)


def _bind(client: Client, subscription: Subscription) -> int:
    return client.vhost.sessions.subscribe(
        client.client_id,
        subscription.topic,
        subscription.terms.tag,
        client.identity,
        subscription.options,
        subscription.kind,
    ).lsn


def unsubscribe(
    clients: Clients, client: Client, replays: Replays, packet: packets.Unsubscribe
) -> tuple[list[int], int]:
    """Remove filters; a result per filter and the LSN that UNSUBACK waits for.

    Raises:
        MqttError: a filter that is none.

    """
    for topic in packet.filters:
        check_filter(topic)
    results = []
    lsn = 0
    with client.vhost.sessions.changing(client.client_id) as kept:
        for topic in packet.filters:
            if is_replay(topic):
                ended = replays.unsubscribe(topic)
                results.append(reasons.SUCCESS if ended else reasons.NO_SUBSCRIPTION_EXISTED)
                continue
            if topic not in client.subscriptions:
                results.append(reasons.NO_SUBSCRIPTION_EXISTED)
                continue
            lsn = max(lsn, clients.unsubscribe(client, topic))
            results.append(reasons.SUCCESS)
    return results, max(lsn, kept.lsn)


def choose(client: Client, tags: Iterable[int]) -> Choice | None:
    """The terms of delivery of a record that matched these tags; None = it is not for the session.

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


def choice_of_shared(subscription: Subscription) -> Choice:
    """The terms of delivery of a shared subscription."""
    return _choice([subscription.terms], no_local=subscription.no_local)


def _choice(matching: list[Terms], own: Choice | None = None, *, no_local: bool = False) -> Choice:
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
