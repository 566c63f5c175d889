"""pika, blocking and select, as programs use it: every operation of the first AMQP milestone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from tests.support.limits import LIMIT_S


@pytest.fixture
def connect(amqp_port: int) -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Opens connections that are closed after the test."""
    opened: list[pika.BlockingConnection] = []

    def open_one(**options: Any) -> pika.BlockingConnection:
        opened.append(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port, **options)))
        return opened[-1]

    yield open_one
    for connection in opened:
        # A test may have provoked the broker into closing it, which pika notices here.
        with contextlib.suppress(pika.exceptions.AMQPConnectionError):
            if connection.is_open:
                connection.close()


@pytest.fixture
def channel(connect: Callable[..., pika.BlockingConnection]) -> BlockingChannel:
    """A channel with confirms: a publish returns when the broker has answered."""
    channel = connect().channel()
    channel.confirm_delivery()
    return channel


def private_queue(channel: BlockingChannel) -> str:
    name: str = channel.queue_declare("", exclusive=True).method.queue
    return name


def get_all(channel: BlockingChannel, queue: str) -> list[bytes]:
    """The bodies of all ready messages, taken and acknowledged."""
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


def collect(channel: BlockingChannel, queue: str, count: int, **options: Any) -> list[Any]:
    """The next `count` deliveries as (method, properties, body), without acknowledging them."""
    got: list[Any] = []
    tag = channel.basic_consume(queue, lambda _, m, p, b: got.append((m, p, b)), **options)
    deadline = time.monotonic() + LIMIT_S
    while len(got) < count and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=0.1)
    assert len(got) == count
    assert tag
    return got


class TestExchanges:
    def test_the_default_exchange_routes_by_queue_name(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        channel.basic_publish("", queue, b"hello")
        assert get_all(channel, queue) == [b"hello"]

    def test_direct_routes_by_equal_key(self, channel: BlockingChannel, unique: str) -> None:
        channel.exchange_declare(unique, ExchangeType.direct, auto_delete=True)
        queue = private_queue(channel)
        channel.queue_bind(queue, unique, "red")
        channel.queue_bind(queue, unique, "blue")
        for key in ("red", "green", "blue"):
            channel.basic_publish(unique, key, key.encode())
        assert get_all(channel, queue) == [b"red", b"blue"]

    def test_fanout_copies_to_every_queue(self, channel: BlockingChannel, unique: str) -> None:
        channel.exchange_declare(unique, ExchangeType.fanout, auto_delete=True)
        queues = [private_queue(channel) for _ in range(3)]
        for queue in queues:
            channel.queue_bind(queue, unique)
        channel.basic_publish(unique, "whatever", b"all")
        assert [get_all(channel, queue) for queue in queues] == [[b"all"]] * 3

    @pytest.mark.parametrize(
        ("pattern", "matching"),
        [
            ("a.*.c", ["a.b.c"]),
            ("a.#", ["a", "a.b", "a.b.c", "a.b.c.d"]),
            ("#", ["", "a", "b.c", "a.b", "a.b.c", "a.b.c.d"]),
            ("*.*", ["b.c", "a.b"]),
            ("#.c", ["b.c", "a.b.c"]),
            ("a.#.d", ["a.b.c.d"]),
            ("b.c", ["b.c"]),
        ],
    )
    def test_topic_matches_words(
        self, channel: BlockingChannel, unique: str, pattern: str, matching: list[str]
    ) -> None:
        channel.exchange_declare(unique, ExchangeType.topic, auto_delete=True)
        queue = private_queue(channel)
        channel.queue_bind(queue, unique, pattern)
        for key in ("", "a", "b.c", "a.b", "a.b.c", "a.b.c.d"):
            channel.basic_publish(unique, key, key.encode())
        assert [body.decode() for body in get_all(channel, queue)] == matching

    def test_a_queue_gets_one_copy_however_many_bindings_match(
        self, channel: BlockingChannel, unique: str
    ) -> None:
        channel.exchange_declare(unique, ExchangeType.topic, auto_delete=True)
        queue = private_queue(channel)
        for pattern in ("a.#", "#.b", "a.b", "*.*"):
            channel.queue_bind(queue, unique, pattern)
        channel.basic_publish(unique, "a.b", b"once")
        assert get_all(channel, queue) == [b"once"]

    def test_headers_match_all_or_any(self, channel: BlockingChannel, unique: str) -> None:
        channel.exchange_declare(unique, ExchangeType.headers, auto_delete=True)
        both, either = private_queue(channel), private_queue(channel)
        channel.queue_bind(both, unique, "", {"x-match": "all", "kind": "pdf", "pages": 3})
        channel.queue_bind(either, unique, "", {"x-match": "any", "kind": "pdf", "pages": 3})
        for body, headers in (
            (b"both", {"kind": "pdf", "pages": 3, "more": True}),
            (b"one", {"kind": "pdf", "pages": 4}),
            (b"none", {"kind": "txt"}),
        ):
            channel.basic_publish(unique, "", body, pika.BasicProperties(headers=headers))
        assert get_all(channel, both) == [b"both"]
        assert get_all(channel, either) == [b"both", b"one"]

    def test_exchange_to_exchange_bindings(self, channel: BlockingChannel, unique: str) -> None:
        source, target = unique + "s", unique + "t"
        channel.exchange_declare(source, ExchangeType.topic)
        channel.exchange_declare(target, ExchangeType.fanout)
        channel.exchange_bind(target, source, "a.*")
        queue = private_queue(channel)
        channel.queue_bind(queue, target)
        channel.basic_publish(source, "a.b", b"through")
        channel.basic_publish(source, "b.b", b"not")
        assert get_all(channel, queue) == [b"through"]
        channel.exchange_unbind(target, source, "a.*")
        channel.basic_publish(source, "a.b", b"unbound")
        assert get_all(channel, queue) == []
        channel.exchange_delete(source)
        channel.exchange_delete(target)

    @pytest.mark.parametrize("name", ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"])
    def test_the_standard_exchanges_exist(self, channel: BlockingChannel, name: str) -> None:
        channel.exchange_declare(name, passive=True)

    def test_unbind_and_delete_stop_routing(self, channel: BlockingChannel, unique: str) -> None:
        channel.exchange_declare(unique)
        queue = private_queue(channel)
        channel.queue_bind(queue, unique, "k")
        channel.basic_publish(unique, "k", b"1")
        channel.queue_unbind(queue, unique, "k")
        channel.basic_publish(unique, "k", b"2")
        assert get_all(channel, queue) == [b"1"]
        channel.exchange_delete(unique)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            channel.exchange_declare(unique, passive=True)
        assert error.value.reply_code == 404


class TestQueues:
    def test_a_server_named_queue_is_gone_with_its_connection(
        self, connect: Callable[..., pika.BlockingConnection]
    ) -> None:
        owner = connect()
        name = private_queue(owner.channel())
        assert name.startswith("amq.gen-")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            connect().channel().queue_declare(name, passive=True)
        assert error.value.reply_code == 405
        owner.close()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            connect().channel().queue_declare(name, passive=True)
        assert error.value.reply_code == 404

    def test_an_auto_delete_queue_goes_after_its_last_consumer(
        self, connect: Callable[..., pika.BlockingConnection], unique: str
    ) -> None:
        channel = connect().channel()
        channel.queue_declare(unique, auto_delete=True)
        first = channel.basic_consume(unique, lambda *_: None)
        second = channel.basic_consume(unique, lambda *_: None)
        channel.basic_cancel(first)
        assert channel.queue_declare(unique, passive=True).method.consumer_count == 1
        channel.basic_cancel(second)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            channel.queue_declare(unique, passive=True)
        assert error.value.reply_code == 404

    def test_declare_tells_ready_messages_and_consumers(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        for i in range(3):
            channel.basic_publish("", queue, str(i).encode())
        answer = channel.queue_declare(queue, passive=True).method
        assert (answer.message_count, answer.consumer_count) == (3, 0)
        collect(channel, queue, 3)
        answer = channel.queue_declare(queue, passive=True).method
        assert (answer.message_count, answer.consumer_count) == (0, 1)

    def test_purge_takes_the_ready_messages_only(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        for i in range(5):
            channel.basic_publish("", queue, str(i).encode())
        held, _, _ = channel.basic_get(queue)
        assert channel.queue_purge(queue).method.message_count == 4
        channel.basic_nack(held.delivery_tag)
        assert get_all(channel, queue) == [b"0"]

    def test_delete_tells_how_many_messages_it_held(self, channel: BlockingChannel, unique: str) -> None:
        channel.queue_declare(unique)
        channel.basic_publish("", unique, b"x")
        channel.basic_publish("", unique, b"x")
        assert channel.queue_delete(unique).method.message_count == 2
        assert channel.queue_delete(unique).method.message_count == 0

    def test_deleting_a_queue_cancels_its_consumers(
        self, connect: Callable[..., pika.BlockingConnection], unique: str
    ) -> None:
        channel = connect().channel()
        channel.queue_declare(unique)
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        tag = channel.basic_consume(unique, lambda *_: None)
        connect().channel().queue_delete(unique)
        deadline = time.monotonic() + LIMIT_S
        while not cancelled and time.monotonic() < deadline:
            channel.connection.process_data_events(time_limit=0.1)
        assert cancelled == [tag]


class TestPublishing:
    def test_properties_and_headers_arrive_unchanged(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        properties = pika.BasicProperties(
            content_type="application/json",
            content_encoding="utf-8",
            headers={
                "text": "é",
                "int": 7,
                "big": 1 << 40,
                "yes": True,
                "list": [1, "a"],
                "deep": {"x": None},
            },
            delivery_mode=2,
            priority=3,
            correlation_id="c-1",
            reply_to="answers",
            expiration="60000",
            message_id="m-1",
            timestamp=1700000000,
            type="event",
            user_id="guest",
            app_id="tests",
        )
        channel.basic_publish("", queue, b"{}", properties)
        method, got, body = channel.basic_get(queue, auto_ack=True)
        assert body == b"{}"
        assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)
        assert got.__dict__ == properties.__dict__

    @pytest.mark.parametrize("size", [0, 1, 4096, 131064, 131065, 1_000_000, 5_000_000])
    def test_bodies_of_any_size(self, channel: BlockingChannel, size: int) -> None:
        queue = private_queue(channel)
        body = bytes(i * 7 % 256 for i in range(1024)) * (size // 1024 + 1)
        channel.basic_publish("", queue, body[:size])
        _, _, got = channel.basic_get(queue, auto_ack=True)
        assert got == body[:size]

    def test_a_mandatory_message_without_a_queue_is_returned(
        self, channel: BlockingChannel, unique: str
    ) -> None:
        with pytest.raises(pika.exceptions.UnroutableError) as error:
            channel.basic_publish("", unique, b"nobody", mandatory=True)
        returned = error.value.messages[0]
        assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (
            312,
            "NO_ROUTE",
            b"nobody",
        )

    def test_an_unroutable_message_is_confirmed_and_dropped(
        self, channel: BlockingChannel, unique: str
    ) -> None:
        channel.basic_publish("", unique, b"nobody")

    def test_publishing_to_a_missing_exchange_closes_the_channel_only(
        self, channel: BlockingChannel, unique: str
    ) -> None:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            channel.basic_publish(unique, "k", b"x")
        assert error.value.reply_code == 404
        again = channel.connection.channel()
        queue = private_queue(again)
        again.basic_publish("", queue, b"still here")
        method, _, _ = again.basic_get(queue)
        assert method is not None


class TestConsuming:
    def test_deliveries_come_in_order(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        for i in range(200):
            channel.basic_publish("", queue, str(i).encode())
        got = collect(channel, queue, 200, auto_ack=True)
        assert [int(body) for _, _, body in got] == list(range(200))
        assert [method.delivery_tag for method, _, _ in got] == list(range(1, 201))

    def test_prefetch_limits_each_consumer_of_its_own(self, channel: BlockingChannel) -> None:
        first, second = private_queue(channel), private_queue(channel)
        for i in range(10):
            channel.basic_publish("", first, str(i).encode())
            channel.basic_publish("", second, str(i).encode())
        got: dict[str, list[int]] = {first: [], second: []}
        channel.basic_qos(prefetch_count=3)
        for queue in (first, second):
            channel.basic_consume(queue, lambda _, m, __, ___, q=queue: got[q].append(m.delivery_tag))
        _settle_down(channel)
        assert [len(tags) for tags in got.values()] == [3, 3]
        channel.basic_ack(got[first][1], multiple=False)
        _settle_down(channel)
        assert [len(tags) for tags in got.values()] == [4, 3]

    def test_messages_are_shared_among_consumers(
        self, connect: Callable[..., pika.BlockingConnection], channel: BlockingChannel, unique: str
    ) -> None:
        channel.queue_declare(unique, auto_delete=True)
        counts = [0, 0]
        consumers = [connect().channel() for _ in counts]
        for i, consumer in enumerate(consumers):
            consumer.basic_qos(prefetch_count=1)

            def take(ch: BlockingChannel, method: Any, _: Any, __: bytes, i: int = i) -> None:
                counts[i] += 1
                ch.basic_ack(method.delivery_tag)

            consumer.basic_consume(unique, take)
        for i in range(40):
            channel.basic_publish("", unique, str(i).encode())
        deadline = time.monotonic() + LIMIT_S
        while sum(counts) < 40 and time.monotonic() < deadline:
            for consumer in consumers:
                consumer.connection.process_data_events(time_limit=0.01)
        assert sum(counts) == 40
        assert min(counts) >= 10

    def test_reject_and_nack_requeue_in_place_and_flag(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        for body in (b"a", b"b", b"c"):
            channel.basic_publish("", queue, body)
        tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
        channel.basic_reject(tags[0], requeue=True)
        channel.basic_nack(tags[1], requeue=False)
        channel.basic_nack(tags[2], requeue=True)
        got = [channel.basic_get(queue, auto_ack=True) for _ in range(2)]
        assert [(m.redelivered, body) for m, _, body in got] == [(True, b"a"), (True, b"c")]
        assert channel.basic_get(queue) == (None, None, None)

    def test_multiple_settles_everything_up_to_the_tag(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        for i in range(6):
            channel.basic_publish("", queue, str(i).encode())
        tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(6)]
        channel.basic_ack(tags[2], multiple=True)
        channel.basic_nack(tags[4], multiple=True, requeue=True)
        assert get_all(channel, queue) == [b"3", b"4"]
        channel.basic_ack(0, multiple=True)
        assert channel.queue_declare(queue, passive=True).method.message_count == 0

    def test_recover_requeues_everything_unacknowledged(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        channel.basic_publish("", queue, b"a")
        channel.basic_publish("", queue, b"b")
        for _ in range(2):
            assert not channel.basic_get(queue)[0].redelivered
        channel.basic_recover(requeue=True)
        got = [channel.basic_get(queue) for _ in range(2)]
        assert [(m.redelivered, body) for m, _, body in got] == [(True, b"a"), (True, b"b")]

    def test_closing_a_channel_requeues_what_it_held(
        self, connect: Callable[..., pika.BlockingConnection], channel: BlockingChannel
    ) -> None:
        queue = private_queue(channel)
        channel.basic_publish("", queue, b"held")
        other = channel.connection.channel()
        assert other.basic_get(queue)[2] == b"held"
        assert channel.basic_get(queue)[0] is None
        other.close()
        method, _, body = channel.basic_get(queue)
        assert (method.redelivered, body) == (True, b"held")

    def test_cancel_stops_deliveries_and_keeps_the_unacknowledged(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        channel.basic_publish("", queue, b"1")
        got = collect(channel, queue, 1, consumer_tag="me")
        assert got[0][0].consumer_tag == "me"
        # pika's cancel gives back what it had buffered; here nothing was.
        channel.basic_cancel("me")
        channel.basic_publish("", queue, b"2")
        _settle_down(channel)
        assert len(got) == 1
        channel.basic_ack(got[0][0].delivery_tag)
        assert get_all(channel, queue) == [b"2"]

    def test_get_tells_how_many_remain(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        for _ in range(3):
            channel.basic_publish("", queue, b"x")
        assert [channel.basic_get(queue)[0].message_count for _ in range(3)] == [2, 1, 0]
        assert channel.basic_get(queue) == (None, None, None)

    def test_an_exclusive_consumer_keeps_others_away(self, channel: BlockingChannel) -> None:
        queue = private_queue(channel)
        channel.basic_consume(queue, lambda *_: None, exclusive=True)
        other = channel.connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            other.basic_consume(queue, lambda *_: None)
        assert error.value.reply_code == 403
        assert "exclusive" in error.value.reply_text


class TestConnections:
    def test_heartbeats_keep_an_idle_connection(
        self, connect: Callable[..., pika.BlockingConnection]
    ) -> None:
        connection = connect(heartbeat=1)
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            connection.process_data_events(time_limit=0.25)
        private_queue(connection.channel())

    def test_a_silent_client_is_closed_after_two_heartbeats(
        self, connect: Callable[..., pika.BlockingConnection], unique: str
    ) -> None:
        """The owner of an exclusive queue stops talking; the queue is gone once the broker gives it up."""
        silent = connect(heartbeat=1)
        silent.channel().queue_declare(unique, exclusive=True)
        watcher = connect()
        deadline = time.monotonic() + LIMIT_S
        while True:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
                watcher.channel().queue_declare(unique, passive=True)
            if error.value.reply_code == 404:
                break
            assert error.value.reply_code == 405
            assert time.monotonic() < deadline, "still locked by a client that has been silent for so long"
            watcher.process_data_events(time_limit=0.1)

    def test_wrong_credentials_are_refused(self, connect: Callable[..., pika.BlockingConnection]) -> None:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(credentials=pika.PlainCredentials("guest", "wrong"))

    def test_a_missing_vhost_is_refused(self, connect: Callable[..., pika.BlockingConnection]) -> None:
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"530.*vhost nowhere not found"):
            connect(virtual_host="nowhere")

    def test_many_channels(self, connect: Callable[..., pika.BlockingConnection]) -> None:
        connection = connect()
        channels = [connection.channel() for _ in range(200)]
        queue = private_queue(channels[0])
        for channel in channels:
            channel.basic_publish("", queue, b"x")
        # A synchronous call per channel: whatever each has published is in the queue.
        for channel in channels:
            channel.basic_qos(prefetch_count=1)
        assert channels[0].queue_declare(queue, passive=True).method.message_count == 200
        for channel in channels[::2]:
            channel.close()
        assert connection.channel().is_open


def test_request_and_reply_over_an_exclusive_queue(
    connect: Callable[..., pika.BlockingConnection], unique: str
) -> None:
    """The tutorial's RPC: reply_to names the caller's exclusive queue, correlation_id pairs answers."""
    server = connect().channel()
    server.queue_declare(unique, auto_delete=True)

    def serve(ch: BlockingChannel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        ch.basic_publish(
            "",
            properties.reply_to,
            str(int(body) ** 2).encode(),
            pika.BasicProperties(correlation_id=properties.correlation_id),
        )
        ch.basic_ack(method.delivery_tag)

    server.basic_consume(unique, serve)
    caller = connect().channel()
    answers = private_queue(caller)
    for i in range(5):
        caller.basic_publish(
            "", unique, str(i).encode(), pika.BasicProperties(reply_to=answers, correlation_id=str(i))
        )
    got: dict[str, bytes] = {}
    caller.basic_consume(answers, lambda _, __, p, b: got.update({p.correlation_id: b}), auto_ack=True)
    deadline = time.monotonic() + LIMIT_S
    while len(got) < 5 and time.monotonic() < deadline:
        server.connection.process_data_events(time_limit=0.02)
        caller.connection.process_data_events(time_limit=0.02)
    assert got == {str(i): str(i * i).encode() for i in range(5)}


def test_select_connection_publishes_and_consumes_with_callbacks(amqp_port: int, unique: str) -> None:
    """The asynchronous adapter: many publishes in flight, confirms by callback, consumption on the same
    loop.
    """
    count = 500
    confirmed: set[int] = set()
    received: list[int] = []
    failures: list[object] = []

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: Any) -> None:
        channel.queue_declare(unique, exclusive=True, callback=lambda _: on_declared(channel))

    def on_declared(channel: Any) -> None:
        channel.confirm_delivery(lambda frame: on_confirm(channel, frame.method))
        channel.basic_consume(unique, on_message)
        for i in range(count):
            channel.basic_publish("", unique, str(i).encode(), pika.BasicProperties(delivery_mode=2))

    def on_confirm(channel: Any, method: Any) -> None:
        if not isinstance(method, pika.spec.Basic.Ack):
            failures.append(method)
        first = method.delivery_tag if not method.multiple else min(set(range(1, count + 1)) - confirmed)
        confirmed.update(range(first, method.delivery_tag + 1))
        end_when_done(channel)

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        received.append(int(body))
        channel.basic_ack(method.delivery_tag)
        end_when_done(channel)

    def end_when_done(channel: Any) -> None:
        if len(confirmed) == count and len(received) == count:
            channel.connection.close()

    def on_timeout() -> None:
        failures.append("timeout")
        connection.close()

    connection = pika.SelectConnection(
        pika.ConnectionParameters("127.0.0.1", amqp_port),
        on_open_callback=on_open,
        on_open_error_callback=lambda _, error: failures.append(error),
        on_close_callback=lambda c, _: c.ioloop.stop(),
    )
    timer = connection.ioloop.call_later(20, on_timeout)
    connection.ioloop.start()
    connection.ioloop.remove_timeout(timer)
    connection.ioloop.close()
    assert not failures
    assert received == list(range(count))
    assert confirmed == set(range(1, count + 1))


def _settle_down(channel: BlockingChannel) -> None:
    """Handle what arrives until the broker has answered a call made after it, twice."""
    for _ in range(2):
        channel.exchange_declare("amq.direct", passive=True)
        channel.connection.process_data_events(time_limit=0.2)
