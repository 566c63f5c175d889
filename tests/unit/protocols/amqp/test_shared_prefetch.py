"""The prefetch limit that the consumers of a channel share (basic.qos with global): they take turns."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from tests.support.amqp_session import Client


def consume(client: Client, queue: str, **more: object) -> None:
    client.call(1, commands.Queue.Declare(queue=queue), commands.Queue.DeclareOk)
    client.send(1, Basic.Consume(queue=queue, consumer_tag=queue, **more))  # type: ignore[arg-type]
    client.expect(1, Basic.ConsumeOk)


def limit(client: Client, count: int) -> None:
    client.call(1, Basic.Qos(0, count, True), Basic.QosOk)


def came(client: Client) -> list[tuple[int, str]]:
    """Delivery tag and consumer tag of what has come."""
    client.read()
    found = [(f.delivery_tag, f.consumer_tag) for _, f in client.frames if isinstance(f, Basic.Deliver)]
    client.bodies()
    return found


@pytest.mark.parametrize("prefetch", [1, 2, 3, 4, 7, 50])
def test_backlogs_of_several_queues_go_down_together(client: Client, prefetch: int) -> None:
    limit(client, prefetch)
    for queue in "abc":
        consume(client, queue)
    for queue in "abc":
        for _ in range(100):
            client.publish("", queue)
    tags, order = list(came(client)), []
    while tags:
        tag, queue = tags.pop(0)
        order.append(queue)
        client.send(1, Basic.Ack(tag))
        client.read()
        tags += came(client)
    assert len(order) == 300
    middle = Counter(order[prefetch:200])
    assert max(middle.values()) - min(middle.values()) <= prefetch + 1, middle


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_a_queue_that_is_always_fed_leaves_the_others_their_turn(client: Client, prefetch: int) -> None:
    limit(client, prefetch)
    consume(client, "fed")
    consume(client, "rest")
    for _ in range(20):
        client.publish("", "fed")
        client.publish("", "rest")
    tags = came(client)
    rounds = 0
    rest = 0
    while rest < 20:
        rounds += 1
        assert rounds < 60, f"only {rest} of 20"
        # The publish and the acknowledgement are in one read: the queue that is fed is served first.
        fed = (Basic.Publish(routing_key="fed"), ContentHeader(0, 1, Basic.Properties()), ContentBody(b"x"))
        client.send(1, *fed, *([Basic.Ack(tags[0][0])] if tags else []))
        rest += bool(tags) and tags[0][1] == "rest"
        tags = [*tags[1:], *came(client)]


def test_a_lone_message_comes_with_the_next_acknowledgement(client: Client) -> None:
    limit(client, 4)
    consume(client, "busy")
    consume(client, "quiet")
    for _ in range(50):
        client.publish("", "busy")
    tags = came(client)
    client.publish("", "quiet")
    assert came(client) == []
    client.send(1, Basic.Ack(tags[0][0]))
    assert [queue for _, queue in came(client)] == ["quiet"]


def test_the_unused_share_of_a_queue_goes_to_the_others(client: Client) -> None:
    limit(client, 6)
    for queue in "abc":
        consume(client, queue)
    for _ in range(30):
        client.publish("", "a")
    client.publish("", "b")
    client.publish("", "c")
    tags = came(client)
    client.call(1, commands.Queue.Purge(queue="c"), commands.Queue.PurgeOk)
    client.send(1, Basic.Ack(tags[-1][0], multiple=True))
    assert Counter(queue for _, queue in came(client)) == {"a": 5, "b": 1}


def test_a_waiting_consumer_that_leaves_takes_no_share_with_it(client: Client) -> None:
    limit(client, 1)
    consume(client, "a")
    consume(client, "b")
    for queue in "aab":
        client.publish("", queue)
    ((tag, _),) = came(client)
    client.call(1, Basic.Cancel("b"), Basic.CancelOk)
    client.send(1, Basic.Ack(tag))
    assert [queue for _, queue in came(client)] == ["a"]


def test_consumers_without_acknowledgement_wait_while_the_limit_is_used_up(client: Client) -> None:
    limit(client, 2)
    consume(client, "acked")
    consume(client, "free", no_ack=True)
    for _ in range(3):
        client.publish("", "free")
    assert len(came(client)) == 3, "they use nothing of it"
    client.publish("", "acked")
    client.publish("", "acked")
    tags = came(client)
    client.publish("", "free")
    assert len(tags) == 2 and came(client) == []
    client.send(1, Basic.Ack(tags[0][0]))
    assert [queue for _, queue in came(client)] == ["free"]


def test_a_limit_that_is_lifted_frees_all_that_wait(client: Client) -> None:
    limit(client, 1)
    for queue in "abc":
        consume(client, queue)
    for queue in "abc" * 5:
        client.publish("", queue)
    assert len(came(client)) == 1
    limit(client, 0)
    assert len(came(client)) == 14


def test_every_message_comes_once_whatever_is_acknowledged_when(client: Client) -> None:
    limit(client, 5)
    queues = "abcd"
    for queue in queues:
        consume(client, queue)
    unacked: list[int] = []
    got = 0
    for turn, queue in zip(range(400), itertools.cycle("aabacd"), strict=False):
        client.publish("", queue)
        new = came(client)
        got += len(new)
        unacked += [tag for tag, _ in new]
        assert len(unacked) <= 5
        if turn % 3 == 0 and unacked:
            client.send(1, Basic.Ack(unacked.pop(len(unacked) // 2)))
    while unacked:
        client.send(1, Basic.Ack(unacked[-1], multiple=True))
        new = came(client)
        got += len(new)
        unacked = [tag for tag, _ in new]
    assert got == 400
