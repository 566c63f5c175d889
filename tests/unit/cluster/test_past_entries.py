"""Entries that earlier versions wrote are read by this one: `tests/golden/cluster-entries-VERSION.json`.

When you raise `entries.VERSION`, keep those files, and make one more with the new version:
`python -m tests.unit.cluster.test_past_entries`.
"""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from pathlib import Path

import pytest

from penstock.log_core.replication import entries
from penstock.log_core.replication.entries import EntryNewer, Kind, decode, encode
from tests.support.journals import Partition
from tests.support.logs import KIB, body_of, durable_feed, fill, load_entries, settle
from tests.unit.cluster.test_nodes import Node

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(GOLDEN.glob("cluster-entries-*.json"))
BODY = b"confirmed"


def unpacked(text: str) -> bytes:
    """An entry of a file."""
    return zlib.decompress(base64.b64decode(text))


def made(root: Path) -> tuple[Partition, int, int]:
    """A partition of an owner that released it, and the feed and number of its messages."""
    partition = Partition()
    node = Node(root, partition, "old")
    with node.serving() as (replica, log):
        feed = durable_feed(log)
        fill(log, feed, 70 * KIB, BODY)
        log.tables.put("test", b"key", b"value")
        settle(log)
        log._housekeeping.checkpoint()
        settle(log)
        place = node.root / "shard-000" / "history" / "00000007.his"
        replica.files.replace(place, bytes(3000))
        replica.files.unlink(place)
        node.journal.hint(encode(Kind.ASK, replica.owner.claim, 0, payload=b'{"ask": "rebuild", "to": "b"}'))
        id, count = feed.id, feed.end
    node.stop()
    return partition, id, count


def test_each_version_has_a_file_and_uses_all_kinds() -> None:
    assert [int(path.stem.rpartition("-")[2]) for path in FILES] == list(range(1, entries.VERSION + 1))
    for path in FILES:
        found = [decode(unpacked(text)) for text in json.loads(path.read_text())["entries"]]
        assert {entry.kind for entry in found} == set(Kind)


def test_the_present_version_still_writes_what_it_wrote() -> None:
    """A change of the bytes needs a new version: nodes of both run side by side during an upgrade."""
    for text in json.loads(FILES[-1].read_text())["entries"]:
        raw = unpacked(text)
        it = decode(raw)
        again = encode(
            it.kind,
            it.claim,
            it.index,
            name=it.name,
            offset=it.offset,
            total=it.total,
            payload=it.payload,
        )
        assert again == raw


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_newer_node_takes_over_and_an_older_one_says_that_it_must_be_upgraded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(path.read_text())
    partition = Partition()
    partition.entries = [unpacked(text) for text in told["entries"]]
    before = len(partition.entries)
    version = told["version"]
    monkeypatch.setattr(entries, "VERSION", version + 1)
    newer = Node(tmp_path, partition, "new")
    with newer.serving() as (_, log):
        feed = log.feed(told["feed"])
        assert feed.end == told["messages"]
        load_entries(log, feed, feed.start)
        assert feed.start == 0
        assert {body_of(log, lsn) for lsn in feed.positions(0, feed.end)} == {BODY}
        assert log.tables.get("test", b"key") == b"value"
    newer.stop()
    assert len(partition.entries) > before
    monkeypatch.setattr(entries, "VERSION", version)
    older = Node(tmp_path, partition, "old")
    older._thread.join(60)
    assert isinstance(older.failure, EntryNewer) and "upgrade this node" in str(older.failure.remedy)
    assert older.claimed is None
    older.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        partition, feed, count = made(Path(name))
    found = {"version": entries.VERSION, "feed": feed, "messages": count}
    coded = [base64.b64encode(zlib.compress(raw)).decode() for raw in partition.entries]
    target = GOLDEN / f"cluster-entries-{entries.VERSION}.json"
    target.write_text(json.dumps({**found, "entries": coded}, indent=0) + "\n")
