"""Batches of native producers without sockets: checks, confirms, repeats, queues that are full."""

from __future__ import annotations

import json
import struct

import pytest

from penstock.protocols.native.codec import kinds
from penstock.router.names import join_key_block
from penstock.sdk.message import properties_block
from penstock.subscriptions.queue.queue import Queue
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World, opened, read_all


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
