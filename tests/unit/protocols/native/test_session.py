"""One native connection without sockets: the login, what is refused, batches, transactions, delays."""

from __future__ import annotations

import errno
import json
import os
import struct
from typing import Any

import pytest

from penstock import errors
from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec.errors import code_of
from penstock.protocols.native.options import LOGIN_MAX
from penstock.protocols.native.session.session import State
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.names import join_key_block
from penstock.sdk.message import properties_block
from penstock.subscriptions.queue.queue import Queue
from tests.reference import native_frames as wire
from tests.support.logs import held_readers
from tests.support.native_session import PLAIN, Client, World

HELLO = Client.json_frame(0x01, {"versions": [1]})


# Before the login


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"AMQP\0\0\x09\x01", "preface"),
        (b"PENSTOCK" + wire.frame(0x10, 1, b"x"), "unexpected_frame"),
        (b"PENSTOCK" + HELLO + wire.frame(0x05, 1, b"{}"), "unexpected_frame"),
        (b"PENSTOCK" + wire.frame(0x01, 0, b"no JSON"), "malformed"),
        (b"PENSTOCK" + wire.frame(0x01, 0, b"[1]"), "malformed"),
        (b"PENSTOCK" + Client.json_frame(0x01, {"versions": [7]}), "version"),
        (b"PENSTOCK" + Client.json_frame(0x01, {"versions": [1], "more": 1}), "bad_field"),
        (b"PENSTOCK" + struct.pack(">I", LOGIN_MAX + 1), "frame_size"),
        (b"PENSTOCK" + struct.pack(">I", 3), "frame_size"),
        (b"PENSTOCK" + struct.pack(">IBBHI", 8, 1, 1, 0, 0), "malformed"),
        (b"PENSTOCK" + HELLO + Client.json_frame(0x03, {"user": "a"}), "bad_field"),
        (b"PENSTOCK" + HELLO + Client.json_frame(0x03, {"mechanism": "EXTERNAL"}), "login_refused"),
    ],
)
def test_a_mistake_before_the_login_ends_the_connection(world: World, data: bytes, code: str) -> None:
    client = Client(world, login=False)
    client.send(data)
    assert client.ended()["code"] == code
    assert client.session.ended is not None


def test_every_split_of_the_greeting_is_understood(world: World) -> None:
    data = b"PENSTOCK" + HELLO
    for cut in range(1, len(data)):
        client = Client(world, login=False)
        client.send(data[:cut])
        assert not client.frames
        client.send(data[cut:])
        assert [kind for kind, _, _ in client.take()] == [0x02]
        assert client.session.state is State.LOGIN


def test_nothing_behind_the_login_is_looked_at_before_it_is_checked(world: World) -> None:
    client = Client(world, login=False)
    login = Client.json_frame(0x03, {"user": "guest", "password": "guest"})
    client.send(b"PENSTOCK" + HELLO + login + Client.json_frame(0x05, {"do": "topics"}, 9))
    assert [kind for kind, _, _ in client.take()] == [0x02]
    client.log_in()
    client.send(b"")
    assert [(kind, id) for kind, id, _ in client.take()] == [(0x04, 0), (0x06, 9)]


def test_a_login_to_a_vhost_without_permission_is_refused(world: World) -> None:
    client = Client(world, login=False)
    client.send(b"PENSTOCK" + HELLO + Client.json_frame(0x03, {"user": "ann", "password": "x"}))
    login, client.session.login = client.session.login, None
    assert login is not None
    client.session.authenticated(login, Identity("ann"))
    assert client.ended()["code"] == "access_refused"


# Requests


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"do": "nothing"}, "unknown_request"),
        ({}, "bad_field"),
        ({"do": "open_producer", "handle": -1, "topic": "t"}, "bad_field"),
        ({"do": "open_producer", "handle": 1, "topic": "nowhere"}, "not_found"),
        ({"do": "open_producer", "handle": 1, "topic": "t", "create": True, "wrong": 1}, "bad_field"),
        ({"do": "open_producer", "handle": 1, "exchange": "nowhere"}, "not_found"),
        ({"do": "subscribe", "handle": 1, "topic": "t", "create": True, "subscription": ""}, "bad_field"),
        (
            {
                "do": "subscribe",
                "handle": 1,
                "topic": "t",
                "create": True,
                "subscription": "s",
                "start": "noon",
            },
            "bad_field",
        ),
        (
            {
                "do": "subscribe",
                "handle": 1,
                "topic": "t",
                "create": True,
                "subscription": "s",
                "kind": "odd",
            },
            "bad_field",
        ),
        ({"do": "subscribe", "handle": 1, "queue": "nowhere"}, "not_found"),
        ({"do": "read", "handle": 1, "topic": "nowhere"}, "not_found"),
        ({"do": "describe", "topic": "nowhere"}, "not_found"),
        ({"do": "create_topic", "topic": "amq.mine"}, "reserved_name"),
        ({"do": "create_topic", "topic": "t", "max_age": "long"}, "invalid_argument"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_and_the_connection_goes_on(
    world: World, request_: dict[str, Any], code: str
) -> None:
    client = Client(world)
    client.send(Client.json_frame(0x05, request_, 77))
    ((kind, id, payload),) = client.take()
    told = json.loads(payload)
    assert (kind, id, told["code"]) == (0x0F, 77, code)
    assert told["message"]
    assert client.request("topics") is not None


def test_a_handle_is_used_once(world: World) -> None:
    client = Client(world)
    assert client.request("open_producer", handle=1, topic="t", create=True) == {"handle": 1, "epoch": 0}
    assert client.request("open_producer", handle=1, topic="t")["code"] == "handle_in_use"
    assert client.request("close", handle=1) == {}
    assert client.request("open_producer", handle=1, topic="t") == {"handle": 1, "epoch": 0}


def test_a_user_may_only_read_and_write_what_its_permissions_say(world: World) -> None:
    guest = Client(world)
    guest.request("create_topic", topic="open")
    guest.request("create_topic", topic="secret")
    world.broker.authorizer.set("ann", "/", Permission("", "", "open"))
    ann = Client(world, user="ann")
    assert ann.request("topics") == {"topics": ["open"]}
    assert ann.request("read", handle=1, topic="secret")["code"] == "access_refused"
    assert ann.request("open_producer", handle=1, topic="open")["code"] == "access_refused"
    assert ann.request("create_topic", topic="mine")["code"] == "access_refused"
    subscribed = ann.request("subscribe", handle=2, topic="open", subscription="s")
    assert subscribed == {"handle": 2}
    ann.take()
    world.broker.authorizer.set("ann", "/", Permission("", "", "nothing"))
    assert [event["event"] for event in ann.events()] == ["closed"]


def test_a_connection_ends_with_its_user(world: World) -> None:
    admin = world.broker.administration
    world.broker.users.set_user("ann", "", ())
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ".*"))
    ann, other = Client(world, user="ann"), opened(world)
    ann.request("subscribe", handle=2, topic="t", subscription="s", kind="shared", start="earliest")
    ann.send(wire.credit(2, 1, 1 << 20))
    other.produce(1, b"held", b"waited for")
    assert ann.bodies() == [b"held"]
    ann.send(wire.pull(2, 9, 10, 10, 60_000))  # which would wait for a minute
    admin.delete_user("ann")
    assert ann.ended()["code"] == "closed"
    ann.lose()
    other.request("subscribe", handle=3, topic="t", subscription="s", kind="shared")
    other.send(wire.credit(3, 10, 1 << 20))
    assert other.bodies() == [b"held", b"waited for"]


def test_a_connection_ends_with_the_access_to_its_vhost(world: World) -> None:
    world.broker.users.set_user("ann", "", ())
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ".*"))
    ann = Client(world, user="ann")
    ann.request("open_producer", handle=1, topic="t", create=True)
    world.broker.authorizer.set("ann", "/", Permission("", "nothing", ""))
    ann.produce(1, b"not any more")
    assert [json.loads(payload)["code"] for kind, _, payload in ann.take() if kind == 0x13] == [
        "access_refused"
    ]
    world.broker.authorizer.clear("ann", "/")
    assert "withdrawn" in ann.ended()["message"]


def test_every_error_of_the_broker_has_a_code() -> None:
    def below(kind: type[errors.PenstockError]) -> list[type[errors.PenstockError]]:
        return [kind, *(one for sub in kind.__subclasses__() for one in below(sub))]

    for kind in below(errors.RoutingError) + below(errors.SubscriptionError) + below(errors.LogError):
        error = kind.__new__(kind)
        error.reason = "credentials"  # type: ignore[attr-defined]
        assert code_of(error).replace("_", "").isalpha()
        assert code_of(error) == code_of(error).lower()


# Producing


def opened(world: World, **more: Any) -> Client:
    client = Client(world)
    answer = client.request("open_producer", handle=1, topic="t", create=True, **more)
    assert "code" not in answer
    return client


def read_all(client: Client, handle: int = 90) -> list[bytes]:
    """All that topic t holds."""
    client.request("read", handle=handle, topic="t", start="earliest")
    client.send(wire.credit(handle, 100_000, 1 << 30))
    found = client.bodies()
    client.request("close", handle=handle)
    return found


@pytest.mark.parametrize("acks", [1, 2])
def test_a_batch_is_appended_in_order_and_confirmed(world: World, acks: int) -> None:
    client = opened(world)
    client.produce(1, b"a", b"b", b"c", sequence=7, acks=acks)
    ((kind, id, payload),) = client.take()
    sequence, position, count, flags = struct.unpack(">QQII", payload)
    assert (kind, id, sequence, count, flags) == (0x12, 1, 7, 3, 0)
    client.request("read", handle=2, topic="t", start=f"pos:{position}")
    client.send(wire.credit(2, 10, 1000))
    found = client.delivered()
    assert [one["body"] for one in found] == [b"a", b"b", b"c"]
    assert [one["position"] for one in found] == [position, position + 1, position + 2]
    assert {one["key"] for one in found} == {b"\0\x01t"}


def test_with_acks_0_there_is_no_confirm(world: World) -> None:
    client = opened(world)
    client.produce(1, b"a", acks=0)
    assert client.take() == []
    assert read_all(client) == [b"a"]


@pytest.mark.parametrize(
    ("props", "code"),
    [
        (b"\x20\x00" + b"\0\0\0\x09" + b"\x02CCS\0\0\0\x01x", "reserved_header"),
        (b"\x01\x00\x01x", "reserved_header"),
        (b"\x00\x10\x03bob", "foreign_user"),
        (b"", "malformed"),
        (b"\x80\x00\x05x", "malformed"),
        (b"\x20\x00\0\0\0\x09", "malformed"),
    ],
)
def test_a_record_is_checked_before_any_of_its_batch_is_appended(
    world: World, props: bytes, code: str
) -> None:
    client = opened(world)
    client.send(wire.produce(1, 0, 2, [(PLAIN, b"first"), (props, b"second")]))
    if code == "malformed":
        assert client.ended()["code"] == code
        client = Client(world)
    else:
        ((kind, id, payload),) = client.take()
        told = json.loads(payload)
        assert (kind, id, told["code"], told["sequence"], told["count"]) == (0x13, 1, code, 0, 2)
    assert read_all(client) == []


def test_the_user_who_is_logged_in_may_say_so(world: World) -> None:
    client = opened(world)
    client.send(wire.produce(1, 0, 2, [(b"\x00\x10\x05guest", b"mine")]))
    assert [kind for kind, _, _ in client.take()] == [0x12]
    assert read_all(client) == [b"mine"]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_batch_that_does_not_fit_its_frame_ends_the_connection(world: World, change: int) -> None:
    client = opened(world)
    payload = struct.pack(">QBBHI", 0, 2, 0, 0, 2 + change) + wire.records([(PLAIN, b"a"), (PLAIN, b"b")])
    client.send(wire.frame(0x10, 1, payload))
    assert client.ended()["code"] == "malformed"
    assert read_all(Client(world)) == []


def test_a_batch_for_an_unknown_handle_is_refused(world: World) -> None:
    client = opened(world)
    client.produce(5, b"a")
    ((kind, id, payload),) = client.take()
    assert (kind, id, json.loads(payload)["code"]) == (0x13, 5, "unknown_handle")


def test_messages_to_a_deleted_topic_are_refused(world: World) -> None:
    client = Client(world)
    client.request("open_producer", handle=1, topic="t", create=True)
    client.request("open_producer", handle=2, topic="t", group="g")
    client.request("delete_topic", topic="t")
    client.produce(1, b"lost?")
    later = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, int(world.clock() * 1000) + 1000)
    client.send(wire.frame(0x11, 1, later + wire.records([(PLAIN, b"later?")])))
    refusals = [json.loads(payload) for kind, _, payload in client.take() if kind == 0x13]
    assert [(one["code"], one["count"]) for one in refusals] == [("not_found", 1)] * 2
    transaction = client.answer_to(lambda id: wire.transact(id, [(1, [(PLAIN, b"atomic?")])], []))
    assert (transaction["code"], client.prepare(2, b"half?")["code"]) == ("not_found", "not_found")
    # It is made again: the producer goes on.
    client.request("create_topic", topic="t")
    client.produce(1, b"kept")
    assert [kind for kind, _, _ in client.take()] == [0x12]
    client.request("read", handle=3, topic="t", start="earliest")
    client.send(wire.credit(3, 10, 1 << 20))
    assert client.bodies() == [b"kept"]


def test_unroutable_messages_are_confirmed(world: World) -> None:
    client = Client(world)
    client.request("open_producer", handle=1, exchange="amq.topic", routing_key="nobody")
    client.produce(1, b"routed nowhere")
    ((kind, _, payload),) = client.take()
    assert (kind, payload[20:]) == (0x12, bytes(4))


def test_a_client_that_asks_is_told_what_went_nowhere(world: World) -> None:
    client = Client(world, capabilities=(kinds.ROUTED,))
    client.request("declare_queue", queue="q")
    client.request("bind", queue="q", exchange="amq.topic", routing_key="k")
    client.request("bind", queue="q", exchange="amq.headers", arguments={"kind": "wanted"})
    wanted = properties_block(None, {"kind": "wanted"}, None, True)

    def told(
        exchange: str, key: str, *records: tuple[bytes, bytes], **named: object
    ) -> list[tuple[int, int]]:
        """Records and flags of each confirm."""
        client.request("open_producer", handle=1, exchange=exchange, routing_key=key, **named)
        client.send(wire.produce(1, 0, 2, list(records)))
        confirms = [struct.unpack(">QQII", payload) for kind, _, payload in client.take() if kind == 0x12]
        client.request("close", handle=1)
        positions = [position for _, position, _, _ in confirms]
        counts = [count for _, _, count, _ in confirms]
        assert positions == [positions[0] + sum(counts[:at]) for at in range(len(counts))]
        return [(count, flags) for _, _, count, flags in confirms]

    plain = (PLAIN, b"m")
    assert told("amq.topic", "nobody", plain, plain) == [(2, 2)]
    assert told("amq.topic", "k", plain, plain) == [(2, 0)]
    assert told("", "q", plain) == [(1, 0)]
    headers = [plain, plain, (wanted, b"a"), plain, (wanted, b"b")]
    assert told("amq.headers", "", *headers) == [(2, 2), (1, 0), (1, 2), (1, 0)]
    assert told("amq.topic", "nobody", plain, name="p") == [(1, 2)]
    again = {"name": "p", "epoch": 1}
    assert told("amq.topic", "nobody", plain, **again) == [(1, 3)]
    assert told("amq.topic", "k", plain, **again) == [(1, 1)], "it is told where it would go now"
    due = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, int(world.clock() * 1000) + 60_000)
    client.request("open_producer", handle=2, exchange="amq.topic", routing_key="nobody")
    client.send(wire.frame(0x11, 2, due + wire.records([plain])))
    ((_, _, payload),) = client.take()
    assert payload[20:] == bytes(4), "bindings count when it is due"


def test_a_reply_goes_to_the_requester_who_waits_and_to_no_log(world: World) -> None:
    client = Client(world, capabilities=(kinds.ROUTED,))
    replies: list[tuple[bytes, bytes, bytes, bool]] = []
    address = client.session.vhost.replies.register(lambda *reply: replies.append(reply))
    client.request("open_producer", handle=1, exchange="", routing_key=address)
    before = world.log.appender.next_lsn
    client.produce(1, b"a", b"b")
    ((kind, _, payload),) = client.take()
    assert (kind, payload[16:]) == (0x12, struct.pack(">II", 2, 0))
    assert replies == [(join_key_block("", address), PLAIN, body, False) for body in (b"a", b"b")]
    assert world.log.appender.next_lsn == before
    client.session.vhost.replies.forget(address)
    client.produce(1, b"late")
    ((kind, _, payload),) = client.take()
    assert (kind, json.loads(payload)["code"], len(replies)) == (0x13, "not_found", 2)


def test_with_the_firehose_on_the_same_is_kept_and_refused(world: World) -> None:
    client = opened(world)
    client.session.vhost.firehose.turn(on=True)
    client.produce(1, b"kept")
    assert [kind for kind, _, _ in client.take()] == [0x12]
    together = client.answer_to(lambda id: wire.transact(id, [(1, [(PLAIN, b"together")])], []))
    assert len(together["positions"]) == 1
    assert read_all(client) == [b"kept", b"together"]
    client.request("delete_topic", topic="t")
    client.produce(1, b"lost?")
    refusals = [json.loads(payload) for kind, _, payload in client.take() if kind == 0x13]
    assert [one["code"] for one in refusals] == ["not_found"]


def test_repeated_messages_of_a_named_producer_are_appended_once(world: World) -> None:
    client = opened(world, name="p")
    client.produce(1, b"a", b"b", sequence=0)
    first = client.take()[0][2]
    client.lose()
    client = Client(world)
    assert client.request("open_producer", handle=4, topic="t", name="p", epoch=1) == {
        "handle": 4,
        "epoch": 1,
    }
    client.produce(4, b"a", b"b", sequence=0)
    again = client.take()[0][2]
    assert again[:20] == first[:20]
    assert struct.unpack(">I", again[20:]) == (1,)
    client.produce(4, b"c", sequence=2)
    client.take()
    assert read_all(client) == [b"a", b"b", b"c"]
    client.produce(4, b"e", sequence=4)
    ((kind, _, payload),) = client.take()
    assert (kind, json.loads(payload)["code"]) == (0x13, "out_of_sequence")


def test_an_old_duplicate_is_confirmed_without_its_position(world: World) -> None:
    client = opened(world, name="p")
    for sequence in range(8):
        client.produce(1, b"%d" % sequence, sequence=sequence)
    client.take()
    client.produce(1, b"0", sequence=0)
    assert struct.unpack(">QQII", client.take()[0][2]) == (0, 0, 1, 1)
    client.produce(1, b"6", b"7", b"8", sequence=6)
    ((kind, _, payload),) = client.take()
    assert (kind, json.loads(payload)["code"]) == (0x13, "out_of_sequence")
    assert read_all(client) == [b"%d" % i for i in range(8)]


def test_a_newer_producer_of_a_name_fences_off_the_older_also_over_a_restart(world: World) -> None:
    old = opened(world, name="p")
    new = Client(world)
    assert new.request("open_producer", handle=1, topic="t", name="p")["epoch"] == 2
    old.produce(1, b"old", sequence=0)
    ((kind, _, payload),) = old.take()
    assert (kind, json.loads(payload)["code"]) == (0x13, "fenced")
    world.restart()
    late = Client(world)
    assert late.request("open_producer", handle=1, topic="t", name="p", epoch=1)["code"] == "fenced"
    assert late.request("open_producer", handle=2, topic="t", name="p")["epoch"] == 3


def full(world: World, *, name: str = "", overflow: str = "reject-publish") -> tuple[Client, Queue, Queue]:
    """A producer to a queue that holds two messages, and to one beside it; both queues."""
    client = Client(world)
    vhost, actor = client.session.vhost, client.session.actor
    arguments = {"x-max-length": 2, "x-overflow": overflow}
    if overflow == "reject-publish-dlx":
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        vhost.declare_queue("dead", actor, durable=True)
    small = vhost.declare_queue("q", actor, durable=True, arguments=arguments).queue
    other = vhost.declare_queue("other", actor, durable=True).queue
    for queue in ("q", "other"):
        vhost.bind_queue(queue, "amq.fanout", "", actor)
    fields = {"name": name} if name else {}
    client.request("open_producer", handle=1, exchange="amq.fanout", **fields)
    return client, small, other


def answers(client: Client) -> list[tuple[int, str]]:
    """(sequence, "kept", "again" or the code of a refusal) of what came."""
    found = []
    for kind, _, payload in client.take():
        if kind == 0x12:
            sequence, _, _, flags = struct.unpack(">QQII", payload)
            found.append((sequence, "again" if flags else "kept"))
        else:
            told = json.loads(payload)
            found.append((told["sequence"], told["code"]))
    return found


@pytest.mark.parametrize("name", ["", "p"])
def test_a_batch_that_a_full_queue_refuses_is_in_no_queue(world: World, name: str) -> None:
    client, small, other = full(world, name=name)
    client.produce(1, b"a", b"b", b"c", sequence=0)
    ((kind, _, payload),) = client.take()
    told = json.loads(payload)
    assert (kind, told["code"], told["retryable"]) == (0x13, "full", True)
    what = "queue 'q' is full and refuses more: record 3 of 3 has no room; none is kept"
    assert told["message"] == what
    assert (small.ready_count, other.ready_count) == (0, 0)
    client.produce(1, b"a", b"b", sequence=0)
    assert answers(client) == [(0, "kept")]
    assert (small.ready_count, other.ready_count) == (2, 2)


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_refused_batch_may_come_again_with_its_numbers_and_is_kept_once(
    world: World, overflow: str
) -> None:
    client, small, other = full(world, name="p", overflow=overflow)
    client.produce(1, b"a", b"b", sequence=0)
    client.produce(1, b"c", sequence=2)
    client.produce(1, b"d", sequence=3)
    assert answers(client) == [(0, "kept"), (2, "full"), (3, "out_of_sequence")]
    client.lose()
    client = Client(world)
    client.request("open_producer", handle=1, exchange="amq.fanout", name="p", epoch=1)
    client.produce(1, b"c", sequence=2)
    assert answers(client) == [(2, "full")]
    small.purge()
    client.produce(1, b"c", sequence=2)
    client.produce(1, b"d", sequence=3)
    for again in (b"a", b"b"), (b"c",), (b"d",):
        client.produce(1, *again, sequence={b"a": 0, b"c": 2, b"d": 3}[again[0]])
    assert answers(client) == [(2, "kept"), (3, "kept"), (0, "again"), (2, "again"), (3, "again")]
    assert (small.ready_count, other.ready_count) == (2, 4)
    vhost = client.session.vhost
    assert "dead" not in vhost.queues or vhost.queues["dead"].queue.ready_count == 0


def test_a_refused_record_without_a_number_is_a_dead_letter_where_the_queue_says_so(world: World) -> None:
    client, small, other = full(world, overflow="reject-publish-dlx")
    client.produce(1, b"a", b"b", b"c", sequence=0)
    assert answers(client) == [(0, "full")]
    assert (small.ready_count, other.ready_count) == (2, 3)
    assert client.session.vhost.queues["dead"].queue.ready_count == 1


# Later


def test_a_delayed_message_is_not_early_by_its_own_time_either(world: World) -> None:
    """Records of a tick get the time at which its first one came; the clock goes on meanwhile."""
    client = opened(world)
    start = world.clock.now
    due_ms = int(start * 1000) + 1000
    payload = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms)
    client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, b"late")])))
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(wire.credit(2, 10, 1000))
    world.clock.now = start + 0.998
    world.log.now_ms()
    world.clock.now = start + 1.001
    world.loop.advance(1.001)
    world.pass_time(0.01)
    (message,) = client.delivered()
    assert message["time_ms"] >= due_ms


def test_a_delayed_message_that_lies_on_the_disk_is_cancelled_where_it_was_published(world: World) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    payload = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms)
    client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, b"never")])))
    ((_, _, confirm),) = client.take()
    position = struct.unpack(">QQII", confirm)[1]
    world.restart()
    client = opened(world)
    assert world.log.cache.get(position) is None, "it is read from the disk"
    for key in ({"topic": "u"}, {"exchange": "amq.direct", "routing_key": "t"}):
        told = client.request("cancel", due_ms=due_ms, position=position, **key)
        assert told == {"cancelled": False}
    assert world.log.delays.waiting == 1
    with held_readers(world.log):
        asked = {"do": "cancel", "due_ms": due_ms, "position": position, "topic": "t"}
        client.send(client.json_frame(0x05, asked, 77))
        assert client.request("cancel", topic="t", name="n") == {"cancelled": False}, "others go on"
    world.wait(lambda: client.frames)
    ((kind, id, told_later),) = client.take()
    assert (kind, id, json.loads(told_later)) == (0x06, 77, {"cancelled": True})
    assert world.log.delays.waiting == 0


def test_a_disk_that_does_not_answer_is_told_to_who_cancels(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    payload = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms)
    client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, b"kept")])))
    ((_, _, confirm),) = client.take()
    cancel = {"due_ms": due_ms, "position": struct.unpack(">QQII", confirm)[1], "topic": "t"}
    world.restart()
    client = opened(world)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(world.log.reader, "read", broken)
        client.send(client.json_frame(0x05, {"do": "cancel", **cancel}, 77))
        world.wait(lambda: client.frames)
        ((_, id, told),) = client.take()
        assert (id, json.loads(told)["code"]) == (77, "log_failed")
    assert world.log.delays.waiting == 1
    assert client.request("cancel", **cancel) == {"cancelled": True}


def test_a_delayed_batch_comes_when_it_is_due_and_not_when_it_is_cancelled(world: World) -> None:
    client = opened(world)
    now_ms = int(world.clock() * 1000)
    for sequence, body in ((0, b"late"), (1, b"never")):
        payload = struct.pack(">QBBHIq", sequence, 2, 0, 0, 1, now_ms + 60_000)
        client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, body)])))
    confirms = [struct.unpack(">QQII", payload) for _, _, payload in client.take()]
    assert [sequence for sequence, *_ in confirms] == [0, 1]
    assert read_all(client) == []
    cancel = {"topic": "t", "due_ms": now_ms + 60_000, "position": confirms[1][1]}
    asked = bytearray(client.json_frame(0x05, {"do": "cancel", **cancel}, 99))
    client.session.receive(asked, len(asked))
    client.look()
    assert client.frames == [], "it is answered when it is on the disk, not before"
    ((_, _, told),) = client.take()
    assert json.loads(told) == {"cancelled": True}
    assert client.request("cancel", **cancel) == {"cancelled": False}
    for _ in range(59):
        world.pass_time(1)
    assert read_all(client) == []
    for _ in range(3):
        world.pass_time(1)
    assert read_all(client) == [b"late"]


# All or nothing


def test_a_transaction_publishes_and_acknowledges_as_one(world: World) -> None:
    client = opened(world)
    client.request("open_producer", handle=2, topic="u", create=True)
    client.request("subscribe", handle=3, topic="t", subscription="s")
    client.send(wire.credit(3, 10, 1000))
    client.produce(1, b"in")
    assert client.bodies() == [b"in"]
    client.take()
    data = wire.transact(50, [(1, [(PLAIN, b"x"), (PLAIN, b"y")]), (2, [(PLAIN, b"z")])], [(3, [(1, 1)])])
    client.send(data)
    answers = [one for one in client.take() if one[0] == 0x06]
    assert [id for _, id, _ in answers] == [50]
    assert len(json.loads(answers[0][2])["positions"]) == 2
    assert read_all(client) == [b"in", b"x", b"y"]
    described = client.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["unacked"], described["acknowledged"]) == (2, 1)


@pytest.mark.parametrize("wrong", ["producer", "consumer", "stale", "records", "cut"])
def test_a_transaction_that_cannot_be_done_does_nothing(world: World, wrong: str) -> None:
    client = opened(world)
    client.request("subscribe", handle=3, topic="t", subscription="s")
    client.send(wire.credit(3, 10, 1000))
    client.produce(1, b"in")
    client.take()
    batches = [(1, [(PLAIN, b"x")]), (9 if wrong == "producer" else 1, [(PLAIN, b"y")])]
    if wrong == "records":
        batches[1] = (1, [(b"\x01\x00\x03abc", b"y")])
    settled = [(9 if wrong == "consumer" else 3, [(1, 2 if wrong == "stale" else 1)])]
    data = wire.transact(50, batches, settled)
    if wrong == "cut":
        data = wire.frame(0x14, 50, data[12:-3])
    client.send(data)
    ((kind, id, _),) = client.take()
    assert (kind, id) == (0x0F, 50)
    assert read_all(client) == [b"in"]
    assert client.request("describe", topic="t")["subscriptions"]["s"]["unacked"] == 1


def test_the_log_that_fails_refuses_what_waits_and_ends_the_connection(world: World) -> None:
    client = opened(world)
    client.session.codec.expect(1, 0, 5, 10**9, 10**9, True, True)
    client.session.durable(False)
    world.clients.remove(client)
    client.frames += wire.frames(client.out.take())
    assert [(kind, json.loads(payload)["code"]) for kind, _, payload in client.frames] == [
        (0x13, "log_failed"),
        (0x0F, "log_failed"),
    ]


def later(client: Client, sequence: int, due_ms: int, name: bytes, *bodies: bytes) -> list[tuple[int, Any]]:
    """Send a delayed batch; what comes of it: (type of frame, code of a refusal or None)."""
    head = struct.pack(">QBBHIq", sequence, 2, 0, len(name), len(bodies), due_ms)
    records = wire.records([(PLAIN, body) for body in bodies])
    client.send(wire.frame(0x11, 1, head + name + records))
    return [(kind, json.loads(told)["code"] if kind == 0x13 else None) for kind, _, told in client.take()]


def test_a_delayed_message_is_replaced_and_cancelled_by_its_name(world: World) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    assert later(client, 0, due_ms, b"n", b"first") == [(0x12, None)]
    assert later(client, 1, due_ms, b"n", b"second") == [(0x12, None)]
    assert later(client, 2, due_ms, "é".encode(), b"other") == [(0x12, None)]
    assert world.log.delays.waiting == 2
    world.restart()
    client = opened(world)
    assert client.request("cancel", topic="t", name="é") == {"cancelled": True}
    assert client.request("cancel", topic="t", name="é") == {"cancelled": False}
    assert client.request("cancel", exchange="amq.direct", name="n") == {"cancelled": False}
    for _ in range(61):
        world.pass_time(1)
    assert read_all(client) == [b"second"]
    assert client.request("cancel", topic="t", name="n") == {"cancelled": False}
    # Due in the past: it replaces the one that waits, and comes at once.
    due_ms = int(world.clock() * 1000) + 60_000
    assert later(client, 3, due_ms, b"n", b"third") == [(0x12, None)]
    assert later(client, 4, 1, b"n", b"fourth") == [(0x12, None)]
    world.pass_time(1)
    assert world.log.delays.waiting == 0


def test_names_of_delayed_messages_are_checked(world: World) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    assert later(client, 0, due_ms, b"n", b"a", b"b") == [(0x13, "bad_field")]
    assert later(client, 1, due_ms, b"\xff", b"a") == [(0x13, "bad_field")]
    assert world.log.delays.waiting == 0
    assert later(client, 2, due_ms, b"n" * 255, b"a") == [(0x12, None)]
    assert [kind for kind, _ in later(client, 3, due_ms, b"n" * 256, b"a")] == [0x0F]
    assert not client.session.running
