"""Dead lettering through pika: why messages leave, where they go, what they say of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.limits import LIMIT_S
from tests.support.pika_queues import confirming, until
from tests.support.pika_queues import own_queue as queue

Got = tuple[Any, pika.BasicProperties, bytes]


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    with confirming(amqp_port) as channel:
        yield channel


def get(channel: BlockingChannel, name: str, *, auto_ack: bool = True) -> Got:
    """The next message; waits for one."""
    return until(lambda: channel.basic_get(name, auto_ack=auto_ack), lambda got: got[0] is not None)


def count(channel: BlockingChannel, name: str) -> int:
    found: int = channel.queue_declare(name, passive=True).method.message_count
    return found


def reject(channel: BlockingChannel, name: str) -> None:
    method, _, _ = get(channel, name, auto_ack=False)
    channel.basic_reject(method.delivery_tag, requeue=False)


def headers(got: Got) -> dict[str, Any]:
    found = got[1].headers
    assert found is not None
    return found


def test_a_rejected_message_goes_to_the_dead_letter_exchange_and_says_so(
    channel: BlockingChannel, unique: str
) -> None:
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    dead = queue(channel)
    channel.queue_bind(dead, unique)
    alive = queue(channel, dead_letter_exchange=unique)
    began = int(time.time())
    properties = pika.BasicProperties(
        content_type="text/plain", headers={"mine": 1}, delivery_mode=2, priority=3, message_id="m"
    )
    channel.basic_publish("", alive, b"body", properties)
    reject(channel, alive)
    got = get(channel, dead)
    method, properties, body = got
    assert (method.exchange, method.routing_key, method.redelivered, body) == (unique, alive, False, b"body")
    assert properties.content_type == "text/plain"
    assert (properties.delivery_mode, properties.priority, properties.message_id) == (2, 3, "m")
    found = headers(got)
    (death,) = found["x-death"]
    assert began <= death.pop("time").timestamp() + time.timezone <= time.time() + 1
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": alive,
        "exchange": "",
        "routing-keys": [alive],
    }
    assert found["mine"] == 1
    assert found["x-first-death-reason"] == "rejected"
    assert found["x-first-death-queue"] == alive
    assert found["x-first-death-exchange"] == ""


@pytest.mark.not_on("rabbitmq", "x-last-death came with 3.13")
def test_the_last_death_is_told_beside_the_first(channel: BlockingChannel) -> None:
    last = queue(channel)
    second = queue(channel, dead_letter_exchange="", dead_letter_routing_key=last, message_ttl=0)
    first = queue(channel, dead_letter_exchange="", dead_letter_routing_key=second)
    channel.basic_publish("", first, b"x")
    reject(channel, first)
    found = headers(get(channel, last))
    assert [found[f"x-last-death-{part}"] for part in ("queue", "reason", "exchange")] == [
        second,
        "expired",
        "",
    ]
    assert [found[f"x-first-death-{part}"] for part in ("queue", "reason")] == [first, "rejected"]


@pytest.mark.parametrize("multiple", [False, True])
def test_nack_without_requeue_dead_letters_in_order(channel: BlockingChannel, multiple: bool) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    for number in range(40):
        channel.basic_publish("", alive, b"%d" % number)
    tags = [get(channel, alive, auto_ack=False)[0].delivery_tag for _ in range(40)]
    for tag in tags[-1:] if multiple else tags:
        channel.basic_nack(tag, multiple=multiple, requeue=False)
    assert [get(channel, dead)[2] for _ in range(40)] == [b"%d" % number for number in range(40)]
    assert count(channel, alive) == 0


def test_a_queues_time_limit_dead_letters_without_consumers(channel: BlockingChannel) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead, message_ttl=150)
    began = time.monotonic()
    for number in range(3):
        channel.basic_publish("", alive, b"%d" % number)
    got = get(channel, dead)
    assert 0.1 <= time.monotonic() - began < LIMIT_S
    (death,) = headers(got)["x-death"]
    assert (death["reason"], death["count"], death["queue"]) == ("expired", 1, alive)
    assert "original-expiration" not in death
    assert [got[2], get(channel, dead)[2], get(channel, dead)[2]] == [b"0", b"1", b"2"]


def test_an_expired_message_loses_its_expiration_which_is_told(channel: BlockingChannel) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.basic_publish("", alive, b"x", pika.BasicProperties(expiration="100"))
    got = get(channel, dead)
    (death,) = headers(got)["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("expired", "100")
    assert got[1].expiration is None


def test_expiry_waits_for_the_head(channel: BlockingChannel) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.basic_publish("", alive, b"first")
    channel.basic_publish("", alive, b"second", pika.BasicProperties(expiration="1"))
    time.sleep(0.1)
    assert count(channel, dead) == 0
    assert get(channel, alive)[2] == b"first"
    assert get(channel, dead)[2] == b"second"


def test_more_than_one_batch_expires(channel: BlockingChannel) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead, message_ttl=200)
    for number in range(200):
        channel.basic_publish("", alive, b"%d" % number)
    until(lambda: count(channel, dead), lambda n: n == 200)
    assert count(channel, alive) == 0
    assert [get(channel, dead)[2] for _ in range(200)] == [b"%d" % number for number in range(200)]


def test_counts_rise_and_the_last_death_is_first(channel: BlockingChannel, unique: str) -> None:
    wait = queue(channel, dead_letter_exchange="", dead_letter_routing_key=unique, message_ttl=20)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait}
    channel.queue_declare(unique, exclusive=True, arguments=arguments)
    channel.basic_publish("", unique, b"x")
    for _ in range(3):
        reject(channel, unique)
    deaths = headers(get(channel, unique))["x-death"]
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        (wait, "expired", 3),
        (unique, "rejected", 3),
    ]


def test_a_circle_without_a_rejection_ends(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    witness = queue(channel)
    circling = queue(channel, dead_letter_exchange=unique, message_ttl=20)
    for name in (witness, circling):
        channel.queue_bind(name, unique)
    channel.basic_publish("", circling, b"x")
    (death,) = headers(get(channel, witness))["x-death"]
    assert death["count"] == 1
    time.sleep(0.1)
    assert (count(channel, witness), count(channel, circling)) == (0, 0)


def test_without_a_dead_letter_key_copies_go_on_by_their_keys(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "direct", auto_delete=True)
    by_copy = queue(channel)
    channel.queue_bind(by_copy, unique, "copy")
    alive = queue(channel, dead_letter_exchange=unique)
    channel.basic_publish("", alive, b"x", pika.BasicProperties(headers={"CC": ["copy"]}))
    reject(channel, alive)
    got = get(channel, by_copy)
    assert headers(got)["x-death"][0]["routing-keys"] == [alive, "copy"]
    assert got[0].routing_key == alive


def test_a_dead_letter_key_ends_copies(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "direct", auto_delete=True)
    by_key, by_copy = queue(channel), queue(channel)
    channel.queue_bind(by_key, unique, "key")
    channel.queue_bind(by_copy, unique, "copy")
    alive = queue(channel, dead_letter_exchange=unique, dead_letter_routing_key="key")
    channel.basic_publish("", alive, b"x", pika.BasicProperties(headers={"CC": ["copy"]}))
    reject(channel, alive)
    got = get(channel, by_key)
    assert "CC" not in headers(got)
    assert got[0].routing_key == "key"
    assert count(channel, by_copy) == 0


def test_a_headers_exchange_sees_the_death(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "headers", auto_delete=True)
    dead = queue(channel)
    channel.queue_bind(dead, unique, arguments={"x-match": "all", "x-first-death-reason": "rejected"})
    alive = queue(channel, dead_letter_exchange=unique)
    channel.basic_publish("", alive, b"x")
    reject(channel, alive)
    # RabbitMQ matches no header that begins with x- under `all`, so this binding matches everything there.
    assert get(channel, dead)[2] == b"x"


def test_a_missing_exchange_drops(channel: BlockingChannel, unique: str) -> None:
    alive = queue(channel, dead_letter_exchange=unique)
    channel.basic_publish("", alive, b"x")
    reject(channel, alive)
    channel.basic_publish("", alive, b"y")
    assert get(channel, alive)[2] == b"y"
    assert count(channel, alive) == 0


def test_purging_and_deleting_dead_letter_nothing(channel: BlockingChannel) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.basic_publish("", alive, b"x")
    channel.queue_purge(alive)
    channel.basic_publish("", alive, b"y")
    channel.queue_delete(alive)
    time.sleep(0.05)
    assert count(channel, dead) == 0


def test_drop_head_keeps_the_newest(channel: BlockingChannel) -> None:
    name = queue(channel, max_length=3)
    for number in range(6):
        channel.basic_publish("", name, b"%d" % number)
        assert count(channel, name) == min(number + 1, 3)
    assert [get(channel, name)[2] for _ in range(3)] == [b"3", b"4", b"5"]
    assert count(channel, name) == 0


def test_only_ready_messages_count(channel: BlockingChannel) -> None:
    name = queue(channel, max_length=1, overflow="drop-head")
    channel.basic_publish("", name, b"0")
    method, _, _ = get(channel, name, auto_ack=False)
    channel.basic_publish("", name, b"1")
    assert count(channel, name) == 1
    channel.basic_nack(method.delivery_tag, requeue=True)
    # Given back, it is the head, and one too many.
    assert get(channel, name)[2] == b"1"
    assert count(channel, name) == 0


def test_messages_dropped_from_the_head_are_dead_lettered(channel: BlockingChannel) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead, max_length=1)
    for number in range(3):
        channel.basic_publish("", alive, b"%d" % number)
    for body in (b"0", b"1"):
        got = get(channel, dead)
        assert got[2] == body
        assert headers(got)["x-death"][0]["reason"] == "maxlen"


@pytest.fixture
def careful(channel: BlockingChannel, unique: str) -> Iterator[str]:
    """A quorum queue whose dead letters reach the direct exchange of the same name at least once."""
    channel.exchange_declare(unique, "direct")
    arguments = {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": unique,
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once",
    }
    channel.queue_declare(unique, durable=True, arguments=arguments)
    yield unique
    channel.queue_delete(unique)
    channel.exchange_delete(unique)


def test_a_dead_letter_at_least_once_says_what_others_say(channel: BlockingChannel, careful: str) -> None:
    dead = queue(channel)
    channel.queue_bind(dead, careful, "dead")
    channel.basic_publish("", careful, b"body", pika.BasicProperties(delivery_mode=2))
    reject(channel, careful)
    got = get(channel, dead)
    assert got[2] == b"body" and got[0].routing_key == "dead"
    (death,) = headers(got)["x-death"]
    del death["time"]
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": careful,
        "exchange": "",
        "routing-keys": [careful],
    }
    assert headers(got)["x-first-death-reason"] == "rejected"
    assert count(channel, careful) == 0


@pytest.mark.penstock_only("it tries again after three minutes, which no test waits for")
def test_a_dead_letter_at_least_once_waits_for_somewhere_to_go(
    channel: BlockingChannel, careful: str
) -> None:
    channel.basic_publish("", careful, b"body", pika.BasicProperties(delivery_mode=2))
    reject(channel, careful)
    assert count(channel, careful) == 0
    dead = queue(channel)
    channel.queue_bind(dead, careful, "dead")
    assert get(channel, dead)[2] == b"body"
