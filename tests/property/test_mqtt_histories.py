"""Random histories of publishers and subscribers over drops, take-overs, stops and kills of the gateway.

Publishers have wills, and retain some of what they publish. Subscribers take a filter more and take it back,
start clean, stay away until their session has expired; some share a subscription.

Every client keeps the state that the specification asks of it and nothing else; every packet under way is
lost when a connection or the gateway goes. In every history, for each subscriber, by the lower of the
published and the granted QoS:

- QoS 2 arrives exactly once, QoS 1 at least once, QoS 0 at most once;
- a message comes without DUP at most as often as its publisher sent it, and never while it is unacknowledged
  on the same connection;
- first arrivals from one publisher on one topic and QoS are in the order of publishing, but where QoS 0 was
  granted for what is published above it;
- what is unacknowledged stays within the receive maximum, and a packet id means one message until it is
  released;
- all of that holds for a will too, which goes out once for each connection that ended without DISCONNECT;
- what a group shares comes to one of its members: at QoS 2 exactly once, at QoS 1 at least once;
- the last message that was retained is what a new subscriber finds.

A message may come or not if it was published before the subscription, or not delivered before its end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from tests.reference import mqtt_frames as f
from tests.support.examples import FUZZING, histories
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"
TOPICS = ("t/a", "t/b")
EXTRA = "x/a"
"""The filter that subscribers add and remove meanwhile."""
KEPT = "r/{}"
"""Where a publisher retains, by its name."""
WILL = "w"
ALL = (*TOPICS, EXTRA, WILL, KEPT.format("pub0"), KEPT.format("pub1"))
FILTERS = {"t/a": ("t/a",), "t/+": TOPICS, "#": ALL}
SHARED = "$share/g/t/+"
MEMORY = Path("/dev/shm")
"""Where a sync costs nothing: a kill is a copy of the files, so the disk is not what is tested."""
PACKET_IDS = 40
"""Of a publisher: few, so that they come round."""


class Client:
    """A client with a session that outlives its connections."""

    def __init__(self, name: str, version: int, props: bytes = b"") -> None:
        self.name = name
        self.version = version
        self.props = EXPIRY + props if version == 5 else b""
        self.peer: Peer | None = None
        self.known = False
        """The gateway has its session."""

    def connect(self, gateway: Gateway, **options: Any) -> None:
        """Connect, again perhaps: then the older connection is taken over or has been lost."""
        options.setdefault("clean", False)
        self.peer = gateway.connect(self.name, self.version, props=self.props, **options)
        assert self.peer.session_present == (self.known and not options["clean"])
        self.known = True

    def send(self, packet: bytes) -> None:
        assert self.peer is not None
        self.peer.send(packet, settle=False)

    def taken(self, limit: int) -> list[f.Packet]:
        """At most `limit` of the packets that came."""
        assert self.peer is not None
        found, self.peer.received = self.peer.received[:limit], self.peer.received[limit:]
        return found


class Publisher(Client):
    """Numbers its messages by topic and QoS; keeps what is not acknowledged, in order."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, version)
        self.numbers: Counter[tuple[str, int]] = Counter()
        self.times: Counter[bytes] = Counter()
        """How often a message was sent, by its payload."""
        self.next_id = 1
        self.open: dict[int, tuple[str, int, bytes]] = {}
        """Packet id -> (topic, QoS, payload) not yet past PUBACK or PUBREC."""
        self.released: list[int] = []
        """Packet ids for which PUBREL was sent and PUBCOMP is awaited."""
        self.will = b""
        """Of this connection, by its payload."""
        self.kept = b""
        """The last retained payload."""

    def connect(self, gateway: Gateway, **options: Any) -> None:
        qos = 1 + self.numbers[WILL, 1] % 2
        number = self.numbers[WILL, 1] + 1
        will = f"{self.name} {WILL} {qos} {number}".encode()
        super().connect(gateway, will=(WILL, will, qos, False), **options)
        self.numbers[WILL, 1] = number
        self.will = will
        for packet_id, message in self.open.items():
            self.write(packet_id, *message, dup=True)
        for packet_id in self.released:
            self.send(f.ack(f.PUBREL, packet_id))

    def write(self, packet_id: int, topic: str, qos: int, payload: bytes, *, dup: bool = False) -> None:
        self.times[payload] += 1
        props = b"" if self.version == 5 else None
        retain = topic == KEPT.format(self.name)
        self.send(
            f.publish(topic, payload, qos=qos, packet_id=packet_id, dup=dup, props=props, retain=retain)
        )

    def ended(self) -> bytes:
        """The connection ended without DISCONNECT: the payload of the will that is due."""
        will, self.will = self.will, b""
        self.times[will] += 1
        return will

    def publish(self, topic: str, qos: int) -> bytes:
        """The payload; b"" when all packet ids are taken."""
        packet_id = self.next_id if qos else 0
        if packet_id in self.open or packet_id in self.released:
            return b""
        self.numbers[topic, qos] += 1
        payload = f"{self.name} {topic} {qos} {self.numbers[topic, qos]}".encode()
        if qos:
            self.next_id = self.next_id % PACKET_IDS + 1
            self.open[packet_id] = (topic, qos, payload)
        if topic == KEPT.format(self.name):
            self.kept = payload
        self.write(packet_id, topic, qos, payload)
        return payload

    def read(self, limit: int) -> None:
        for packet in self.taken(limit):
            packet_id, reason = f.parse_ack(packet, self.version)
            assert reason in (0, 0x10) or (packet.kind == f.PUBCOMP and reason == 0x92)
            if packet.kind == f.PUBCOMP:
                if packet_id in self.released:
                    self.released.remove(packet_id)
                continue
            self.open.pop(packet_id, None)
            if packet.kind == f.PUBREC:
                if packet_id not in self.released:
                    self.released.append(packet_id)
                self.send(f.ack(f.PUBREL, packet_id))

    @property
    def idle(self) -> bool:
        return not self.open and not self.released


class Subscriber(Client):
    """Takes messages and acknowledges them in order; keeps the ids of QoS 2 messages until PUBREL."""

    def __init__(self, name: str, version: int, topic_filter: str, qos: int, window: int) -> None:
        super().__init__(name, version, b"\x21" + window.to_bytes(2, "big"))
        self.topic_filter = topic_filter
        self.qos = qos
        self.window = window if version == 5 else 65535
        self.got: list[bytes] = []
        """The payloads that the application got, in order."""
        self.fresh: Counter[bytes] = Counter()
        """How often each message came without DUP."""
        self.holding: dict[int, bytes] = {}
        """QoS 2: packet id -> message, until PUBREL."""
        self.unanswered: list[bytes] = []
        """Acknowledgements that were not sent yet."""
        self.unacknowledged: dict[int, bytes] = {}
        """Of this connection: packet id -> message, until our last word for it was sent."""
        self.must: set[bytes] = set()
        """The payloads that must come, as far as their QoS promises."""
        self.has_extra = False

    def connect(self, gateway: Gateway, **options: Any) -> None:
        super().connect(gateway, **options)
        self.unanswered.clear()
        self.unacknowledged.clear()

    def wants(self, topic: str) -> bool:
        return topic in FILTERS[self.topic_filter] or (topic == EXTRA and self.has_extra)

    def subscribe(self, topic: str) -> None:
        """Without what is retained, where that can be said."""
        assert self.peer is not None
        options = self.qos | (0x20 if self.version == 5 else 0)
        before, self.peer.received = self.peer.received, []
        self.peer.send(f.subscribe(9, (topic, options), version=self.version))
        (suback,) = [packet for packet in self.peer.received if packet.kind == f.SUBACK]
        assert suback.body[-1] == self.qos
        self.peer.received = before + [one for one in self.peer.received if one is not suback]

    def unsubscribe(self, topic: str) -> None:
        assert self.peer is not None
        self.peer.send(f.unsubscribe(9, topic, version=self.version))
        (unsuback,) = [packet for packet in self.peer.received if packet.kind == f.UNSUBACK]
        self.peer.received.remove(unsuback)

    def begin_anew(self, gateway: Gateway, **options: Any) -> None:
        """Connect without the session of before."""
        self.connect(gateway, **options)
        self.got.clear()
        self.fresh.clear()
        self.holding.clear()
        self.must.clear()
        self.has_extra = False
        self.subscribe(self.topic_filter)

    def read(self, limit: int) -> None:
        for packet in self.taken(limit):
            if packet.kind == f.PUBREL:
                packet_id, _ = f.parse_ack(packet, self.version)
                self.holding.pop(packet_id, None)
                self.unacknowledged.setdefault(packet_id, b"")
                self.unanswered.append(f.ack(f.PUBCOMP, packet_id))
            else:
                self.take(f.parse_publish(packet, self.version))
            assert len(self.unacknowledged) <= self.window

    def take(self, message: f.Publish) -> None:
        published = int(message.payload.split()[2])
        assert message.qos == min(published, self.qos)
        if not message.qos:
            assert not message.dup
        else:
            assert message.packet_id not in self.unacknowledged, "sent twice on one connection"
            self.unacknowledged[message.packet_id] = message.payload
        self.fresh[message.payload] += not message.dup and not message.retain
        if message.qos == 2:
            self.unanswered.append(f.ack(f.PUBREC, message.packet_id))
            held = self.holding.get(message.packet_id)
            if held is not None:
                assert held == message.payload, "the packet id of another message that is not released"
                return
            self.holding[message.packet_id] = message.payload
        elif message.qos == 1:
            self.unanswered.append(f.ack(f.PUBACK, message.packet_id))
        if not message.retain:
            self.got.append(message.payload)

    def acknowledge(self, limit: int) -> None:
        now, self.unanswered = self.unanswered[:limit], self.unanswered[limit:]
        for answer in now:
            packet_id = int.from_bytes(answer[2:4], "big")
            if answer[0] >> 4 != f.PUBREC:
                self.unacknowledged.pop(packet_id, None)
            self.send(answer)


class Histories(RuleBasedStateMachine):
    """See the module's text; what must hold is checked as packets come and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.generation = self.kills = 0
        self.gateway = Gateway(self.folder / "0", fsync="group")
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.members: list[Subscriber] = []
        """Of the group."""

    subscribers_drawn = st.tuples(
        st.sampled_from([4, 5, 5]),
        st.sampled_from(sorted(FILTERS)),
        st.integers(0, 2),
        st.sampled_from([1, 3, 100]),
    )
    members_drawn = st.tuples(
        st.sampled_from([4, 5, 5]), st.just(SHARED), st.integers(0, 2), st.sampled_from([1, 3, 100])
    )

    @initialize(
        drawn=st.lists(subscribers_drawn, min_size=1, max_size=3),
        group=st.lists(members_drawn, max_size=2),
    )
    def begin(self, drawn: list[tuple[int, str, int, int]], group: list[tuple[int, str, int, int]]) -> None:
        group_qos = {qos for _, _, qos, _ in group}
        if len(group_qos) > 1:
            # At what QoS a message comes depends on whose turn it is: all of them have one.
            group = [(version, topic, min(group_qos), window) for version, topic, _, window in group]
        for i, (version, topic_filter, qos, window) in enumerate(drawn + group):
            subscriber = Subscriber(f"sub{i}", version, topic_filter, qos, window)
            subscriber.connect(self.gateway)
            subscriber.subscribe(topic_filter)
            (self.members if topic_filter == SHARED else self.subscribers).append(subscriber)
        for i, version in enumerate((4, 5)):
            self.publishers.append(Publisher(f"pub{i}", version))
            self.publishers[i].connect(self.gateway)

    @property
    def readers(self) -> list[Subscriber]:
        return [*self.subscribers, *self.members]

    @property
    def all(self) -> list[Client]:
        return [*self.publishers, *self.readers]

    @rule(
        who=st.integers(0, 1),
        topic=st.sampled_from([*TOPICS, EXTRA, KEPT]),
        qos=st.sampled_from([0, 1, 2, 2]),
        n=st.integers(1, 5),
    )
    def publish(self, who: int, topic: str, qos: int, n: int) -> None:
        publisher = self.publishers[who]
        if topic == KEPT:
            qos = 2  # below that, what is sent again may come after what was retained later
        for _ in range(n):
            self.published(topic.format(publisher.name), publisher.publish(topic.format(publisher.name), qos))

    def published(self, topic: str, payload: bytes) -> None:
        for subscriber in self.subscribers:
            if payload and subscriber.wants(topic):
                subscriber.must.add(payload)

    def ended(self, client: Client) -> None:
        """Its connection is about to end without DISCONNECT."""
        if isinstance(client, Publisher):
            self.published(WILL, client.ended())

    @rule()
    def settle(self) -> None:
        self.gateway.settle()

    @rule(seconds=st.sampled_from([0.01, 0.06, 0.2]))
    def time_passes(self, seconds: float) -> None:
        self.gateway.advance(seconds)

    @rule(who=st.integers(0, 1), limit=st.sampled_from([1, 3, 1000]))
    def publisher_reads(self, who: int, limit: int) -> None:
        self.publishers[who].read(limit)

    @rule(who=st.integers(0, 4), limit=st.sampled_from([1, 3, 1000]))
    def subscriber_reads(self, who: int, limit: int) -> None:
        self.readers[who % len(self.readers)].read(limit)

    @rule(who=st.integers(0, 4), limit=st.sampled_from([1, 2, 1000]))
    def subscriber_acknowledges(self, who: int, limit: int) -> None:
        self.readers[who % len(self.readers)].acknowledge(limit)

    @rule(who=st.integers(0, 2))
    def the_extra_filter_comes_or_goes(self, who: int) -> None:
        subscriber = self.subscribers[who % len(self.subscribers)]
        if subscriber.has_extra:
            subscriber.unsubscribe(EXTRA)
            if EXTRA not in FILTERS[subscriber.topic_filter]:
                got = set(subscriber.got)
                subscriber.must -= {
                    one for one in subscriber.must if one.split()[1] == b"x/a" and one not in got
                }
        else:
            subscriber.subscribe(EXTRA)
        subscriber.has_extra = not subscriber.has_extra

    @rule(who=st.integers(0, 2), expires=st.booleans())
    def begin_anew(self, who: int, expires: bool) -> None:
        """With a clean start, or because the session has expired."""
        subscriber = self.subscribers[who % len(self.subscribers)]
        assert subscriber.peer is not None
        if expires and subscriber.version == 5:
            subscriber.peer.session.lost()
            self.gateway.advance(0x1000 + 1)
            subscriber.known = False
            subscriber.begin_anew(self.gateway)
        else:
            # A clean session of 3.1.1 would end with the connection: another connection makes it stay.
            subscriber.begin_anew(self.gateway, clean=True)
            if subscriber.version == 4:
                subscriber.known = False
                subscriber.peer.session.lost()
                subscriber.begin_anew(self.gateway)

    @rule(who=st.integers(0, 1))
    def publisher_says_goodbye(self, who: int) -> None:
        """DISCONNECT: no will."""
        publisher = self.publishers[who]
        publisher.send(f.disconnect(0 if publisher.version == 5 else None))
        self.gateway.settle()
        publisher.connect(self.gateway)

    @rule(rounds=st.integers(1, 3))
    def all_goes_well(self, rounds: int) -> None:
        """Everybody reads and answers what there is; the last answers are not processed yet."""
        for _ in range(rounds):
            self.gateway.settle()
            for publisher in self.publishers:
                publisher.read(1000)
            for subscriber in self.readers:
                subscriber.read(1000)
                subscriber.acknowledge(1000)

    @rule(who=st.integers(0, 6), lost=st.booleans())
    def reconnect(self, who: int, lost: bool) -> None:
        """The connection is lost, or still there when the next one takes over."""
        client = self.all[who % len(self.all)]
        assert client.peer is not None
        self.ended(client)
        if lost:
            client.peer.session.lost()
        client.connect(self.gateway)

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        """The gateway is stopped or killed, at whatever it was doing, and everybody comes back."""
        clients = self.all
        self.generation += 1
        for client in clients:
            self.ended(client)
        self.kills += killed
        if killed:
            old = self.gateway
            self.gateway = old.crash(self.folder / str(self.generation))
            old.stop()
            shutil.rmtree(old.folder)
        else:
            for client in clients:
                assert client.peer is not None
                client.peer.session.lost()
            self.gateway = self.gateway.restart()
        for client in reversed(clients):
            client.connect(self.gateway)

    def teardown(self) -> None:
        try:
            if self.publishers:
                self.drain()
                self.check()
        finally:
            forget_runs()
            self.gateway.stop()
            shutil.rmtree(self.folder)

    def drain(self) -> None:
        """Until nothing comes any more."""
        quiet = 0
        while quiet < 3:
            self.gateway.settle()
            quiet += 1
            for publisher in self.publishers:
                publisher.read(1000)
                quiet *= publisher.idle
            for subscriber in self.readers:
                assert subscriber.peer is not None
                quiet *= not subscriber.peer.received and not subscriber.unanswered
                subscriber.read(1000)
                subscriber.acknowledge(1000)
            self.gateway.advance(0.06)

    def check(self) -> None:
        times: Counter[bytes] = Counter()
        for publisher in self.publishers:
            times += publisher.times
        for subscriber in self.subscribers:
            assert not subscriber.holding and not subscriber.unacknowledged
            count = Counter(subscriber.got)
            assert not count.keys() - times.keys(), (
                "a will of a connection that is alive, or has said goodbye"
            )
            for payload, sent in times.items():
                topic, published = payload.decode().split()[1:3]
                qos = min(int(published), subscriber.qos)
                if topic not in FILTERS[subscriber.topic_filter] and topic != EXTRA:
                    assert not count[payload]
                    continue
                assert subscriber.fresh[payload] <= (1 if published == "2" else sent)
                assert count[payload] <= (1 if qos == 2 else sent if qos == 0 else 10**6)
                assert count[payload] >= (1 if qos and payload in subscriber.must else 0), payload
            self.check_order(subscriber)
        if self.members:
            self.check_group(times)
        self.check_retained()

    def check_group(self, times: Counter[bytes]) -> None:
        assert not any(member.holding or member.unacknowledged for member in self.members)
        count = Counter(payload for member in self.members for payload in member.got)
        for payload, sent in times.items():
            topic, published = payload.decode().split()[1:3]
            qos = min(int(published), self.members[0].qos)
            if topic not in TOPICS:
                assert not count[payload]
                continue
            # The kill of a gateway does not discard messages that wait for a group: they may come again,
            # at QoS 0 too when the members asked for no more.
            most = sent * (1 + self.kills) if int(published) else sent
            assert count[payload] <= (1 if qos == 2 else most if qos == 0 else 10**6)
            assert count[payload] >= (1 if qos else 0), payload

    def check_retained(self) -> None:
        for publisher in self.publishers:
            late = self.gateway.connect("late")
            late.send(f.subscribe(1, (KEPT.format(publisher.name), 0)))
            found = [f.parse_publish(packet, 4) for packet in late.take() if packet.kind == f.PUBLISH]
            assert len(found) <= 1 and all(message.retain for message in found)
            assert (found[0].payload if found else b"") == publisher.kept
            late.send(f.disconnect())

    def check_order(self, subscriber: Subscriber) -> None:
        last: dict[bytes, int] = {}
        for payload in dict.fromkeys(subscriber.got):
            flow, _, number = payload.rpartition(b" ")
            if not subscriber.qos and not flow.endswith(b" 0"):
                continue  # at QoS 0 a copy may be lost; when the publisher sends it again it comes late
            if payload not in subscriber.must:
                continue  # published before it was subscribed, and sent again later
            assert int(number) > last.get(flow, 0), f"{payload!r} after {last[flow]}"
            last[flow] = int(number)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    deadline=None,
    max_examples=histories(40),
    derandomize=not FUZZING,  # the same histories each time: new ones are looked for with `make fuzz`
    stateful_step_count=40,
)
