"""Consumers with a name: how long they are there, and keys shared with consumers of other protocols."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from penstock.protocols.amqp.codec.errors import answer
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties
from penstock.protocols.http.data.pulling.leases import Leases, settle
from penstock.protocols.http.data.pulling.members import IDLE_S, Member, Members
from penstock.protocols.http.data.pulling.polls import Poll
from penstock.protocols.http.server.app import ErrorTexts
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.taking import Delivery
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.router.authorization.identity import Identity
from penstock.subscriptions.streams.subscription import Subscription
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World, keyed

ANN = Identity("guest", frozenset())


class Consumers:
    """HTTP's, in a world of native clients; time is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.now = 0.0
        words = ErrorTexts(answer, encode_properties, decode_properties, amqp091_from_mqtt5)
        self.leases = Leases(self.world.tick, lambda: self.now)
        self.members = Members(self.world.broker, Messages(words), self.leases, lambda: self.now)
        self.sender = Client(self.world)
        self.sender.request("open_producer", handle=1, topic="t", create=True)

    def subscribe(self, kind: str, name: str) -> Client:
        """A native consumer, which makes the subscription."""
        client = Client(self.world)
        fields = {"topic": "t", "subscription": "s", "start": "earliest", "kind": kind, "consumer": name}
        assert client.request("subscribe", handle=7, **fields) == {"handle": 7}
        return client

    @property
    def subscription(self) -> Subscription:
        return self.world.broker.vhost("/").subscriptions.get("t", "s")

    def pull(self, member: Member, wanted: int = 100) -> list[Delivery]:
        """The messages that a member gets at once."""
        done: Any = Future()
        poll = Poll(self.subscription, wanted, done)
        member.begin(poll)
        self.subscription.credit_gained()
        self.world.settle()
        member.end(poll)
        return poll.deliveries


@pytest.fixture
def http(tmp_path: Path) -> Iterator[Consumers]:
    consumers = Consumers(tmp_path)
    yield consumers
    consumers.world.close()


def test_a_consumer_is_there_for_a_minute_after_its_last_pull(http: Consumers) -> None:
    http.subscribe("exclusive", "native").lose()
    member = http.members.get(http.subscription, "a", ANN)
    http.sender.produce(1, b"0", b"1")
    leases = [http.leases.add(one, 3600, member) for one in http.pull(member)]
    assert len(leases) == 2
    http.now = IDLE_S - 1
    http.leases.extend(leases[0], 3600)
    http.now = 2 * IDLE_S - 2
    http.members.expire()
    assert http.members.get(http.subscription, "a", ANN) is member, "an extension is a sign of life"
    http.now += IDLE_S + 1
    http.members.expire()
    assert len(http.members) == 0 and len(http.leases) == 0
    other = http.members.get(http.subscription, "b", ANN)
    again = http.pull(other)
    assert [(one.record.body, one.redelivered) for one in again] == [(b"0", True), (b"1", True)]


def test_a_name_belongs_to_one_user_and_one_pull_at_a_time(http: Consumers) -> None:
    http.subscribe("exclusive", "native").lose()
    member = http.members.get(http.subscription, "a", ANN)
    with pytest.raises(HttpError) as refused:
        http.members.get(http.subscription, "a", Identity("other", frozenset()))
    assert refused.value.status == 403
    done: Any = Future()
    member.begin(Poll(http.subscription, 1, done))
    with pytest.raises(HttpError) as refused:
        member.begin(Poll(http.subscription, 1, done))
    assert (refused.value.status, refused.value.code) == (409, "subscription_busy")


def test_the_slots_of_keys_are_those_of_the_native_protocol(http: Consumers) -> None:
    native = http.subscribe("key_shared", "n")
    member = http.members.get(http.subscription, "a", ANN)
    keys = ["", "a", "ключ", "k" * 200, "x/y"]
    http.sender.send(keyed(1, 0, [(key, b"x") for key in keys]))
    http.sender.produce(1, b"without a key", sequence=len(keys))
    http.world.settle()
    cursor = http.subscription.cursor
    # A message that is parked for lack of credit is taken again.
    http.subscription.seek(1)
    cursor = http.subscription.cursor
    assert cursor.take(100) == len(keys) + 1
    consumer = native.session.codec.consumer(7)
    assert list(member.slots(cursor)) == list(consumer.slots(cursor))


def test_a_key_goes_to_nobody_else_while_one_has_messages_of_it(http: Consumers) -> None:
    native = http.subscribe("key_shared", "n")
    native.send(wire.credit(7, 1000, 1 << 20))
    member = http.members.get(http.subscription, "a", ANN)
    http.world.settle()
    sent = [(f"k{n % 8}", b"%d" % n) for n in range(64)]
    http.sender.send(keyed(1, 0, sent))
    leases = [http.leases.add(one, 3600, member) for one in http.pull(member)]
    mine = {lease.delivery.record.body for lease in leases}
    theirs = set(native.bodies())
    assert mine and theirs and not mine & theirs and len(mine | theirs) == 64
    key_of = {body: key for key, body in sent}
    keys = {key_of[body] for body in mine}
    assert not keys & {key_of[body] for body in theirs}
    # The other one is to get all keys; what this one has not settled keeps its keys here.
    held = leases.pop()
    for lease in leases:
        http.leases.end(lease, settle)
    http.subscription.detach(member)
    kept = key_of[held.delivery.record.body]
    freed = next(key for key in sorted(keys) if key != kept)
    http.sender.send(keyed(1, 64, [(kept, b"waits"), (freed, b"goes")]))
    assert native.bodies() == [b"goes"]
    http.leases.end(held, settle)
    http.world.settle()
    assert native.bodies() == [b"waits"]


def test_leases_of_a_moved_subscription_are_stale(http: Consumers) -> None:
    http.subscribe("exclusive", "native").lose()
    member = http.members.get(http.subscription, "a", ANN)
    http.sender.produce(1, b"0")
    (lease,) = [http.leases.add(one, 3600, member) for one in http.pull(member)]
    assert http.leases.get(http.subscription, lease.handle) is lease
    http.subscription.seek(1)
    assert http.leases.get(http.subscription, lease.handle) is None
    (again,) = http.pull(member)
    assert again.record.body == b"0"
