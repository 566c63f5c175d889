"""A replicated folder: a standby's files equal the owner's, and a takeover has what was confirmed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_core.files._io import exchange
from penstock.log_core.files.files import Files
from penstock.log_core.log import Log
from penstock.log_core.replication.committer import JournalCommitter
from penstock.log_core.replication.entries import (
    PAYLOAD_MAX,
    EntryDamaged,
    Kind,
    decode,
    encode,
)
from penstock.log_core.replication.files import ReplicatedFiles
from penstock.log_core.replication.mirror import Mirror, begin_anew
from penstock.log_core.replication.owner import Owner, boot_time
from penstock.log_core.replication.position import Begin, Position, forget_journal
from tests.support.journals import MemoryJournal, Partition
from tests.support.logs import append, durable_feed, fill, keep_house, load_entries, options, settle

LOCAL = {"LOCK", "CLEAN", "POSITION", "OWNER"}


class Node:
    """A node in this process: a standby until `serve`."""

    def __init__(self, root: Path, partition: Partition) -> None:
        self.root = root
        self.journal = MemoryJournal(partition)
        self.mirror = Mirror(root, begin_anew(root, "test"))
        self.log: Log | None = None

    def catch_up(self, end: int | None = None) -> None:
        mirror = self.mirror
        begin = max(mirror.position.offset, self.journal.bounds().first)
        for offset, raw in self.journal.read(begin, self.journal.bounds().end if end is None else end):
            mirror.take(offset, len(raw), decode(raw))

    def serve(self) -> Log:
        sent_at = boot_time()
        claim = self.journal.claim(encode(Kind.CLAIM, 0, 0, payload=b"{}"))
        self.catch_up(claim + 1)
        self.mirror.close()
        position = self.mirror.position
        self.owner = Owner(self.journal, claim, position.begins, position.nbytes, answered_at=sent_at)
        self.files = ReplicatedFiles(self.root, self.owner)
        self.log = Log.open(
            self.root,
            options(),
            files=self.files,
            committer=lambda files, done: JournalCommitter(self.owner, done),
        )
        return self.log


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.glob("shard-000/**/*")
        if path.is_file() and not path.name.endswith((".new", ".part"))
    }


@pytest.fixture
def partition() -> Partition:
    return Partition()


@pytest.fixture
def nodes(tmp_path: Path, partition: Partition) -> Iterator[list[Node]]:
    made = [Node(tmp_path / name, partition) for name in "abc"]
    yield made
    for node in made:
        node.journal.let_go()
        if node.log is not None:
            node.log.close_sync()
        node.journal.close()


def assert_equal(owner: Node, standby: Node) -> None:
    assert owner.owner.wait_kept(owner.owner.last, 30)
    standby.catch_up()
    mine, theirs = contents(owner.root), contents(standby.root)
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if mine[name] != theirs[name]] == []


def test_a_standby_has_the_files_of_the_owner(nodes: list[Node]) -> None:
    owner, standby, _ = nodes
    log = owner.serve()
    feed = durable_feed(log)
    needed = append(log, [feed], b"stuck")
    fill(log, feed, 600_000)
    log.low_water = lambda: needed
    keep_house(log)
    fill(log, feed, 200_000)
    log.low_water = lambda: log.written_lsn
    keep_house(log)
    assert log._segments.live[0].number > 1, "nothing was deleted"
    assert_equal(owner, standby)
    assert owner.owner.begins().keys() == contents(owner.root).keys()
    assert standby.mirror.position.begins == owner.owner.begins()


def test_a_takeover_has_all_that_was_confirmed(nodes: list[Node]) -> None:
    confirmed = []
    feed_id = 0
    for number, node in enumerate(nodes):
        log = node.serve()
        if number == 0:
            feed_id = durable_feed(log).id
        feed = log.feeds[feed_id]
        for _ in range(40):
            lsn = append(log, [feed], bytes(5000))
            assert log.wait_synced(lsn)
            confirmed.append(lsn)
        settle(log)
        for index in range(feed.start, feed.end):
            load_entries(log, feed, index)
        assert feed.positions(feed.start, 1000) == confirmed
        node.journal.hold = True  # nothing more of it reaches the journal, as after a kill
        append(log, [feed], b"never kept")
        log.flush()


@pytest.mark.parametrize("records", [1, 5])
def test_an_owner_may_follow_one_that_wrote_nothing(nodes: list[Node], records: int) -> None:
    """Its positions had jumped, since it followed a kill, and its checkpoint names them."""
    killed, idle, heir = nodes
    log = killed.serve()
    feed = durable_feed(log)
    for _ in range(records):
        assert log.wait_synced(append(log, [feed], b"kept"))
    killed.journal.hold = True
    second = idle.serve()
    last = second.written_lsn
    second.close_sync()
    idle.log = None
    third = heir.serve()
    assert third.appender.next_lsn > last
    assert third.feeds[feed.id].end == records


def test_nothing_is_confirmed_before_the_journal_has_it(nodes: list[Node]) -> None:
    owner = nodes[0]
    log = owner.serve()
    feed = durable_feed(log)
    assert log.wait_synced(append(log, [feed], b"1"))
    owner.journal.hold = True
    told: list[bool] = []
    lsn = append(log, [feed], b"2")
    log.when_synced(lsn, told.append)
    log.flush()
    assert log.written_lsn == lsn and told == []
    owner.journal.let_go()
    assert log.wait_synced(lsn)
    assert told == [True]


def test_a_replaced_owner_confirms_nothing_more(nodes: list[Node]) -> None:
    zombie, heir, _ = nodes
    log = zombie.serve()
    feed = durable_feed(log)
    assert log.wait_synced(append(log, [feed], b"kept"))
    successor = heir.serve()
    lost = append(log, [feed], b"too late")
    assert not log.wait_synced(lost)
    assert log.failed is not None and "claimed" in str(zombie.owner.failed)
    assert log.failed.remedy == "nothing is lost: this node starts again as a standby"
    assert zombie.owner.gaps_read == 1
    assert successor.wait_synced(append(successor, [successor.feeds[feed.id]], b"goes on"))
    assert heir.owner.gaps_read == 1, "the late entry of the zombie moved the heir's offsets"


def test_answers_without_offsets_wait_for_the_next_one(nodes: list[Node]) -> None:
    owner = nodes[0]
    log = owner.serve()
    feed = durable_feed(log)
    assert log.wait_synced(append(log, [feed], b"1"))
    settle(log)
    log._wal.prepared()  # nothing else is appended now
    assert owner.owner.wait_kept(owner.owner.last, 30)
    owner.journal.silent = 1
    silent = owner.owner.append(Kind.BEAT)
    assert not owner.owner.wait_kept(silent, 0.2)
    assert log.wait_synced(append(log, [feed], b"2"))
    assert owner.owner.kept > silent


def test_an_error_of_the_journal_ends_the_log_and_all_waits(nodes: list[Node]) -> None:
    owner = nodes[0]
    log = owner.serve()
    feed = durable_feed(log)
    owner.journal.hold = True
    lsn = append(log, [feed], b"1")
    log.flush()
    waits = threading.Thread(target=owner.owner.wait_below, args=(0,))
    owner.journal.fail("the topic is gone")
    assert not log.wait_synced(lsn)
    assert "the topic is gone" in str(log.failed)
    with pytest.raises(OSError, match="the topic is gone"):
        owner.files.create(owner.root / "shard-000" / "wal" / "0000009999.wal")
    assert not waits.is_alive()


def test_large_files_come_in_parts_and_resent_files_move_the_trim(nodes: list[Node]) -> None:
    owner, standby, late = nodes
    owner.serve()
    path = owner.root / "shard-000" / "history" / "00000007.his"
    content = os.urandom(3 * PAYLOAD_MAX + 17)
    owner.files.replace(path, content)
    empty = path.with_name("00000008.his")
    owner.files.replace(empty, b"")
    assert_equal(owner, standby)
    assert contents(standby.root)["shard-000/history/00000007.his"] == content
    for name in contents(owner.root):
        owner.files.send(name)
    assert owner.owner.wait_kept(owner.owner.last, 30)
    before = min(begin.offset for begin in owner.owner.begins().values())
    assert before > standby.mirror.position.claim
    owner.journal.trim(before)
    assert_equal(owner, late)
    standby.catch_up()
    for node in (standby, late):
        begins = node.mirror.position.begins
        assert {name: it.offset for name, it in begins.items()} == {
            name: it.offset for name, it in owner.owner.begins().items()
        }


def test_a_file_that_is_replaced_while_it_is_sent_again_keeps_the_new_content(nodes: list[Node]) -> None:
    owner, standby, _ = nodes
    owner.serve()
    path = owner.root / "shard-000" / "history" / "00000007.his"
    owner.files.replace(path, os.urandom(12 * PAYLOAD_MAX))
    assert owner.owner.wait_kept(owner.owner.last, 30)
    owner.journal.hold = True
    sending = threading.Thread(target=owner.files.send, args=("shard-000/history/00000007.his",))
    sending.start()
    while owner.owner.unanswered_bytes < 8 * 1024 * 1024:  # then it waits for answers
        sending.join(0.01)
    owner.files.replace(path, b"new")
    owner.journal.let_go()
    sending.join(30)
    assert_equal(owner, standby)
    assert contents(standby.root)["shard-000/history/00000007.his"] == b"new"


def test_reading_again_from_an_older_position_gives_the_same_folder(nodes: list[Node]) -> None:
    owner, standby, _ = nodes
    log = owner.serve()
    feed = durable_feed(log)
    fill(log, feed, 150_000)
    settle(log)
    standby.catch_up()
    standby.mirror.note()
    fill(log, feed, 400_000)
    log.low_water = lambda: log.written_lsn
    keep_house(log)
    assert_equal(owner, standby)
    standby.mirror.close()
    position = Position.read(standby.root)
    assert position is not None and position.follows
    assert position.offset < standby.mirror.position.offset
    standby.mirror = Mirror(standby.root, position)
    assert_equal(owner, standby)


def test_a_position_is_followed_only_while_it_can_be_true(tmp_path: Path) -> None:
    assert Position.read(tmp_path) is None
    position = begin_anew(tmp_path, "test")
    position.begins["shard-000/MANIFEST"] = Begin(3, 400)
    position.write(tmp_path)
    assert Position.read(tmp_path) == position and position.follows
    position.boot = "another start of the machine"
    assert not position.follows
    position.boot = ""
    assert position.follows
    position.owner = True
    assert not position.follows
    (tmp_path / "POSITION").write_text("{")
    with pytest.raises(StartError, match="cannot be read"):
        Position.read(tmp_path)


def test_a_folder_is_an_owners_from_the_claim_until_it_is_closed(tmp_path: Path) -> None:
    def follows() -> bool:
        found = Position.read(tmp_path)
        return found is not None and found.follows

    position = begin_anew(tmp_path, "test")
    assert follows()
    position.begin_to_own(tmp_path)
    assert not follows()
    position.write(tmp_path)
    assert not follows()
    position.owner = False
    position.write(tmp_path)
    assert follows()
    position.begin_to_own(tmp_path)
    begin_anew(tmp_path, "test")
    assert follows()
    position.begin_to_own(tmp_path)
    forget_journal(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == []


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../b", "a//b", "a/", ".x", "a/.new", "x" * 256])
def test_entries_do_not_leave_the_folder(name: str) -> None:
    assert decode(encode(Kind.DROP, 1, 1, name="shard-000/wal/0000000001.wal")).kind is Kind.DROP
    with pytest.raises(EntryDamaged, match="no name of a file"):
        decode(encode(Kind.DROP, 1, 1, name=name))


def test_a_damaged_entry_is_refused() -> None:
    raw = encode(Kind.WRITE, 5, 7, name="shard-000/wal/0000000001.wal", payload=b"abc", offset=4096)
    entry = decode(raw)
    assert (entry.claim, entry.index, entry.payload, entry.offset) == (5, 7, b"abc", 4096)
    for at in range(len(raw)):
        with pytest.raises(EntryDamaged):
            decode(raw[:at])
        with pytest.raises(EntryDamaged):
            decode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    with pytest.raises(EntryDamaged, match="name"):
        decode(encode(Kind.BEAT, 5, 7, name="x"))


def test_a_file_that_is_replaced_without_a_sync_is_whole_at_each_moment(tmp_path: Path) -> None:
    """Others read a standby's folder while it changes."""
    source, target = tmp_path / "a.new", tmp_path / "a"
    target.write_bytes(bytes(100))
    seen: set[bytes] = set()
    ends = threading.Event()

    def look() -> None:
        while not ends.is_set():
            try:
                seen.add(target.read_bytes())
            except FileNotFoundError:
                seen.add(b"missing")

    reader = threading.Thread(target=look)
    reader.start()
    contents = [bytes([number]) * 100 for number in range(200)]
    for content in contents:
        source.write_bytes(content)
        if Files.rename_unsynced(source, target):
            source.unlink()
    ends.set()
    reader.join()
    assert seen <= set(contents) and seen
    assert target.read_bytes() == contents[-1] and not source.exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_gets_its_name_where_names_cannot_be_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Some file systems cannot, and of a new name there is nothing to exchange."""
    if is_there:
        monkeypatch.setattr("penstock.log_core.files.files.exchange", lambda one, other: False)
        (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a.new").write_bytes(b"new")
    assert not Files.rename_unsynced(tmp_path / "a.new", tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_an_exchange_that_fails_tells_both_names(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "folder").mkdir()
    below = str(tmp_path / "a" / "b").encode()
    with pytest.raises(NotADirectoryError, match="folder"):
        exchange(below, str(tmp_path / "folder").encode())
