"""A standby and an owner over a journal in memory."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.control import HANDOVER, REBUILD, NodeStatus, Refused, ask, heir, status
from penstock.cluster.replica import Replica
from penstock.cluster.standby import Claimed, Standby
from penstock.cluster.watched import Watched
from penstock.config import Address
from penstock.errors import StartError
from penstock.gateway.watches import keep_lease
from penstock.log_core.batch._crc import crc32c
from penstock.log_core.errors import LogDamaged
from penstock.log_core.log import Log
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.replication.entries import EntryNewer, Kind, encode
from penstock.log_core.replication.files import file_sizes
from penstock.log_core.replication.owner import ANSWER_BOUNDS_S, boot_time
from penstock.protocols.http.metrics.exposition import written
from penstock.protocols.http.metrics.own import own_of_cluster
from penstock.subscriptions.tick.tick import Tick
from tests.cluster.campaign import contents
from tests.support.journals import MemoryFollower, MemoryJournal, Partition
from tests.support.limits import LIMIT_S
from tests.support.logs import KIB, durable_feed, fill, keep_house, options

Owner = dict[str, object] | None
LEASE_S = 0.6
SPARE_BYTES = 128 * KIB


class Node:
    """One node: a standby in a thread until it claims."""

    def __init__(
        self,
        root: Path,
        partition: Partition,
        name: str,
        *,
        suspect_s: float = 60.0,
        lease_s: float = LEASE_S,
    ) -> None:
        self.root = root / name
        self.root.mkdir(exist_ok=True)
        self.journal = MemoryJournal(partition)
        self.owners: list[Owner] = []
        self.claimed: Claimed | None = None
        self.failure: BaseException | None = None
        self._standby = Standby(
            self.journal,
            self.root,
            identity={"node": name, "lease_s": lease_s, "version": 1, "listeners": {}},
            suspect_s=suspect_s,
            on_follows=lambda: None,
            on_owner=self.owners.append,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.claimed = self._standby.run()
        except BaseException as error:
            self.failure = error

    @contextmanager
    def watched(self) -> Iterator[tuple[Replica, Watched]]:
        """As the owner that it has become, without a log; its process dies at the end."""
        wait_until(lambda: self.claimed)
        assert self.claimed is not None
        watched = Watched(None, "127.0.0.1", self.claimed.claim)
        self.claimed.identity["watch"] = watched.address
        replica = Replica(
            self.journal, self.root, self.claimed, lease_s=LEASE_S, stop_s=1.0, spare_bytes=SPARE_BYTES
        )
        watched.on_end = replica.beat_soon
        try:
            yield replica, watched
        finally:
            replica._ends.set()
            replica._thread.join()
            watched.close()

    @contextmanager
    def owning(self) -> Iterator[Replica]:
        """As the owner that it has become, without a log."""
        wait_until(lambda: self.claimed)
        assert self.claimed is not None
        replica = Replica(
            self.journal, self.root, self.claimed, lease_s=LEASE_S, stop_s=1.0, spare_bytes=SPARE_BYTES
        )
        try:
            yield replica
        finally:
            replica.close()

    @contextmanager
    def serving(self, **settings: Any) -> Iterator[tuple[Replica, Log]]:
        """As the owner that it has become; `settings`: of the replica."""
        wait_until(lambda: self.claimed is not None or self.failure is not None)
        assert self.claimed is not None
        settings = {"lease_s": LEASE_S, "stop_s": 1.0, "spare_bytes": SPARE_BYTES, **settings}
        replica = Replica(self.journal, self.root, self.claimed, **settings)
        log = Log.open(self.root, options(), files=replica.files, committer=replica.committer)
        try:
            yield replica, log
        finally:
            log.close_sync()
            replica.close()

    @property
    def named(self) -> str:
        """The next owner, as it was told."""
        return self._standby._named

    @property
    def watches(self) -> bool:
        """It holds a connection to the owner, and has heard its claim there."""
        return self._standby._watch._evidence._held_since is not None

    @property
    def sees_an_end(self) -> bool:
        """The machine of the owner says that its process ended."""
        return self._standby._watch._evidence.is_gone

    @property
    def known(self) -> list[object]:
        """The names of the owners that it was told of."""
        return [owner and owner["node"] for owner in self.owners]

    def stop(self) -> None:
        self._standby.stop()
        self._thread.join()
        self.journal.close()


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    partition, nodes = Partition(), []

    def make(name: str, **settings: Any) -> Node:
        nodes.append(Node(tmp_path, partition, name, **settings))
        return nodes[-1]

    yield make
    for node in nodes:
        node.stop()


def test_a_standby_knows_an_owner_whose_claim_was_trimmed(made: Callable[..., Node]) -> None:
    first = made("a")
    with first.serving() as (replica, _):
        claim = replica.owner.claim
        wait_until(lambda: replica.owner.kept > 0)
        first.journal.trim(claim + 1)
        second = made("b")
        wait_until(lambda: second.owners)
        assert second.known == ["a"]
    wait_until(lambda: second.known == ["a", None])


def test_an_owner_without_answers_hands_out_nothing_until_they_come_back(made: Callable[..., Node]) -> None:
    node = made("a")
    with node.serving() as (replica, log):

        async def serve() -> None:
            tick = Tick(log, asyncio.get_running_loop())
            alarms: list[bool] = []
            log.on_backpressure.append(alarms.append)
            keep_lease(replica, log, tick)
            queue = Pumped()
            tick.ready(queue)
            await passed(lambda: queue.pumped == 1)
            node.journal.hold = True
            sent_at = replica.owner.answered_at
            await passed(lambda: tick.held)
            assert LEASE_S <= boot_time() - sent_at
            tick.ready(queue)
            await passed(lambda: alarms == [True])
            turns = tick.turns
            await asyncio.sleep(0.05)
            assert queue.pumped == 1 and tick.turns <= turns + 1, "nor does it spin"
            node.journal.let_go()
            await passed(lambda: queue.pumped == 2)
            assert not tick.held
            await passed(lambda: alarms == [True, False])
            tick.close()

        asyncio.run(serve())


def test_publishers_wait_before_consumers_do(made: Callable[..., Node]) -> None:
    """Of an owner that writes more than Kafka takes, and so gets its answers late."""
    node = made("a")
    with node.serving() as (replica, log):
        replica.lease_s = 40.0  # type: ignore[misc]  # in this test it does not end

        async def serve() -> None:
            tick = Tick(log, asyncio.get_running_loop())
            alarms: list[bool] = []
            log.on_backpressure.append(alarms.append)
            now = boot_time()
            replica.owner._clock = lambda: now
            node.journal.hold = True
            keep_lease(replica, log, tick)
            replica.owner.append(Kind.BEAT)
            now += 19
            await asyncio.sleep(0.25)  # it looks each 0.1 s
            assert alarms == []
            now += 2
            await passed(lambda: alarms == [True])
            assert not tick.held
            node.journal.let_go()
            await passed(lambda: alarms == [True, False])
            tick.close()

        asyncio.run(serve())


def test_a_process_that_was_frozen_hands_out_nothing_when_it_wakes(made: Callable[..., Node]) -> None:
    node = made("a")
    with node.serving() as (replica, log):

        async def serve() -> None:
            tick = Tick(log, asyncio.get_running_loop())
            queue = Pumped()
            keep_lease(replica, log, tick)
            node.journal.hold = True
            time.sleep(2 * LEASE_S)  # the loop stands still
            tick.ready(queue)
            tick.run()
            assert queue.pumped == 0
            tick.close()

        asyncio.run(serve())


def test_a_standby_waits_for_the_end_of_the_lease_that_the_owner_has(made: Callable[..., Node]) -> None:
    """Its own settings would have it claim earlier."""
    owner = made("a", lease_s=1.5)
    with owner.serving() as (replica, _):
        standby = made("b", suspect_s=0.1)
        wait_until(lambda: standby.owners)
        owner.journal.hold = True
        wait_until(lambda: standby.claimed)
        assert standby.claimed is not None
        assert standby.claimed.sent_at - replica.owner.answered_at > 1.5


def test_an_owner_whose_entries_kafka_does_not_show_yet_is_not_replaced(made: Callable[..., Node]) -> None:
    """As while one of the partition's copies is dead, and its leader still waits for it."""
    owner = made("a")
    with owner.serving() as (replica, _):
        standby = made("b", suspect_s=0.1)
        wait_until(lambda: standby.owners)
        asked: list[int] = []
        hint = standby.journal.hint

        def late(raw: bytes) -> int:
            owner.journal.let_go()
            asked.append(hint(raw))
            return asked[-1]

        standby.journal.hint = late  # type: ignore[method-assign]
        owner.journal.hold = True
        wait_until(lambda: asked or standby.claimed)
        assert asked
        wait_until(lambda: status(owner.journal).node("b").offset > asked[0])
        assert standby.claimed is None and replica.owner.failed is None


def test_a_handover_has_the_named_standby_take_over(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    first = made("a")
    with first.serving():
        others = [made(name) for name in "bcd"]
        wait_until(lambda: [node.role for node in status(first.journal).nodes] == ["owner", *["standby"] * 3])
        with pytest.raises(Refused, match="is the owner"):
            ask(first.journal, HANDOVER, "a")
        with pytest.raises(Refused, match="no node has the name e"):
            ask(first.journal, HANDOVER, "e")
        ask(first.journal, HANDOVER, "c")
        wait_until(lambda: killed == [os.getpid()])
    wait_until(lambda: any(node.claimed for node in others))
    assert [node.claimed is not None for node in others] == [False, True, False]


def test_a_released_log_goes_to_the_standby_that_its_owner_named(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.replica._LOOK_AT_NODES_S", 0.1)
    monkeypatch.setattr("penstock.cluster.standby._HEIR_FIRST_S", 600.0)
    monkeypatch.setattr("penstock.cluster.replica.heir", lambda nodes: "c")
    first = made("a")
    with first.serving() as _:
        others = [made(name) for name in "bcd"]
        wait_until(lambda: all(node.named == "c" for node in others))
    wait_until(lambda: any(node.claimed for node in others))
    assert [node.claimed is not None for node in others] == [False, True, False]


def test_the_next_owner_reads_each_entry_at_once_when_the_owner_is_about_to_end(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.replica.heir", lambda nodes: "c")
    owner = made("a")
    with owner.serving() as (replica, _):
        other, named = made("b"), made("c")
        wait_until(lambda: named.named == "c" and other.named == "c")
        assert named.journal.closely == 0
        asyncio.run(replica.announce_end())
        wait_until(lambda: named.journal.closely)
    with named.serving():
        wait_until(lambda: other.known[-1:] == ["c"])
    assert [node.journal.closely for node in (owner, other, named)] == [0, 0, 1]


def test_a_standby_reads_as_usual_again_when_another_node_took_over(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.replica.heir", lambda nodes: "b")
    owner = made("a")
    with owner.serving() as (replica, _):
        standby = made("b")
        wait_until(lambda: standby.named == "b")
        asyncio.run(replica.announce_end())
        wait_until(lambda: standby.journal.closely)
        owner.journal.partition.put(encode(Kind.CLAIM, 0, 0, payload=b'{"node": "d"}'))
        wait_until(lambda: standby.known[-1:] == ["d"])
        wait_until(lambda: standby.journal.ended == 1)


def test_a_node_with_the_later_claim_knows_no_other_owner(made: Callable[..., Node]) -> None:
    """Or two standbys that claimed at once would pass clients on to each other."""
    with made("a").serving():
        second = made("b")
        wait_until(lambda: second.known == ["a"])
        claim = second.journal.claim

        def later(raw: bytes) -> int:
            second.journal.partition.put(encode(Kind.CLAIM, 0, 0, payload=b'{"node": "x"}'))
            return claim(raw)

        second.journal.claim = later  # type: ignore[method-assign]
    wait_until(lambda: second.claimed)
    assert second.known == ["a", None, "x", None]


def test_a_node_is_told_of_no_owner_of_the_time_before_it(made: Callable[..., Node]) -> None:
    """That one may be a standby by now, which passes clients on to this node."""
    with made("a").serving():
        pass
    second = made("b")
    wait_until(lambda: second.claimed)
    assert second.known == []


def test_a_standby_that_reads_of_an_earlier_release_claims_nothing(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been named then, and have read no further yet."""
    poll = MemoryFollower.poll
    with made("a").serving() as (replica, _):
        heir = json.dumps({"node": "a", "heir": "c"}).encode()
        replica.owner.append(Kind.BEAT, payload=heir)
    second = made("b")
    with second.serving():

        def one(self: MemoryFollower, seconds: float) -> list[tuple[int, bytes]]:
            found = poll(self, seconds)[:1]
            if found:
                self._next = found[0][0] + 1
            return found

        monkeypatch.setattr(MemoryFollower, "poll", one)
        third = made("c", suspect_s=600.0)
        wait_until(lambda: third.known == ["b"])
        assert third.claimed is None


def test_an_entry_behind_the_release_of_a_dead_process_takes_nothing_back(made: Callable[..., Node]) -> None:
    """Its last entries may be on their way while its supervisor releases the log."""
    first = made("a")
    with first.serving() as (replica, _):
        second = made("b", suspect_s=600.0)
        wait_until(lambda: second.known == ["a"])
        partition, owner = first.journal.partition, replica.owner
        with partition.lock:
            partition.entries.append(encode(Kind.RELEASE, owner.claim, 0))
            partition.entries.append(encode(Kind.BEAT, owner.claim, owner.last + 1, payload=b'{"node": "a"}'))
        wait_until(lambda: second.claimed)


def test_the_standby_that_is_least_behind_is_to_be_the_next_owner() -> None:
    def node(name: str, role: str, lag: int, seen_s: float = 0.5) -> NodeStatus:
        return NodeStatus(name, role, 0, 0, lag, 0, 0.0, seen_s, 1, {})

    nodes = [node("a", "owner", 0), node("b", "standby", 7), node("c", "standby", 3)]
    assert heir([*nodes, node("d", "standby", 0, seen_s=4.0), node("e", "gone", 0)]) == "c"
    assert heir(nodes[:1]) == ""


def test_a_standby_that_is_asked_makes_its_folder_anew_once(made: Callable[..., Node]) -> None:
    first = made("a")
    with first.serving():
        second = made("b")
        wait_until(lambda: contents(second.root) == contents(first.root) != {})
        wait_until(lambda: [node.role for node in status(first.journal).nodes] == ["owner", "standby"])
        stray = second.root / "shard-000" / "stray"
        stray.touch()
        ask(first.journal, REBUILD, "b")
        wait_until(lambda: not stray.exists())
        wait_until(lambda: contents(second.root) == contents(first.root))
        behind = status(first.journal).end
        wait_until(lambda: status(first.journal).node("b").offset > behind)
        assert status(first.journal).node("b").role == "standby"


def test_an_owner_whose_machine_says_that_it_ended_is_replaced_at_once(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.evidence.HELD_S", 0.0)
    owner = made("a")
    with owner.watched() as _:
        standby = made("b", suspect_s=600.0)
        wait_until(lambda: standby.watches)
        assert standby.claimed is None
    wait_until(lambda: standby.claimed)


def test_an_owner_that_gives_signs_of_life_is_not_replaced_whoever_refuses(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when something between the nodes ends connections, and refuses new ones."""
    monkeypatch.setattr("penstock.cluster.evidence.HELD_S", 0.0)
    monkeypatch.setattr("penstock.cluster.replica._BEAT_S", 0.0)
    owner = made("a")
    with owner.watched() as (replica, watched):
        standby = made("b", suspect_s=600.0)
        wait_until(lambda: standby.watches)
        watched.close()
        wait_until(lambda: standby.sees_an_end)
        kept = replica.owner.kept
        wait_until(lambda: replica.owner.kept > kept + 5)
        assert standby.sees_an_end and standby.claimed is None
    wait_until(lambda: standby.claimed)


def test_an_owner_that_loses_the_connection_of_a_standby_gives_a_sign_of_life(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.replica._BEAT_S", 3600.0)
    owner = made("a")
    with owner.watched() as (replica, watched):
        wait_until(lambda: replica.owner.kept == 1)
        address = Address.parse(watched.address)
        with socket.create_connection((address.host, address.port)) as connection:
            assert int.from_bytes(connection.recv(8), "big") == replica.owner.claim
            assert replica.owner.kept == 1
        wait_until(lambda: replica.owner.kept == 2)


class Pumped:
    """Counts its turns."""

    def __init__(self) -> None:
        self.pumped = 0

    def pump(self) -> None:
        self.pumped += 1


def test_an_owner_that_has_released_the_log_gives_no_sign_of_life(made: Callable[..., Node]) -> None:
    """The next owner ends its watch: an entry behind its claim would be told as a fault."""
    first = made("a")
    with first.owning() as replica:
        pass
    last = replica.owner.last
    replica.beat_soon()
    assert replica.owner.last == last and replica.owner.failed is None


def test_an_owner_knows_its_standbys_and_tells_them_in_metrics(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.cluster.replica._LOOK_AT_NODES_S", 0.05)
    first = made("a")
    with first.serving() as (replica, _):
        wait_until(lambda: "no standby follows the log" in caplog.text)
        made("b")
        wait_until(lambda: [node.role for node in replica.nodes] == ["owner", "standby"])
        told = "".join(written("", own_of_cluster(replica)))
        assert 'penstock_cluster_standby{node="b"} 1\n' in told
        assert 'penstock_cluster_lag_bytes{node="b"} ' in told
        assert 'penstock_cluster_lag_seconds{node="b"} 0.0\n' in told
        assert "penstock_cluster_lease_held 1\n" in told
        assert "penstock_cluster_claims_total 1\n" in told
        counts = [line for line in told.splitlines() if "answer_seconds_bucket" in line]
        assert len(counts) == len(ANSWER_BOUNDS_S) + 1 and int(counts[-1].split()[-1]) > 0


def test_a_node_neither_follows_a_newer_one_nor_claims_behind_it(made: Callable[..., Node]) -> None:
    """As during an upgrade: the owner has a newer format already."""
    node = made("a")
    wait_until(lambda: node.claimed)
    raw = bytearray(encode(Kind.CLAIM, 0, 0, payload=b"{}"))
    raw[2] += 1  # the version
    raw[4:8] = crc32c(raw[8:], crc32c(raw[:4])).to_bytes(4, "little")
    claim = node.journal.claim(bytes(raw))
    older = Standby(
        node.journal,
        node.root.parent / "b",
        identity={"node": "b"},
        suspect_s=0.0,
        on_follows=lambda: None,
        on_owner=lambda owner: None,
    )
    with pytest.raises(EntryNewer, match="install the owner's version"):
        older.run()
    assert node.journal.bounds().end == claim + 1


def test_a_week_of_traffic_does_not_let_the_partition_grow(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old segments hold a message that nobody takes, while much more goes through than is kept."""
    monkeypatch.setattr("penstock.cluster.replica._TRIM_EACH_S", 0.0)
    monkeypatch.setattr("penstock.cluster.replica._LOOK_S", 0.01)
    node = made("a")
    with node.serving() as (replica, log):
        feed = durable_feed(log)
        stuck = [fill(log, feed, 100 * KIB)[0] for _ in range(4)]

        def mark(needs: Needs, done: Callable[[], object]) -> None:
            for lsn in stuck:
                needs.need(lsn)
            done()

        log.low_water, log.mark_needs = lambda: stuck[0], mark
        partition, sizes = node.journal.partition, []
        for _ in range(8):
            fill(log, feed, 200 * KIB)
            keep_house(log)
            wait_until(lambda: partition.nbytes <= 2 * folder_bytes(node.root) + SPARE_BYTES)
            sizes.append(partition.nbytes)
        assert replica.statistics()["files_sent_again"] > 4
        assert replica.owner.nbytes > 2 * max(sizes)
        late = made("b")
        keep_house(log)
        wait_until(lambda: contents(late.root) == contents(node.root))


def folder_bytes(root: Path) -> int:
    return sum(file_sizes(root).values())


def test_each_claim_counts_on_from_the_one_before(made: Callable[..., Node]) -> None:
    with made("a").serving():
        second = made("b")
        wait_until(lambda: second.owners)
    wait_until(lambda: second.claimed)
    assert second.claimed is not None and second.claimed.identity["claims"] == 2


def test_a_standby_that_reads_slowly_tells_how_old_its_oldest_missing_entry_is(
    made: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made("a")
    with first.serving():
        second = made("b")
        wait_until(lambda: [node.role for node in status(first.journal).nodes] == ["owner", "standby"])
        second.journal.slow = True
        wait_until(lambda: status(first.journal).node("b").lag_s > 1.0)
        second.journal.slow = False
        wait_until(lambda: status(first.journal).node("b").lag_s == 0.0)


def test_a_node_with_a_damaged_folder_releases_the_log_and_makes_its_folder_anew(
    made: Callable[..., Node],
) -> None:
    """Or it would claim, fail and claim again, for ever."""
    first = made("a")
    with first.serving() as (_, log):
        fill(log, durable_feed(log), 100 * KIB)
    again = made("a")
    wait_until(lambda: again.claimed)
    whole = contents(again.root)
    min(again.root.glob("shard-000/wal/*.wal")).unlink()
    with pytest.raises(LogDamaged) as damaged, again.owning() as replica:
        try:
            Log.open(again.root, options(), files=replica.files, committer=replica.committer)
        except LogDamaged as error:
            replica.give_up(error)
            raise
    assert again.journal.bounds().end > replica.owner.claim + 1, "it released the log"
    third = made("a")
    wait_until(lambda: third.claimed)
    assert contents(third.root) == whole
    with pytest.raises(StartError, match="topic test may hold a damaged log"), third.owning() as replica:
        replica.give_up(damaged.value)


async def passed(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)
