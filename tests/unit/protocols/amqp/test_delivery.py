"""Publishing, consuming, acknowledging: what a channel does with messages."""

from __future__ import annotations

import pamqp.frame
import pytest
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from penstock.subscriptions.queue.queue import Getter, Queue
from tests.support.amqp_session import Client, World


@pytest.fixture
def queue(client: Client) -> str:
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    return "q"


def consume(
    client: Client, queue: str = "q", tag: str = "c", *, channel: int = 1, prefetch: int = 0, **more: object
) -> None:
    client.call(channel, Basic.Qos(0, prefetch, False), Basic.QosOk)
    client.send(channel, Basic.Consume(queue=queue, consumer_tag=tag, **more))  # type: ignore[arg-type]
    assert client.expect(channel, Basic.ConsumeOk).consumer_tag == tag


def test_a_message_comes_back_byte_for_byte(client: Client, queue: str) -> None:
    properties = {
        "content_type": "text/plain",
        "headers": {"n": 5, "list": [1, "two", {"three": None}]},
        "delivery_mode": 2,
        "priority": 7,
        "message_id": "m1",
        "app_id": "test",
    }
    client.publish("", "q", b"body", **properties)
    consume(client)
    method, header, body = client.message(1, Basic.Deliver)
    assert (method.delivery_tag, method.redelivered, method.exchange, method.routing_key) == (
        1,
        False,
        "",
        "q",
    )
    assert body == b"body"
    for name, value in properties.items():
        assert getattr(header.properties, name) == value


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000, 100_000])
def test_bodies_are_cut_by_the_receivers_frame_size(world: World, size: int) -> None:
    big, small = world.client(), world.client(frame_max=4096)
    small.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    body = bytes(i % 251 for i in range(size))
    big.publish("", "q", body)
    consume(small)
    pieces = [len(frame.value) for _, frame in small.frames if hasattr(frame, "value")]
    assert all(piece <= 4096 - 8 for piece in pieces)
    assert len(pieces) == -(-size // 4088)
    assert small.message(1, Basic.Deliver)[2] == body


def test_confirms_come_in_one_ack_when_the_disk_has_them(client: Client, queue: str) -> None:
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    for _ in range(5):
        client.publish("", "q", delivery_mode=2)
    assert client.session.out.size == 0, "nothing is confirmed before it is on disk"
    ack = client.expect(1, Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (5, True)
    client.publish("", "q")
    ack = client.expect(1, Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (6, False)


def test_a_mandatory_message_that_goes_nowhere_comes_back_before_its_confirm(client: Client) -> None:
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("", "nobody", b"lost", mandatory=True, message_id="m")
    returned, header, body = client.message(1, Basic.Return)
    assert (returned.reply_code, returned.reply_text, returned.routing_key) == (312, "NO_ROUTE", "nobody")
    assert (body, header.properties.message_id) == (b"lost", "m")
    assert client.expect(1, Basic.Ack).delivery_tag == 1


def test_when_the_log_fails_publishers_get_a_nack_and_the_connection_ends(client: Client, queue: str) -> None:
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("", "q", delivery_mode=2)
    client.session.take_waits()
    client.session.durable(False)
    assert client.expect(1, Basic.Nack).delivery_tag == 1
    assert client.expect(0, commands.Connection.Close).reply_code == 541


def test_acks_settle_one_several_or_all(client: Client, queue: str) -> None:
    for i in range(6):
        client.publish("", "q", b"%d" % i)
    consume(client)
    assert client.bodies() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    cursor = client.session.vhost.queues["q"].queue.cursor
    client.send(1, Basic.Ack(2))
    assert cursor.outstanding == 5
    client.send(1, Basic.Ack(4, multiple=True))
    assert cursor.outstanding == 2
    client.send(1, Basic.Ack(0, multiple=True))
    assert cursor.outstanding == 0
    client.send(1, Basic.Ack(0, multiple=True))
    client.nothing()


@pytest.mark.parametrize(
    ("method", "tag"),
    [
        (Basic.Ack(3), 3),
        (Basic.Ack(0), 0),
        (Basic.Ack(1), 1),
        (Basic.Ack(99, multiple=True), 99),
        (Basic.Nack(9), 9),
        (Basic.Reject(9), 9),
    ],
)
def test_an_unknown_tag_closes_the_channel_and_gives_back_the_rest(
    client: Client, queue: str, method: object, tag: int
) -> None:
    for _ in range(2):
        client.publish("", "q")
    consume(client)
    assert len(client.bodies()) == 2
    client.send(1, Basic.Ack(1))
    client.send(1, method)  # type: ignore[arg-type]
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        406,
        f"PRECONDITION_FAILED - unknown delivery tag {tag}",
    )
    assert client.session.vhost.queues["q"].queue.ready_count == 1


def test_a_rejected_message_comes_back_marked_or_is_dropped(client: Client, queue: str) -> None:
    for body in (b"a", b"b"):
        client.publish("", "q", body)
    consume(client)
    assert client.bodies() == [b"a", b"b"]
    client.send(1, Basic.Nack(1, requeue=True), Basic.Reject(2, requeue=False))
    client.read()
    method, _, body = client.message(1, Basic.Deliver)
    assert (method.redelivered, method.delivery_tag, body) == (True, 3, b"a")
    client.send(1, Basic.Ack(3))
    client.nothing()
    assert client.session.vhost.queues["q"].queue.ready_count == 0


def test_a_multiple_nack_gives_back_in_order(client: Client, queue: str) -> None:
    for i in range(4):
        client.publish("", "q", b"%d" % i)
    consume(client, prefetch=4)
    assert client.bodies() == [b"0", b"1", b"2", b"3"]
    client.send(1, Basic.Nack(3, multiple=True, requeue=True))
    assert client.bodies() == [b"0", b"1", b"2"]


def test_prefetch_limits_each_consumer(client: Client, queue: str) -> None:
    for i in range(5):
        client.publish("", "q", b"%d" % i)
    consume(client, prefetch=2)
    assert client.bodies() == [b"0", b"1"]
    client.send(1, Basic.Ack(1))
    assert client.bodies() == [b"2"]
    client.send(1, Basic.Ack(3, multiple=True))
    assert client.bodies() == [b"3", b"4"]


def test_a_global_limit_is_shared_by_the_channel(client: Client, queue: str) -> None:
    client.call(1, Basic.Qos(0, 3, True), Basic.QosOk)
    for tag in ("a", "b"):
        client.send(1, Basic.Consume(queue="q", consumer_tag=tag))
        client.expect(1, Basic.ConsumeOk)
    for i in range(6):
        client.publish("", "q", b"%d" % i)
    assert len(client.bodies()) == 3
    client.send(1, Basic.Ack(1))
    assert len(client.bodies()) == 1
    client.call(1, Basic.Qos(0, 0, True), Basic.QosOk)
    assert len(client.bodies()) == 2


def test_no_ack_deliveries_are_done_and_use_up_tags(client: Client, queue: str) -> None:
    client.call(1, commands.Queue.Declare(queue="p"), commands.Queue.DeclareOk)
    consume(client, "q", "acked")
    consume(client, "p", "free", no_ack=True)
    for name in ("q", "p", "q", "p"):
        client.publish("", name)
        client.read()
    tags = [frame.delivery_tag for _, frame in client.frames if isinstance(frame, Basic.Deliver)]
    assert tags == [1, 2, 3, 4]
    assert client.session.vhost.queues["p"].queue.cursor.outstanding == 0
    client.bodies()
    client.send(1, Basic.Ack(2))
    assert client.expect(1, commands.Channel.Close).reply_code == 406


def test_get_says_how_many_are_left(client: Client, queue: str) -> None:
    client.call(1, Basic.Get(queue="q"), Basic.GetEmpty)
    for i in range(3):
        client.publish("", "q", b"%d" % i)
    client.send(1, Basic.Get(queue="q"))
    client.read()
    method, _, body = client.message(1, Basic.GetOk)
    assert (method.message_count, body) == (2, b"0")
    client.send(1, Basic.Get(queue="q", no_ack=True))
    client.read()
    assert client.message(1, Basic.GetOk)[0].message_count == 1
    queue_ = client.session.vhost.queues["q"].queue
    assert queue_.cursor.outstanding == 1
    client.send(1, Basic.Reject(1, requeue=True))
    assert queue_.ready_count == 2


def test_recover_gives_back_everything(client: Client, queue: str) -> None:
    for i in range(3):
        client.publish("", "q", b"%d" % i)
    consume(client)
    assert client.bodies() == [b"0", b"1", b"2"]
    client.send(1, Basic.Ack(2))
    client.call(1, Basic.Recover(requeue=True), Basic.RecoverOk)
    assert client.bodies() == [b"0", b"2"]


def test_cancel_leaves_what_was_delivered(client: Client, queue: str) -> None:
    client.publish("", "q")
    consume(client)
    assert len(client.bodies()) == 1
    assert client.call(1, Basic.Cancel("c"), Basic.CancelOk).consumer_tag == "c"
    client.publish("", "q")
    client.nothing()
    client.send(1, Basic.Ack(1))
    client.nothing()
    client.call(1, Basic.Cancel("never"), Basic.CancelOk)


def test_a_deleted_queue_cancels_its_consumers(world: World, client: Client, queue: str) -> None:
    client.publish("", "q")
    consume(client)
    assert len(client.bodies()) == 1
    other = world.client()
    assert other.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk).message_count == 0
    assert client.expect(1, Basic.Cancel).consumer_tag == "c"
    client.send(1, Basic.Ack(1))
    client.nothing()


def test_a_consumer_that_deletes_its_queue_gets_delete_ok_before_the_cancel(
    client: Client, queue: str
) -> None:
    """As in RabbitMQ: clients that wait for the answer take a cancel before it for a failure."""
    consume(client)
    client.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    assert client.expect(1, Basic.Cancel).consumer_tag == "c"
    client.nothing()


def test_a_client_without_the_capability_is_not_told(world: World) -> None:
    client = Client(world, capabilities={})
    client.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    consume(client)
    client.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    client.nothing()


def test_closing_a_channel_gives_back_and_frees_the_number(client: Client, queue: str) -> None:
    client.publish("", "q")
    consume(client)
    assert len(client.bodies()) == 1
    client.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    assert client.session.vhost.queues["q"].queue.ready_count == 1
    client.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    consume(client)
    client.read()
    method, _, _ = client.message(1, Basic.Deliver)
    assert (method.delivery_tag, method.redelivered) == (1, True)


def test_a_closing_channel_ignores_all_but_the_answer(client: Client, queue: str) -> None:
    client.send(1, commands.Queue.Declare(queue="none", passive=True))
    client.publish("", "q", b"ignored")
    client.send(1, Basic.Ack(5), commands.Queue.Delete(queue="q"))
    assert client.expect(1, commands.Channel.Close).reply_code == 404
    client.nothing()
    assert client.session.vhost.queues["q"].queue.ready_count == 0
    client.send(1, commands.Channel.CloseOk())
    client.call(1, commands.Channel.Open(), commands.Channel.OpenOk)


def test_a_connection_that_ends_gives_back_and_deletes_its_exclusive_queues(world: World) -> None:
    client, other = world.client(), world.client()
    other.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, commands.Queue.Declare(queue="mine", exclusive=True), commands.Queue.DeclareOk)
    other.publish("", "q")
    consume(client)
    assert len(client.bodies()) == 1
    client.session.lost()
    assert "mine" not in other.session.vhost.queues
    assert other.session.vhost.queues["q"].queue.ready_count == 1


def test_two_consumers_take_turns_over_two_connections(world: World) -> None:
    one, two = world.client(), world.client()
    one.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    consume(one)
    consume(two)
    for i in range(6):
        one.publish("", "q", b"%d" % i)
    assert sorted([len(one.bodies()), len(two.bodies())]) == [3, 3]


def test_a_full_output_stops_deliveries_until_there_is_room(client: Client, queue: str) -> None:
    client.capacity = 1000
    consume(client, no_ack=True)
    for _ in range(10):
        client.publish("", "q", b"x" * 300)
    client.world.turn()
    assert client.out.size <= 1400
    got = 0
    while True:
        bodies = client.bodies()
        if not bodies:
            break
        got += len(bodies)
        client.session.writable()
    assert got == 10


def test_gets_wait_for_room_and_keep_their_order(client: Client, queue: str) -> None:
    for i in range(6):
        client.publish("", "q", b"%d" % i * 600)
    client.read()
    client.capacity = 1000
    gets = [Basic.Get(queue="q", no_ack=True)] * 7
    client.send(1, *gets, commands.Queue.Purge(queue="q"))
    assert client.session.stalled
    assert client.out.size < 2000
    got = []
    for _ in range(6):
        client.read()
        while client.frames and isinstance(client.frames[0][1], Basic.GetOk):
            got.append(client.message(1, Basic.GetOk)[2][:1])
        client.session.writable()
        client.raw(b"")
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]
    client.expect(1, Basic.GetEmpty)
    client.expect(1, commands.Queue.PurgeOk)
    assert not client.session.stalled


def test_an_answer_larger_than_the_room_does_not_stall_for_good(client: Client, queue: str) -> None:
    for _ in range(3):
        client.publish("", "q", bytes(900))
    client.read()
    client.capacity = 1500
    for _ in range(3):
        client.send(1, Basic.Get(queue="q", no_ack=True))
        client.read()
        client.message(1, Basic.GetOk)
        assert not client.session.stalled


def test_only_publishers_are_paused_and_they_are_told(world: World) -> None:
    publisher, consumer = world.client(), world.client()
    publisher.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    publisher.publish("", "q")
    log = world.broker.log
    for client in (publisher, consumer):
        log.on_backpressure.append(client.session.backpressure)
    log.set_alarm("", "the disk is behind", True)
    assert not publisher.session.blocked, "it published before: that is no reason"
    publisher.publish("", "q")
    assert publisher.session.blocked and not consumer.session.blocked
    publisher.nothing()
    log.set_alarm("disk", "test", True)
    assert publisher.expect(0, commands.Connection.Blocked).reason == "low on disk"
    consumer.nothing()
    # One that begins to publish meanwhile is paused as well.
    log.set_alarm("memory", "test too", True)
    consumer.publish("", "q")
    assert consumer.session.blocked
    assert consumer.expect(0, commands.Connection.Blocked).reason == "low on memory & disk"
    log.set_alarm("disk", "test", False)
    for client in (publisher, consumer):
        client.nothing()
    log.set_alarm("memory", "test too", False)
    for client in (publisher, consumer):
        assert client.session.blocked, "the disk is still behind"
        client.expect(0, commands.Connection.Unblocked)
    log.set_alarm("", "the disk is behind", False)
    for client in (publisher, consumer):
        assert not client.session.blocked


def test_a_worker_that_published_before_goes_on_acknowledging_during_an_alarm(world: World) -> None:
    worker = world.client()
    worker.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    for _ in range(20):
        worker.publish("", "q")
    consume(worker, prefetch=2)
    tags = [frame.delivery_tag for _, frame in worker.frames if isinstance(frame, Basic.Deliver)]
    worker.bodies()
    log = world.broker.log
    log.on_backpressure.append(worker.session.backpressure)
    log.set_alarm("disk", "test", True)
    queue = worker.session.vhost.queues["q"].queue
    for tag in range(1, 11):
        worker.send(1, Basic.Ack(tag))
        worker.read()
    assert tags == [1, 2] and len(worker.bodies()) == 10 and not worker.session.blocked
    # Frames before a publish are handled; the publish and the frames after it wait.
    result = (Basic.Publish(routing_key="q"), ContentHeader(0, 1, Basic.Properties()), ContentBody(b"x"))
    worker.send(1, Basic.Ack(11), *result, Basic.Ack(12))
    assert worker.session.blocked
    assert worker.expect(0, commands.Connection.Blocked).reason == "low on disk"
    assert queue.cursor.outstanding == 2 and len(worker.bodies()) == 1
    log.set_alarm("disk", "test", False)
    worker.expect(0, commands.Connection.Unblocked)
    worker.raw(b"")
    worker.read()
    assert len(worker.bodies()) == 1 and worker.session.codec.published == 21


def test_declared_things_and_persistent_messages_survive_a_restart(world: World) -> None:
    client = world.client()
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("", "q", b"kept", delivery_mode=2)
    client.publish("", "q", b"gone")
    assert client.expect(1, Basic.Ack)
    world.restart()
    client = world.client()
    ok = client.call(1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk)
    assert ok.message_count == 1
    client.send(1, Basic.Consume(queue="q"))
    client.expect(1, Basic.ConsumeOk)
    assert client.wait_bodies(1) == [b"kept"]


def test_replies_wait_for_the_disk_and_keep_their_order(client: Client) -> None:
    client.send(1, commands.Queue.Declare(queue="d", durable=True))
    client.send(1, Basic.Consume(queue="d", consumer_tag="t"))
    client.publish("", "d", b"early")
    assert client.out.size == 0, "nothing is promised before it is on disk"
    client.expect(1, commands.Queue.DeclareOk)
    client.expect(1, Basic.ConsumeOk)
    assert client.bodies() == [b"early"]


def test_messages_of_two_channels_may_be_interleaved_frame_by_frame(world: World) -> None:
    client = world.client()
    client.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    frames = []
    for part in (
        Basic.Publish(exchange="", routing_key="q"),
        ContentHeader(0, 6, Basic.Properties()),
        ContentBody(b"abc"),
        ContentBody(b"def"),
    ):
        for channel in (1, 2):
            frames.append(pamqp.frame.marshal(part, channel))
    client.raw(b"".join(frames))
    consume(client)
    assert client.bodies() == [b"abcdef", b"abcdef"]


def test_expired_messages_are_not_delivered(client: Client, queue: str) -> None:
    client.publish("", "q", b"brief", expiration="1")
    client.publish("", "q", b"lasting", expiration="1000000")
    log = client.session.log
    now = log.now_ms()
    while log.now_ms() < now + 5:
        client.world.tick.schedule()
        client.world.turn()
    consume(client)
    assert client.bodies() == [b"lasting"]


@pytest.mark.parametrize("found", [True, False])
def test_a_channel_closes_behind_a_get_that_waits_for_the_disk(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """The load ends when the channel is closing: close-ok leaves, and the message goes back."""
    getters: list[Getter] = []
    monkeypatch.setattr(Queue, "get", lambda _, getter: getters.append(getter))
    if found:
        client.publish("", "q", b"body")
    client.send(1, Basic.Get(queue="q"), commands.Channel.Close(200, "bye", 0, 0))
    client.read()
    assert client.frames == []
    monkeypatch.undo()
    (getter,) = getters
    taken = client.world.broker.vhost("/").queues["q"].queue
    assert taken is not None
    cursor = taken.cursor if found else None
    if cursor is not None:
        assert cursor.take(1) == 1
    getter(cursor)
    client.expect(1, commands.Channel.CloseOk)
    client.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    assert client.call(
        1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk
    ).message_count == int(found)
