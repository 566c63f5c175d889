"""`penstock log stats`: what is needed, by whom, and why a segment is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from penstock.log_core.files.layout import Folder
from penstock.log_core.segments.segment import OWN
from penstock.log_tools.stats import stats
from penstock.router.names import join_key_block
from tests.unit.log_tools.conftest import Run, flip
from tests.unit.router.conftest import World


def _queues(found: dict[str, Any]) -> dict[str, int]:
    return {queue["name"]: queue["messages"] for queue in found["queues"]}


def test_needed_records_of_each_queue_are_counted(stopped: Path, lines: Run) -> None:
    (found,) = lines("log", "stats", stopped, "-o", "json")
    assert _queues(found) == {"orders": 2, "audit": 2}
    (segment,) = found["segments"]
    assert (segment["records"], segment["needed_records"]) == (6, 4)
    assert "it is the newest" in segment["kept_for"]
    assert "queue 'orders' in vhost '/' needs 2 messages" in segment["kept_for"]
    assert found["rows"]["queue"] == 2 and found["damage"] == []


def test_it_counts_what_the_broker_counts(world: World, tmp_path: Path) -> None:
    """Several segments, several queues, some of it done here and there; transient messages die."""
    one, two = world.queue("one", durable=True), world.queue("two", durable=True)
    world.bind("one", "amq.topic", "#")
    world.bind("two", "amq.topic", "a.*")
    for number in range(300):
        world.publish("amq.topic", ("a.b", "c.d")[number % 2], "x" * 20000, flags=2 * (number % 3 != 0))
        if number % 10 == 0:
            world.log.flush()
    world.log.flush()
    for queue, every in ((one, 3), (two, 7)):
        taken = 0
        while world._take(queue.cursor) and taken < 100:
            for seq, *_ in queue.cursor.records():
                taken += 1
                if taken % every:
                    queue.cursor.settle(seq)
    world.close()
    found = stats(Folder(world.folder))
    world._open()
    counted = {needed.name: needed.messages for needed in found.queues}
    kept = {name: world.vhost.queues[name].queue.ready_count for name in counted}
    assert counted == kept and 0 < kept["two"] < kept["one"]
    assert len(found.segments) > 3
    spread = {needed.name: needed.segments for needed in found.queues}
    assert spread["one"] > 1
    world.close()


def test_the_bytes_of_each_vhost_are_told(world: World) -> None:
    world.broker.administration.put_vhost("other")
    other = world.broker.vhost("other")
    world.publish("amq.topic", "a.b", "x" * 20000)
    other.publish(None, 1, join_key_block("amq.topic", "a.b"), body=b"y" * 50000)
    world.log.flush()
    counted = {name: world.log.held_bytes(lp) for name, lp in (("/", 0), ("other", other.lp), ("", OWN))}
    world.close()
    found = stats(Folder(world.folder)).vhosts_bytes
    assert 20000 < found["/"] == counted["/"] < 25000
    assert 50000 < found["other"] == counted["other"] < 55000
    assert found[""] > 0


def test_streams_and_delayed_messages_keep_segments(world: World) -> None:
    world.queue("kept", durable=True, arguments={"x-queue-type": "stream"})
    world.publish("", "kept", "for ever", flags=0)
    world.log.appender.append_delayed(world.log.wall_ms() + 60_000, 0, b"k", b"", b"later", flags=2)
    world.close()
    found = stats(Folder(world.folder))
    assert {needed.name: (needed.kind, needed.messages) for needed in found.queues}["kept"] == ("stream", 1)
    assert found.delayed == 1
    assert "delayed messages wait in it" in found.segments[-1].kept_for


def test_a_table_for_people(stopped: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "stats", str(stopped)]) == 0
    shown = capfd.readouterr().out
    assert "/ queue orders" in shown and "needs 2 messages" in shown and "it is the newest" in shown


def test_damage_is_told_and_ends_with_3(stopped: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wal = Folder(stopped).segment(1)
    flip(wal, wal.read_bytes().index(b"order 1"))
    assert main(["log", "stats", str(stopped)]) == 3
    assert str(wal) in capfd.readouterr().err
