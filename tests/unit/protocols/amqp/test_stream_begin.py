"""basic.consume on a stream from a time on: what is sent behind it, before it has begun."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic

from pamqp import commands

from tests.support.amqp_session import Client, World
from tests.support.logs import held_readers

STREAM = {"x-queue-type": "stream"}


def consume(tag: str) -> commands.Basic.Consume:
    return commands.Basic.Consume(
        queue="s", consumer_tag=tag, arguments={"x-stream-offset": datetime.fromtimestamp(0, UTC)}
    )


def test_a_cancel_and_a_prefetch_behind_it_keep_their_order(world: World, client: Client) -> None:
    client.call(
        1, commands.Queue.Declare(queue="s", durable=True, arguments=STREAM), commands.Queue.DeclareOk
    )
    client.call(1, commands.Basic.Qos(prefetch_count=2), commands.Basic.QosOk)
    for i in range(4):
        client.publish("", "s", b"%d" % i)
    with held_readers(world.log):
        client.send(
            1,
            consume("first"),
            commands.Basic.Qos(prefetch_count=1),
            consume("second"),
            commands.Basic.Cancel(consumer_tag="first"),
        )
        client.read()
        assert client.frames == []
    names: list[str] = []
    deadline = monotonic() + 60
    while "Basic.CancelOk" not in names or "Basic.Deliver" not in names:
        assert monotonic() < deadline, f"{names} came"
        world.tick.schedule()
        client.read()
        names = [getattr(frame, "name", "") for _, frame in client.frames]
    assert [name for name in names if name.startswith("Basic") and name != "Basic.Deliver"] == [
        "Basic.ConsumeOk",
        "Basic.QosOk",
        "Basic.ConsumeOk",
        "Basic.CancelOk",
    ]
    tags = [frame.consumer_tag for _, frame in client.frames if isinstance(frame, commands.Basic.Deliver)]
    assert tags == ["second"], "one message, as the prefetch in front of it says"
