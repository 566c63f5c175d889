"""Shared subscriptions: a group of sessions that share what one filter matches.

    $share/<group>/<filter>     each message to one member of the group (mqtt5:4.8.2)
    $queue/<filter>             the same with one group for all, called $queue
    $exclusive/<filter>         a group that has one member at most; it gets retained messages too

A group is one queue over the feed of its filter (`Vhost.shares`), with a consumer for each connected member:
by default one message per turn to each that has credit, else as `mqtt.shared_strategy` says. With a strategy
by hash each topic, or each publisher, has a member of its own (`subscriptions.dispatch.key_shared`).
A group exists while some session is subscribed; it is durable once a session that outlives its
connection is. While no member is connected messages wait in it, but for those of QoS 0 (unless
`mqtt.queue_qos0_messages`).

Messages that a member had under way when its connection was lost: QoS 1 goes to another member at once, QoS 2
stays the session's (`_ids`). After a restart the group's cursor gives those once more; `claims` says whose
they are.

Source: MQTT 5.0 section 4.8.2. 3.x clients may use them as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.mqtt.codec._deliver import Choice
from penstock.protocols.mqtt.codec._share_keys import publisher_slots
from penstock.protocols.mqtt.codec.reasons import Malformed
from penstock.subscriptions.dispatch.strategies import Kind

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.protocols.mqtt.clients.backlog import Backlog
    from penstock.protocols.mqtt.clients.clients import Client
    from penstock.protocols.mqtt.delivery.delivery import Delivery
    from penstock.protocols.mqtt.options import MqttOptions
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.dispatch.assignment import Range
    from penstock.subscriptions.queue.group import Group

__all__ = [
    "Member",
    "Share",
    "Shares",
    "Taken",
    "cursor_of",
    "filter_of",
    "is_exclusive",
    "is_shared",
    "split_shared",
]

_NEVER: Final = 2**64 - 1

_KINDS: Final = {
    "round-robin": Kind.SHARED,
    "random": Kind.RANDOM,
    "sticky": Kind.SINGLE,
    "hash-topic": Kind.KEY_SHARED,
    "hash-clientid": Kind.KEY_SHARED,
}
"""The kind of the group's queue for a strategy of the options."""


def is_shared(topic: str) -> bool:
    """Whether a filter is that of a shared subscription."""
    return topic.startswith(("$share/", "$queue/", "$exclusive/"))


def is_exclusive(topic: str) -> bool:
    """Whether a filter is that of the only subscriber."""
    return topic.startswith("$exclusive/")


def split_shared(topic: str) -> tuple[str, str]:
    """(group, filter) of the filter of a shared subscription.

    Raises:
        Malformed: the group is empty or has a wildcard, or the filter is empty (mqtt5:4.8.2-1, -2).

    """
    first, _, rest = topic.partition("/")
    group, _, topic_filter = rest.partition("/") if first == "$share" else (first, "/", rest)
    if not group or "+" in group or "#" in group or not topic_filter:
        raise Malformed("a shared subscription is $share/<group without wildcards>/<filter>")
    return group, topic_filter


def filter_of(topic: str) -> str:
    """The filter that is matched: the filter inside that of a shared subscription, else itself."""
    return split_shared(topic)[1] if is_shared(topic) else topic


def cursor_of(vhost: Vhost, qid: int) -> Cursor | None:
    """The cursor of the group whose queue has this number; None: the group is gone."""
    for entry in vhost.shares.entries.values():
        if entry.queue.qid == qid:
            return entry.queue.cursor
    return None


class Taken(Exception):
    """Another session has this exclusive filter."""


class Share:
    """One group and filter."""

    __slots__ = (
        "_keeps_qos0",
        "_log",
        "attached",
        "by_publisher",
        "claims",
        "members",
        "name",
        "queue",
        "vhost",
    )

    def __init__(self, vhost: Vhost, name: str, queue: Group, strategy: str, keeps_qos0: bool) -> None:
        self.vhost = vhost
        self.name = name
        self.queue = queue
        self.by_publisher = strategy == "hash-clientid"
        """Each publisher has a member of its own; so records must say who that was."""
        self.members: dict[tuple[Client, str], None] = {}
        """Sessions that are subscribed, each with the filter as it wrote it."""
        self.claims: dict[int, tuple[Client, int]] = {}
        """Of messages under way at QoS 2 since before a restart, by position: whose, and the packet id."""
        self.attached = 0
        """Members that are connected."""
        self._log = vhost.broker.log
        self._keeps_qos0 = keeps_qos0
        if not keeps_qos0:
            queue.cursor.skip_transient_until = _NEVER

    def attach(self, member: Member) -> None:
        """A member is connected."""
        if self.attached == 0 and not self._keeps_qos0:
            # Messages of QoS 0 that came while nobody was there are not kept for them.
            self.queue.cursor.skip_transient_until = self._log.appender.next_lsn
        self.attached += 1
        self.queue.attach(member)

    def detach(self, member: Member) -> None:
        """A member's connection is over, or it left; what it keeps at QoS 2 holds up nobody."""
        self.queue.abandon(member)
        self.queue.detach(member)
        self.attached -= 1
        if self.attached == 0 and not self._keeps_qos0:
            self.queue.cursor.skip_transient_until = _NEVER

    def claimed(self, found: list[tuple[int, int]]) -> None:
        """The cursor gave claimed positions: tell their owners, or settle what they are done with."""
        cursor = self.queue.cursor
        for lsn, seq in found:
            client, packet_id = self.claims.pop(lsn)
            cursor.unhold(seq)
            if not client.ids.inflight.found(packet_id, lsn, cursor, seq):
                cursor.settle(seq)
            elif client.connection is not None:
                client.connection.send_again()


class Member:
    """One connected member: an `QueueConsumer` of the group's queue."""

    priority = 0

    def __init__(self, delivery: Delivery, share: Share, choice: Choice, name: str) -> None:
        self.share = share
        self.name = name
        """The client id."""
        self.ranges: list[Range] = []
        self.choice = choice
        """The subscription's terms of delivery; replaced when its options change."""
        self._delivery = delivery

    def peer(self) -> str:
        """The connection's name."""
        return self._delivery.peer()

    def credit(self) -> int:
        """Messages it would take now."""
        return self._delivery.credit_at(self.choice.qos)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items of the cursor; how many were taken."""
        return self._delivery.deliver_shared(cursor, first, step, self)

    def slots(self, cursor: Cursor) -> Buffer:
        """By which key each message of the last take is told apart, where the strategy is one by hash."""
        return publisher_slots(cursor) if self.share.by_publisher else self._delivery.topic_slots(cursor)

    def void(self) -> None:
        """Groups go nowhere else."""

    def told(self, active: bool) -> None:
        """MQTT has no word for that."""

    def cancelled(self, reason: str) -> None:
        """The group ended, which it does with its last member: the session goes on."""


class Shares:
    """All groups of a broker."""

    def __init__(self, backlog: Backlog, options: MqttOptions) -> None:
        self._backlog = backlog
        self._keeps_qos0 = options.queue_qos0_messages
        self._strategy = options.shared_strategy
        self._strategies = dict(one.rpartition("=")[::2] for one in options.shared_strategy_of)
        self._all: dict[tuple[str, str], Share] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def member_count(self) -> int:
        """Memberships of all sessions, connected or not."""
        return sum(len(share.members) for share in self._all.values())

    def join(self, client: Client, topic: str) -> int:
        """Make the session a member; the LSN to wait for.

        Raises:
            RoutingError: it may not, or the filter has too many levels.
            Taken: the filter is exclusive, and another session has it.

        """
        vhost = client.vhost
        name, topic_filter = _name(topic)
        share = self._all.get((vhost.name, name))
        if share is not None and is_exclusive(topic):
            raise Taken(topic)
        if share is None:
            share = self._made(vhost, name, durable=client.persistent)
        try:
            lsn = vhost.shares.subscribe(name, topic_filter, client.identity)
        except Exception:
            if not share.members:
                self._ended(share)
            raise
        self._all[vhost.name, name] = share
        if client.persistent:
            lsn = max(lsn, vhost.shares.keep(name))
        self._add(share, client, topic)
        return lsn

    def _made(self, vhost: Vhost, name: str, *, durable: bool) -> Share:
        group, _ = split_shared(name)
        strategy = self._strategies.get(group, self._strategy)
        queue = vhost.shares.queue(name, durable=durable, kind=_KINDS[strategy])
        self._backlog.limit(vhost, queue, lambda: None)
        share = Share(vhost, name, queue, strategy, self._keeps_qos0)
        vhost.broker.origin_readers += share.by_publisher
        return share

    def _ended(self, share: Share) -> int:
        share.vhost.broker.origin_readers -= share.by_publisher
        return share.vhost.shares.delete(share.name)

    def _add(self, share: Share, client: Client, topic: str) -> None:
        share.members[client, topic] = None
        joined = client.shares
        if joined is None:
            joined = client.shares = {}
        joined[topic] = share
        client.joined(share)

    def leave(self, client: Client, topic: str) -> int:
        """The session is no member any more; with the last one the group ends. The LSN to wait for."""
        assert client.shares is not None
        share = client.shares.pop(topic)
        del share.members[client, topic]
        if share.members:
            return 0
        del self._all[share.vhost.name, share.name]
        return self._ended(share)

    # At start

    def restore(self, client: Client, topic: str) -> None:
        """The session was a member in the last run."""
        vhost = client.vhost
        name, _ = _name(topic)
        share = self._all.get((vhost.name, name))
        if share is None:
            share = self._all[vhost.name, name] = self._made(vhost, name, durable=True)
        self._add(share, client, topic)

    def restored(self, vhost: Vhost) -> None:
        """All members are back: groups without one end; what is under way is claimed for its session."""
        for name in vhost.shares.names():
            share = self._all.get((vhost.name, name))
            if share is None:
                vhost.shares.delete(name)
                continue
            for client, _ in share.members:
                for packet_id, lsn in client.ids.inflight.under_way(share.queue.cursor):
                    share.claims[lsn] = client, packet_id
                client.rest()


def _name(topic: str) -> tuple[str, str]:
    group, topic_filter = split_shared(topic)
    return f"$share/{group}/{topic_filter}", topic_filter
