"""A power cut inside transactions: messages and rows are batches of their own, and all of them count or none.

One run makes transactions that publish to two topics and acknowledge, commits half messages, and lets delayed
messages become due. Then the log is cut behind each batch, as a torn write leaves it, and opened again.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.reference import native_frames as wire
from tests.support.logs import files_made
from tests.support.native_session import PLAIN, Client, World

ROUNDS = 4
WAL_HEAD = 4096
MANY = 1 << 20


def play(world: World) -> None:
    """Each round: an input, a transaction about it, two half messages, one of them committed, and a delay."""
    client = Client(world)
    for handle, topic in enumerate(("in", "a", "b"), 1):
        client.request("open_producer", handle=handle, topic=topic, create=True, group="g")
    client.request("subscribe", handle=7, topic="in", subscription="s", start="earliest")
    client.send(wire.credit(7, 1000, MANY))
    for n in range(ROUNDS):
        number = b"%d" % n
        client.produce(1, number, sequence=n)
        ((message),) = client.delivered()
        assert message["body"] == number
        sends = [(2, [(PLAIN, b"tx" + number)]), (3, [(PLAIN, b"tx" + number)])]
        acked = [(7, [(message["tag"], message["tag"])])]
        done = client.answer_to(lambda id, parts=(sends, acked): wire.transact(id, *parts))
        assert len(done["positions"]) == 2
        first = client.prepare(2, b"half" + number)["transaction"]
        client.prepare(2, b"left" + number)
        assert "position" in client.request("decide", transaction=first, commit=True)
        head = struct.pack(">QBBHIq", n, 2, 0, 0, 1, int((world.clock.now + 1) * 1000))
        client.send(wire.frame(0x11, 2, head + wire.records([(PLAIN, b"late" + number)])))
        world.pass_time(3)
        client.take()


def cuts(folder: Path, scratch: Path) -> Iterator[Path]:
    """The data folder as it is when the log ends with one of its batches, or in the middle of the next."""
    segment = min((folder / "shard-000" / "wal").iterdir())  # the other one is empty
    content = segment.read_bytes()
    ends = [WAL_HEAD]
    while size := struct.unpack_from("<I", content, ends[-1])[0]:
        ends.append(ends[-1] + size)
    assert content[ends[-1] :].rstrip(b"\0") == b""
    for cut in [*ends, *(end - 20 for end in ends[1::7])]:
        at = scratch / f"cut{cut}"
        shutil.copytree(folder, at)
        with (at / segment.relative_to(folder)).open("r+b") as file:
            file.seek(cut)
            file.write(bytes(max(0, ends[-1] - cut)))
        yield at
        shutil.rmtree(at)


def all_of(world: World, topic: str) -> list[bytes]:
    """The messages in a topic; [] when there is no such topic."""
    client = Client(world)
    found: list[bytes] = []
    if "code" not in client.request("read", handle=1, topic=topic, start="earliest"):
        client.send(wire.credit(1, MANY, MANY))
        found = client.bodies()
    client.lose()
    return found


def settled(world: World) -> set[bytes]:
    """The inputs that are acknowledged."""
    client = Client(world)
    inputs = set(all_of(world, "in"))
    if "s" in client.request("describe", topic="in").get("subscriptions", {}):
        client.request("subscribe", handle=1, topic="in", subscription="s")
        client.send(wire.credit(1, MANY, MANY))
        inputs -= set(client.bodies())
    else:
        inputs = set()
    client.lose()
    return inputs


def is_all_due(world: World) -> bool:
    """Let time pass; whether no message waits any more. A due message may have to be read first."""
    world.pass_time(1)
    return world.log.delays.waiting == 0


def test_a_torn_log_has_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    play(world)
    world.log.flush()
    files_made(world.log)
    shutil.copytree(tmp_path / "data", tmp_path / "copy", ignore=shutil.ignore_patterns("LOCK"))
    world.close()
    seen: Counter[int] = Counter()
    for folder in cuts(tmp_path / "copy", tmp_path):
        again = World(folder)
        a, b = all_of(again, "a"), all_of(again, "b")
        assert [body for body in a if body.startswith(b"tx")] == b
        assert {b"tx" + number for number in settled(again)} == set(b)
        seen[len(b)] += 1
        undecided = list(again.broker.halves._halves.values())
        for half in undecided:
            again.broker.halves.commit(half)
        again.wait(lambda world=again: is_all_due(world))
        found = Counter(all_of(again, "a"))
        assert set(found.values()) <= {1}, "neither a half message nor a delayed one comes twice"
        for kind in (b"half", b"left", b"late"):
            count = sum(body.startswith(kind) for body in found)
            assert len(b) - 1 <= count <= len(b), "and none is lost"
        again.close()
    assert set(seen) == set(range(ROUNDS + 1)), "the log is cut within each"
