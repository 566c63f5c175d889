"""A power cut in the middle of changes of the topology: what comes back is the state between two changes.

One run makes random changes, each written in a turn of its own. Then the log is cut every 480 bytes, as a
torn write leaves it, and opened again: exchanges, queues, bindings and sessions must be those after some
prefix of the changes, never half of one; and each queue must be in the feed of each of its bindings.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.router.broker import Broker
from penstock.router.exchanges.entries import QueueEntry, SessionEntry
from penstock.router.exchanges.exchanges import Own, Slot
from penstock.router.vhost.vhost import Vhost
from tests.support.logs import files_made
from tests.unit.router.conftest import World

State = frozenset[tuple[str, ...]]

WAL_HEAD = 4096


def state_of(broker: Broker) -> State:
    """The durable state of the default vhost, as tuples."""
    vhost = broker.vhost("/")
    found: set[tuple[str, ...]] = set()
    for exchange in vhost.exchanges.values():
        found.add(("exchange", exchange.name))
        for binding in exchange.bindings.values():
            found.add(("binding", exchange.name, *(str(part) for part in binding.identity)))
    found |= {("queue", name) for name in vhost.queues}
    for client_id in vhost.sessions.client_ids():
        found.add(("session", client_id))
        for kept in vhost.sessions.filters(client_id):
            found.add(("filter", client_id, kept.topic, str(kept.tag)))
    return frozenset(found)


def feeds_of(vhost: Vhost, entry: QueueEntry) -> set[tuple[int, int]]:
    """(feed id, tag) of what a queue or session is bound to."""
    if not isinstance(entry, SessionEntry):
        return {(slot.feed.id, 0) for slot in entry.slots() if slot.feed is not None}
    found = set()
    for kept in vhost.sessions.filters(entry.name):
        there = vhost.mqtt_exchange.filter(kept.topic.encode())
        owns = (there,) if isinstance(there, Own) else there.owns if there is not None else ()
        mine = [own.feed.id for own in owns if own.entry is entry]
        if not mine:
            assert isinstance(there, Slot) and entry in there.members and there.feed is not None
            mine = [there.feed.id]
        found |= {(feed, kept.tag) for feed in mine}
    return found


def change(world: World, draw: random.Random) -> None:
    """One change, or none where it makes no sense; everything durable."""
    vhost = world.vhost
    queues, sessions = list(vhost.queues), vhost.sessions.client_ids()
    exchanges = [name for name in vhost.exchanges if not name.startswith("amq.") and name]
    key = draw.choice(["a", "a.b", "a.#"])
    match draw.randrange(12):
        case 0:
            world.exchange(f"x{draw.randrange(4)}", "topic", durable=True, auto_delete=True)
        case 1 | 2:
            world.queue(f"q{draw.randrange(4)}", durable=True)
        case 3 | 4 if queues and exchanges:
            world.bind(draw.choice(queues), draw.choice(exchanges), key)
        case 5 if queues and exchanges:
            vhost.unbind_queue(draw.choice(queues), draw.choice(exchanges), key, world.actor)
        case 6 if len(exchanges) > 1:
            vhost.bind_exchange(*draw.sample(exchanges, 2), key, world.actor)
        case 7 if queues:
            vhost.delete_queue(draw.choice(queues), world.actor)
        case 8:
            vhost.session_queue(f"c{draw.randrange(2)}", durable=True)
        case 9 | 10 if sessions:
            vhost.subscribe(draw.choice(sessions), key.replace(".", "/"), draw.randrange(100), world.guest)
        case 11 if sessions:
            vhost.delete_session(draw.choice(sessions))
        case _:
            world.publish("", draw.choice(queues or ["none"]))


def split_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message after each row: the rows of one change are in batches of their own, as large ones are."""
    log = world.log
    nowhere = log.target((), False)

    def splitting(plain: Callable[..., int]) -> Callable[..., int]:
        def change_row(*arguments: Any) -> int:
            lsn = plain(*arguments)
            log.appender.append_record(0, nowhere)
            return lsn

        return change_row

    monkeypatch.setattr(log.tables, "put", splitting(log.tables.put))
    monkeypatch.setattr(log.tables, "delete", splitting(log.tables.delete))


@pytest.mark.parametrize("seed", range(2))
def test_a_torn_log_gives_back_the_state_between_two_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    draw = random.Random(seed)
    world = World(tmp_path / "data")
    world.log.flush()
    split_batches(world, monkeypatch)
    states = {state_of(world.broker)}
    for _ in range(30):
        change(world, draw)
        states.add(state_of(world.broker))
        world.log.flush()
    files_made(world.log)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    world.close()
    segment = min((tmp_path / "copy" / "shard-000" / "wal").iterdir())
    content = segment.read_bytes()
    end = len(content.rstrip(b"\0"))
    seen = set()
    for cut in range(WAL_HEAD, end + 32, 480):
        folder = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "copy", folder)
        copy = min((folder / "shard-000" / "wal").iterdir())
        with copy.open("r+b") as file:
            file.seek(cut)
            file.write(bytes(max(0, end - cut)))
        again = World(folder)
        restored = state_of(again.broker)
        assert restored in states | {frozenset(("exchange", name) for name in again.vhost.exchanges)}
        for entry in again.vhost.entries():
            members = {
                (feed, tag) for feed, tag, _, until in entry.queue.cursor.memberships() if until is None
            }
            assert members == feeds_of(again.vhost, entry)
        seen.add(restored)
        again.close()
        shutil.rmtree(folder)
    assert len(seen) > 10
    # Half a change would be mended, and told: a binding without its queue.
    assert not [record for record in caplog.records if record.name == "penstock.router"]
