"""Queues with `x-delayed-retry-*`: a message that is given back waits before it comes again."""

from __future__ import annotations

from time import monotonic

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.protocols.amqp.channel.retry import delay_ms
from tests.support.amqp_session import Client, World
from tests.support.limits import LIMIT_S

ARGUMENTS = {"x-delayed-retry-min": 1_000, "x-delayed-retry-max": 2_500}


def declare(client: Client, name: str, arguments: dict[str, object]) -> None:
    client.call(
        1, commands.Queue.Declare(queue=name, durable=True, arguments=arguments), commands.Queue.DeclareOk
    )


def get(client: Client, queue: str) -> int | None:
    """Get a message; its tag, None when nothing is ready."""
    client.send(1, Basic.Get(queue=queue))
    client.read()
    if isinstance(client.frames[0][1], Basic.GetEmpty):
        client.frames.clear()
        return None
    method, _, _ = client.message(1, Basic.GetOk)
    return method.delivery_tag


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ({}, [1_000, 2_000, 3_000, 4_000]),
        ({"x-delayed-retry-multiplier": 1}, [1_000, 1_000, 1_000, 1_000]),
        ({"x-delayed-retry-multiplier": 3}, [1_000, 3_000, 9_000, 27_000]),
        ({"x-delayed-retry-multiplier": 3, "x-delayed-retry-max": 8_000}, [1_000, 3_000, 8_000, 8_000]),
    ],
)
def test_waits_grow_as_the_arguments_say(more: dict[str, int], waits: list[int]) -> None:
    assert [delay_ms({"x-delayed-retry-min": 1_000, **more}, count) for count in range(4)] == waits


def test_a_wait_never_exceeds_49_days() -> None:
    assert delay_ms({"x-delayed-retry-min": 10**6, "x-delayed-retry-multiplier": 10**6}, 60_000) == 2**32 - 1


def test_a_requeued_message_waits_longer_each_time(world: World, client: Client) -> None:
    declare(client, "q", ARGUMENTS)
    client.publish("", "q", b"m", delivery_mode=2)
    for wait_s, give_back in (
        (1.0, lambda tag: Basic.Reject(tag, requeue=True)),
        (2.0, lambda tag: Basic.Nack(tag, multiple=True, requeue=True)),
        (2.5, lambda tag: Basic.Reject(tag, requeue=True)),
    ):
        tag = get(client, "q")
        assert tag is not None
        client.send(1, give_back(tag))
        assert get(client, "q") is None
        world.later(wait_s - 0.01)
        assert get(client, "q") is None
        world.later(0.02)
    assert get(client, "q") is not None


def test_others_are_not_held_up(world: World, client: Client) -> None:
    declare(client, "q", ARGUMENTS)
    for body in (b"first", b"second"):
        client.publish("", "q", body)
    tag = get(client, "q")
    assert tag is not None
    client.send(1, Basic.Reject(tag, requeue=True))
    assert get(client, "q") == tag + 1
    world.later(1.1)
    assert get(client, "q") == tag + 2


def test_its_channel_may_be_gone_when_it_comes_again(world: World, client: Client) -> None:
    declare(client, "q", ARGUMENTS)
    client.publish("", "q", b"m", delivery_mode=2)
    tag = get(client, "q")
    assert tag is not None
    client.send(1, Basic.Reject(tag, requeue=True))
    client.session.lost()
    other = world.client()
    assert get(other, "q") is None
    world.later(1.1)
    assert get(other, "q") is not None


def test_a_lost_channel_gives_back_at_once(world: World, client: Client) -> None:
    declare(client, "q", ARGUMENTS)
    client.publish("", "q", b"m", delivery_mode=2)
    assert get(client, "q") is not None
    client.session.lost()
    assert get(world.client(), "q") is not None


def test_a_restart_ends_all_waits(world: World, client: Client) -> None:
    declare(client, "q", ARGUMENTS)
    client.publish("", "q", b"m", delivery_mode=2)
    tag = get(client, "q")
    assert tag is not None
    client.send(1, Basic.Reject(tag, requeue=True))
    world.restart()
    again = world.client()
    again.send(1, Basic.Consume(queue="q", consumer_tag="c"))
    deadline = monotonic() + LIMIT_S
    while not any(isinstance(frame, Basic.Deliver) and frame.redelivered for _, frame in again.frames):
        assert monotonic() < deadline  # it comes from the disk
        world.tick.schedule()
        again.read()


def test_a_message_over_the_delivery_limit_is_dead_lettered_without_a_wait(
    world: World, client: Client
) -> None:
    declare(client, "dead", {})
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-delivery-limit": 1}
    declare(client, "q", {**ARGUMENTS, **letters})
    client.publish("", "q", b"m", delivery_mode=2)
    for _ in range(2):
        tag = get(client, "q")
        assert tag is not None
        client.send(1, Basic.Reject(tag, requeue=True))
        world.later(1.1)
    assert get(client, "dead") is not None


def test_disabled_means_at_once(client: Client) -> None:
    declare(client, "q", {**ARGUMENTS, "x-delayed-retry-type": "disabled"})
    client.publish("", "q", b"m")
    tag = get(client, "q")
    assert tag is not None
    client.send(1, Basic.Reject(tag, requeue=True))
    assert get(client, "q") is not None


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("min", 0, "{value_zero,0}"),
        ("max", -1, "{value_negative,-1}"),
        ("multiplier", "2", '"expected integer, got longstr"'),
        ("type", "sometimes", "invalid_value"),
    ],
)
def test_impossible_values_are_refused(client: Client, name: str, value: object, why: str) -> None:
    argument = f"x-delayed-retry-{name}"
    client.send(1, commands.Queue.Declare(queue="q", arguments={argument: value}))  # type: ignore[dict-item]
    client.read()
    (close,) = (frame for _, frame in client.frames if isinstance(frame, commands.Channel.Close))
    assert (
        close.reply_text
        == f"PRECONDITION_FAILED - invalid arg '{argument}' for queue 'q' in vhost '/': {why}"
    )
