"""The owner's side of a replicated log while it serves: signs of life, trimming, the position on disk."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cluster.control import HANDOVER, NodeStatus, heir, note, status
from penstock.cluster.standby import Claimed
from penstock.errors import StartError
from penstock.log_core.errors import LogDamaged
from penstock.log_core.files.files import Files
from penstock.log_core.replication.committer import JournalCommitter
from penstock.log_core.replication.entries import Kind, encode
from penstock.log_core.replication.files import ReplicatedFiles, file_sizes
from penstock.log_core.replication.journal import Journal, JournalFailed
from penstock.log_core.replication.mirror import sync_all
from penstock.log_core.replication.owner import ANSWER_BOUNDS_S, Owner, boot_time
from penstock.log_core.replication.position import Begin
from penstock.logs import fields
from penstock.protocols.net.open_socket import OpenSocket

__all__ = ["Replica"]

_LOG: Final = logging.getLogger("penstock.cluster")

_BEAT_S: Final = 0.5
_LOOK_S: Final = 0.1
_NOTE_EACH_S: Final = 1.0
_TRIM_EACH_S: Final = 5.0
_LOOK_AT_NODES_S: Final = 5.0
_LOOK_ALONE_S: Final = 0.5
"""The same while no standby is there to be the next owner."""
_LAG_WARN_S: Final = 30.0
_ANNOUNCED_S: Final = 0.06
"""Standbys read an entry some 25 ms late, and it takes a moment to read on by another client."""


class Replica:
    """Made with the claim; `files` and `committer` are for the log, `start` when it is open."""

    def __init__(
        self,
        journal: Journal,
        root: Path,
        claimed: Claimed,
        *,
        on_serving: Callable[[bool], object] = lambda serves: None,
        open_sockets: dict[str, OpenSocket] | None = None,
        lease_s: float,
        stop_s: float,
        spare_bytes: int,
    ) -> None:
        """`on_serving` is told whether messages are handed out; `open_sockets`: of the standby's listeners,
        for the gateway's; `lease_s`: as cluster.lease_s; `stop_s`: a stop waits so many seconds for Kafka;
        `spare_bytes`: as kafka.spare_bytes."""
        self.open_sockets: Final = open_sockets or {}
        self._on_serving = on_serving
        self._serves = False
        position = claimed.position
        self.owner: Final = Owner(
            journal, claimed.claim, position.begins, position.nbytes, answered_at=claimed.sent_at
        )
        self.lease_s: Final = lease_s
        self.files: Final = ReplicatedFiles(root, self.owner)
        self._journal = journal
        self._root = root
        self._claimed = claimed
        self._is_damaged = False
        self._position = position
        self._identity = claimed.identity
        self._ends_soon = False
        self._beat = self._sign("")
        self._stop_s = stop_s
        self._spare_bytes = spare_bytes
        self._ends = threading.Event()
        self._beaten_at = -math.inf
        self._trimmed_at = time.monotonic()
        self._trimmed_to = -1
        self._sent_again = 0
        self._sending: tuple[str, Begin] | None = None
        """The file that was sent again last, and where its older copy begins."""
        self._unknown: set[str] = set()
        """Files whose place in the journal was not known at the last look."""
        self.owner.on_asked = self._asked
        self._lagging: set[str] = set()
        self.nodes: tuple[NodeStatus, ...] = ()
        """All nodes, as they told some seconds ago."""
        self._thread = threading.Thread(target=self._run, name="penstock-replica", daemon=True)
        if claimed.sends_folder:
            self._send_folder()
        self._thread.start()
        threading.Thread(target=self._look_at_nodes, name="penstock-nodes", daemon=True).start()

    def committer(self, files: Files, done: Callable[[int, int, OSError | None], object]) -> JournalCommitter:
        """The log's committer."""
        return JournalCommitter(self.owner, done)

    @property
    def unanswered_s(self) -> float:
        """Seconds since the newest entry that Kafka answered was sent."""
        return boot_time() - self.owner.answered_at

    @property
    def name(self) -> str:
        """Of this node."""
        return str(self._identity["node"])

    def serving(self, on: bool) -> None:
        """Messages are handed out, or not, as the lease says."""
        if on != self._serves:
            self._serves = on
            self._on_serving(on)

    def statistics(self) -> dict[str, float]:
        """Figures for metrics, by name."""
        owner = self.owner
        return {
            "claim_offset": owner.claim,
            "lease_held": int(self.unanswered_s <= self.lease_s),
            "unanswered_seconds": round(self.unanswered_s, 3),
            "unanswered_bytes": owner.unanswered_bytes,
            "sent_bytes": owner.nbytes,
            "claims": int(str(self._identity.get("claims", 0))),
            "gaps_read": owner.gaps_read,
            "trimmed_to_offset": max(self._trimmed_to, 0),
            "files_sent_again": self._sent_again,
        }

    def answer_times(self) -> tuple[Sequence[float], Sequence[int], float]:
        """Of a histogram: upper bounds in seconds, counts up to each and above, the sum in seconds."""
        return ANSWER_BOUNDS_S, tuple(self.owner.answer_counts), round(self.owner.answer_s, 6)

    def _send_folder(self) -> None:
        """Send all files. Only then POSITION says that the folder is the journal's. Raises JournalFailed."""
        for name in file_sizes(self._root):
            self.files.send(name)
        if not self.owner.wait_kept(self.owner.last):
            raise JournalFailed(str(self.owner.failed))
        self._position.missing = 0
        self._note()

    def beat_soon(self) -> None:
        """Give a sign of life: a standby lost its connection, and may wonder. For any thread.

        An owner that has ended gives none: the next one ends its watch.
        """
        if self._ends.is_set():
            return
        now = time.monotonic()
        if now - self._beaten_at < _LOOK_S:  # whoever connects again and again gets no entry for each time
            self._beaten_at = -math.inf
            return
        self._beaten_at = now
        with suppress(JournalFailed):
            self.owner.append(Kind.BEAT, payload=self._beat)

    # The thread

    def _run(self) -> None:
        noted_at = 0.0
        while not self._ends.wait(_LOOK_S):
            owner = self.owner
            if owner.failed is not None:
                return
            try:
                now = time.monotonic()
                if now - self._beaten_at >= _BEAT_S:
                    self._beaten_at = now
                    owner.append(Kind.BEAT, payload=self._beat)
                if now - noted_at >= _NOTE_EACH_S:
                    noted_at = now
                    self._note()
                if now - self._trimmed_at >= _TRIM_EACH_S and not self._ends_soon:  # the release would wait
                    self._trimmed_at = now
                    self._trim()
            except JournalFailed as error:
                _LOG.warning("%s", error)
            except OSError as error:
                owner.fail(JournalFailed(f"the data folder failed: {error}"))
            except Exception as error:
                _LOG.exception("an internal error in the owner's upkeep")
                owner.fail(JournalFailed(f"an internal error: {error!r}"))

    def _look_at_nodes(self) -> None:
        """A thread of its own, since Kafka may not answer for a while."""
        alone, next_owner = False, ""
        while True:
            ends = self._ends.wait(_LOOK_AT_NODES_S if next_owner else _LOOK_ALONE_S)
            if ends or self.owner.failed is not None:
                return
            try:
                self.nodes = status(self._journal).nodes
            except JournalFailed as error:
                _LOG.debug("the nodes are not known: %s", error)
                continue
            next_owner = heir(self.nodes)
            self._beat = self._sign(next_owner)
            for node in self.nodes:
                lags = node.role == "standby" and node.lag_s > _LAG_WARN_S
                if lags and node.node not in self._lagging:
                    _LOG.warning("the standby %s is %.0f s behind", node.node, node.lag_s)
                (self._lagging.add if lags else self._lagging.discard)(node.node)
            was, alone = alone, not any(node.role == "standby" for node in self.nodes)
            if alone and not was:
                _LOG.warning("no standby follows the log: nobody would take over from this node")
            elif was and not alone:
                _LOG.info("a standby follows the log")

    def _sign(self, next_owner: str) -> bytes:
        """A sign of life, which names the standby that is to be the next owner."""
        self._heir = next_owner
        return json.dumps({**self._identity, "heir": next_owner, "ends": self._ends_soon}).encode()

    def _note(self) -> None:
        position, owner = self._position, self.owner
        position.claim, position.index = owner.claim, owner.kept
        position.offset = owner.kept_offset + 1
        position.nbytes = owner.nbytes
        position.begins = owner.begins()
        position.write(self._root)
        self._journal.note(note(self._identity, "owner", position))

    def _trim(self) -> None:
        """Delete what no file needs; send old files again while the journal is too large."""
        sizes, begins = file_sizes(self._root), self.owner.begins()
        unknown = {name for name in sizes if name not in begins}
        if unknown or not sizes:
            # As a rule they are on their way. Where a claim of another node fell into one, it is sent again.
            for name in unknown & self._unknown:
                self.files.send(name)
            self._unknown = unknown
            return
        oldest = min(sizes, key=lambda name: begins[name].offset)
        folder_bytes = sum(sizes.values())
        if self.owner.nbytes - begins[oldest].at_bytes > 2 * folder_bytes + self._spare_bytes:
            newest = max(name for name in sizes if name.endswith(".wal"))
            if oldest != newest and self._sending != (oldest, begins[oldest]):
                # The newest is being written, and of another one the answer is on its way.
                self._sending = (oldest, begins[oldest])
                _LOG.info(
                    "an old file is sent again, so that Kafka can trim the log", extra=fields(file=oldest)
                )
                self.files.send(oldest)
                self._sent_again += 1
                self._trimmed_at = 0.0  # look at the next one soon: traffic goes on
        if begins[oldest].offset > self._trimmed_to:
            self._journal.trim(begins[oldest].offset)
            self._trimmed_to = begins[oldest].offset

    # The end

    def _asked(self, request: bytes) -> None:
        """An administrator wants another owner: this process stops cleanly, and is started again."""
        if json.loads(request)["ask"] == HANDOVER:
            _LOG.info("the log is handed over")
            os.kill(os.getpid(), signal.SIGTERM)

    async def announce_end(self) -> None:
        """The gateway serves for a moment more: the next owner begins to read each entry at once."""
        self._ends_soon = True
        self._beat = self._sign(self._heir)
        with suppress(JournalFailed):
            self.owner.append(Kind.BEAT, payload=self._beat)
            if self._heir:
                await asyncio.sleep(_ANNOUNCED_S)

    def stopping(self) -> None:
        """The gateway stops: it waits for Kafka no longer than some seconds."""

        def look() -> None:
            if self.unanswered_s > self._stop_s / 2:
                self.owner.fail(JournalFailed("the gateway stopped while Kafka did not answer"))

        timer = threading.Timer(self._stop_s, look)
        timer.daemon = True
        timer.start()

    def give_up(self, error: LogDamaged) -> None:
        """The folder cannot be served: `close` releases the log, and the next start makes the folder anew.

        Raises StartError: nothing is better then, since the folder is as the journal has it.
        """
        self._is_damaged = not self._claimed.sends_folder
        if self._claimed.sends_folder or self._claimed.is_anew:
            raise StartError(
                f"the topic {self._journal.topic} may hold a damaged log: {error.message}",
                remedy="start the node once more, which makes its folder anew; if it ends so again, go back "
                "to one machine and repair its folder, see docs/how-to/cluster.md",
            ) from None
        _LOG.error("the log is released, and this node makes its folder anew: %s", error.message)

    def close(self) -> None:
        """Behind the log's end. If all is kept, the log is released, and the folder is a standby's again."""
        self._ends.set()
        self._thread.join()
        owner = self.owner
        if owner.failed is not None or not owner.wait_kept(owner.last, self._stop_s):
            return
        try:
            self._journal.hint(encode(Kind.RELEASE, owner.claim, 0))  # first: clients wait for the next owner
        except JournalFailed as error:
            _LOG.warning("the log was not released, standbys wait: %s", error)
        if self._is_damaged:
            return
        sync_all(self._root)
        self._position.owner = False
        self._position.boot = ""
        self._note()
