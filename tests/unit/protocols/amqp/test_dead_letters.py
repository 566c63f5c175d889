"""Dead letters: the headers they get, byte by byte where clients can tell; what a crash leaves of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.log_core.batch._batch import EXACTLY_ONCE, PERSISTENT, Record
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties
from penstock.protocols.amqp.messages.dead_letters import rewrite
from penstock.protocols.properties._tables import Timestamp
from penstock.protocols.properties.values import Table
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block
from penstock.router.queues.dead_letters import Death
from tests.support.amqp_session import Client, World
from tests.support.logs import files_made


def record(headers: Table | None = None, **properties: object) -> Record:
    block = encode_properties(({} if headers is None else {"headers": headers}) | properties)  # type: ignore[arg-type]
    return Record(1, join_key_block("x", "key"), block, b"", (), 0, 0, ENC_AMQP091, 0, 0, 0)


def death(queue: str = "q", reason: str = "expired", key: str | None = None) -> Death:
    return Death(queue, reason, 1_700_000_000, key)


def test_the_first_death() -> None:
    letter = rewrite(record(expiration="50"), death())
    properties = decode_properties(letter.props)
    headers = properties["headers"]
    assert isinstance(headers, dict)
    assert headers == {
        "x-death": [
            {
                "reason": "expired",
                "queue": "q",
                "time": Timestamp(1_700_000_000),
                "exchange": "x",
                "routing-keys": ["key"],
                "original-expiration": "50",
                "count": 1,
            }
        ],
        "x-first-death-queue": "q",
        "x-first-death-reason": "expired",
        "x-first-death-exchange": "x",
        "x-last-death-queue": "q",
        "x-last-death-reason": "expired",
        "x-last-death-exchange": "x",
    }
    assert "expiration" not in properties
    assert b"\x05countl" + (1).to_bytes(8, "big") in letter.props
    assert b"\x04timeT" in letter.props


def test_the_same_death_again_is_counted_and_moves_to_the_front() -> None:
    headers: Table = {}
    for queue, reason in (("a", "rejected"), ("b", "expired"), ("a", "expired"), ("a", "rejected")):
        headers = dict(rewrite(record(headers), death(queue, reason)).headers)  # type: ignore[arg-type]
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    assert [(one["queue"], one["reason"], one["count"]) for one in deaths if isinstance(one, dict)] == [
        ("a", "rejected", 2),
        ("a", "expired", 1),
        ("b", "expired", 1),
    ]
    assert headers["x-first-death-queue"] == "a"


@pytest.mark.parametrize(
    ("deaths", "circling"),
    [
        ([("a", "expired")], {"a"}),
        ([("a", "expired"), ("b", "maxlen")], {"a", "b"}),
        ([("a", "expired"), ("b", "rejected")], set()),
        ([("a", "expired"), ("b", "rejected"), ("a", "expired")], {"a"}),
        ([("b", "rejected"), ("a", "expired")], {"a"}),
        ([("a", "expired"), ("a", "rejected")], set()),
    ],
)
def test_a_circle_has_no_rejection_in_it(deaths: list[tuple[str, str]], circling: set[str]) -> None:
    """`deaths` in the order they happened."""
    headers: Table = {}
    for one in deaths:
        letter = rewrite(record(headers), death(*one))
        headers = dict(letter.headers)  # type: ignore[arg-type]
    assert letter.circling == circling


@pytest.mark.parametrize("forged", ["text", 5, ["text"], [{"count": "many"}], [{"queue": 1}]])
def test_forged_headers_do_not_prevent_dead_lettering(forged: object) -> None:
    letter = rewrite(record({"x-death": forged, "CC": forged}), death())  # type: ignore[dict-item]
    assert letter.keys[0] == "key"
    assert "q" in letter.circling


def test_many_headers_are_no_obstacle() -> None:
    many: Table = {str(number): number for number in range(10_000)}
    assert rewrite(record(many), death()).headers.items() >= many.items()


def test_a_record_of_mqtt_is_translated() -> None:
    born = Record(
        1, b"a/b", b"\x26\x00\x01k\x00\x01v", b"", (), PERSISTENT | EXACTLY_ONCE, 0, ENC_MQTT5, 0, 0, 0
    )
    letter = rewrite(born, death(reason="rejected"))
    assert letter.keys == ("a.b",)
    assert letter.headers["k"] == "v"
    (entry,) = letter.headers["x-death"]  # type: ignore[misc,attr-defined]
    assert (entry["exchange"], entry["routing-keys"]) == ("amq.topic", ["a.b"])
    assert decode_properties(letter.props)["delivery_mode"] == 2


def test_the_copy_comes_into_the_log_with_the_end_of_its_original(tmp_path: Path) -> None:
    """At any cut of the log by a crash, the message is in exactly one of the two queues."""
    world = World(tmp_path / "data")
    client = world.client()
    for name, arguments in (
        ("dead", {}),
        ("alive", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
    ):
        client.call(
            1, commands.Queue.Declare(queue=name, durable=True, arguments=arguments), commands.Queue.DeclareOk
        )
    client.publish("", "alive", b"x", delivery_mode=2)
    client.send(1, Basic.Get(queue="alive"))
    client.message(1, Basic.GetOk)
    states = [copy(world, tmp_path)]
    client.send(1, Basic.Reject(1, False))
    world.loop.settle()
    states.append(copy(world, tmp_path))
    world.loop.advance(1)
    states.append(copy(world, tmp_path))
    world.close()
    found = [messages(folder) for folder in states]
    assert found == [(1, 0), (0, 1), (0, 1)]


def copy(world: World, folder: Path) -> Path:
    """The data as a crash would leave it now."""
    kept = folder / f"after-{len(list(folder.iterdir()))}"
    files_made(world.log)
    shutil.copytree(world.folder, kept)
    return kept


def messages(folder: Path) -> tuple[int, int]:
    world = World(folder)
    try:
        client: Client = world.client()
        alive, dead = (
            client.call(1, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
            for name in ("alive", "dead")
        )
        return alive.message_count, dead.message_count
    finally:
        world.close()


def source(client: Client, **more: object) -> None:
    """A queue that everything expires in at once, and whose letters may not be lost."""
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-message-ttl": 0,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        **more,
    }
    declare = commands.Queue.Declare(queue="source", durable=True, arguments=arguments)
    client.call(1, declare, commands.Queue.DeclareOk)


def dead(client: Client, **arguments: object) -> None:
    declare = commands.Queue.Declare(queue="dead", durable=True, arguments=arguments)
    client.call(1, declare, commands.Queue.DeclareOk)


def held(world: World) -> tuple[int, int]:
    """(ready, out) of the source, once everything in it has expired."""
    queue = world.broker.vhost("/").queues["source"].queue
    while queue.cursor.ready_count():  # a millisecond has to pass
        world.loop.advance(0.001)
    return queue.ready_count, queue.cursor.outstanding


def test_a_letter_that_may_not_be_lost_waits_for_somewhere_to_go(world: World) -> None:
    client = world.client()
    source(client)
    for body in (b"a", b"b"):
        client.publish("", "source", body, delivery_mode=2)
    client.read()
    assert held(world) == (0, 2)
    world.restart()
    client = world.client()
    dead(client)
    client.call(1, Basic.Consume(queue="dead", no_ack=True), Basic.ConsumeOk)
    world.loop.advance(1.1)
    assert client.wait_bodies(2) == [b"a", b"b"]


def test_a_letter_that_may_not_be_lost_waits_for_room(world: World) -> None:
    client = world.client()
    dead(client, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    source(client)
    for body in (b"a", b"b", b"c"):
        client.publish("", "source", body)
    client.read()
    assert held(world) == (0, 2)
    client.call(1, Basic.Consume(queue="dead", no_ack=True), Basic.ConsumeOk)
    assert client.wait_bodies(1) == [b"a"]
    world.loop.advance(1.1)
    assert client.wait_bodies(2) == [b"b", b"c"]
    assert held(world) == (0, 0)


@pytest.mark.parametrize(
    "other", [{"x-dead-letter-strategy": "at-most-once"}, {"x-overflow": "drop-head"}], ids=str
)
def test_other_letters_that_go_nowhere_are_dropped(world: World, other: dict[str, object]) -> None:
    """With drop-head at-least-once means nothing, as in RabbitMQ."""
    client = world.client()
    source(client, **other)
    client.publish("", "source")
    client.read()
    assert held(world) == (0, 0)
