"""A standby: keeps the same files as the owner, and claims the log when the owner serves no more.

It suspects the owner after `suspect_s` without an entry. Only time counts in which Kafka answered and had
nothing more to read, so a node that is cut off itself suspects nobody. A partition whose follower has died
answers as well, and shows no entry until its leader has given that follower up. So a standby that suspects
its owner appends an entry first, and claims when that one has come and none of the owner before it. A
RELEASE needs no waiting, and hardly does an owner whose machine says that its process has ended
(`evidence`): the owner names in its signs of life which standby is to be next, and that one claims at once.
Others wait for a random moment more, so that two of them seldom claim at once; if they do, the later claim
wins, and the node of the earlier one goes on as a standby.

A folder that was a gateway's alone may become the first of a cluster: its owner sends it whole. Until then
no other node may serve, and no entry of another node may touch that folder.
"""

from __future__ import annotations

import json
import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.cluster.control import ALIVE, HANDOVER, REBUILD, note
from penstock.cluster.evidence import Rhythm
from penstock.cluster.reading import Reading
from penstock.cluster.settings import suspect_least_s
from penstock.cluster.watch import Watch
from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.replication.entries import Kind, decode, encode
from penstock.log_core.replication.fence import Verdict
from penstock.log_core.replication.files import file_sizes
from penstock.log_core.replication.journal import Bounds, Follower, Journal, JournalFailed, Trimmed
from penstock.log_core.replication.mirror import Mirror, begin_anew, sync_all
from penstock.log_core.replication.owner import boot_time
from penstock.log_core.replication.position import Position
from penstock.logs import fields

__all__ = ["Claimed", "Standby"]

_LOG: Final = logging.getLogger("penstock.cluster")

_ASK_EACH_S: Final = 0.2
_ASK_EACH_SOON_S: Final = 0.02
"""The same when the log was released, or the owner's machine has closed its connection."""
_ASK_S: Final = 1.0
_COUNTED_MAX_S: Final = 0.5
"""The longest silence that one answer stands for."""
_NOTE_EACH_S: Final = 1.0
_SPREAD_S: Final = 0.5
_SPREAD_RELEASED_S: Final = 0.1
_HEIR_FIRST_S: Final = 0.4
"""The standby that the owner named has so long before others claim a log that was released."""
_RIVALS_S: Final = 0.1
"""A claim of another node that comes so soon after one's own was made without knowing of it."""
_APPLY: Final = Verdict.APPLY
_SAY: Final = frozenset({Kind.CLAIM, Kind.BEAT, Kind.RELEASE, Kind.ASK})
"""Entries that change no file."""
_SUSPECTED: Final = "suspected"
_SPREAD_FIRST_S: Final = 1.0
"""Of a journal that had no owner yet: the nodes of a new cluster are often started together."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """This node owns the log now."""

    claim: int
    """Offset of its CLAIM."""
    sent_at: float
    """When it was sent, as `boot_time`."""
    position: Position
    sends_folder: bool
    """The folder was a gateway's alone: it must be sent as it is."""
    is_anew: bool
    """This process made the folder from the start of the journal: all of it came from there."""
    identity: dict[str, object]
    """Of this node, for its signs of life."""


class Standby:
    """Runs in a thread of its own."""

    def __init__(
        self,
        journal: Journal,
        root: Path,
        *,
        identity: dict[str, object],
        suspect_s: float,
        on_follows: Callable[[], object],
        on_owner: Callable[[dict[str, object] | None], object],
    ) -> None:
        """Not running yet.

        Args:
            journal: It stays open.
            root: The data folder.
            identity: Of this node, for its CLAIM and its notes.
            suspect_s: Seconds of silence after which this node claims.
            on_follows: Told once, when the folder is found to belong to the journal.
            on_owner: Told of each new owner, None = released.

        """
        self._journal = journal
        self._root = root
        self._identity = identity
        self._suspect_s = suspect_s
        self._on_follows = on_follows
        self._on_owner = on_owner
        self._stopping = threading.Event()
        self._released = False
        self._sends_folder = False
        self._is_anew = False
        self._claimed_at = -1
        self._lease_s = 0.0
        """The owner's, whose settings may be other ones."""
        self._told_of = -1
        """The claim of the owner that `on_owner` was told of; -1: of none."""
        self._asks_from = 0
        """Requests before this offset were for an earlier process."""
        self._heir = ""
        """The node that an administrator wants to be the next owner; empty: any."""
        self._named = ""
        """The one that the owner named; empty: none."""
        self._ends_soon = False
        """The owner is about to release the log."""
        self._told = b""
        """The newest words of the owner about itself."""
        self._warned_of = 0
        self._watch = Watch()
        self._silent_s = 0.0
        self._rhythm = Rhythm(0.0)
        self._asked_at = 0.0
        self._noted_at = 0.0
        self._ends_seen: deque[tuple[float, int]] = deque()
        """When the journal was seen to end where, of the ends that are not reached yet."""
        self._claims = 0
        """How many the owner says there were."""

    def stop(self) -> None:
        """Have `run` return."""
        self._stopping.set()

    def run(self) -> Claimed | None:
        """Follow the journal until this node owns it; None: `stop` was called.

        Raises StartError, JournalFailed, EntryDamaged, EntryNewer, Hole, OSError.
        """
        position, self._sends_folder = self._position()
        self._asks_from = self._journal.bounds().end
        self._on_follows()
        try:
            while True:
                try:
                    return self._read_from(position)
                except Trimmed as error:
                    _LOG.warning("the folder is made anew from the journal: %s", error)
                    position = self._anew(self._journal.bounds())
        finally:
            self._watch.stop()

    def _read_from(self, position: Position) -> Claimed | None:
        """As `run`; raises Trimmed, too."""
        reading = Reading(self._journal, position.offset)
        mirror = Mirror(self._root, position)
        try:
            return self._follow(reading, mirror)
        except Trimmed:
            mirror.close()
            raise
        finally:
            reading.close()

    def _position(self) -> tuple[Position, bool]:
        """Where to read on, and whether the folder was a gateway's alone. Raises StartError."""
        topic, bounds = self._journal.topic, self._journal.bounds()
        found = Position.read(self._root)
        if found is None:
            if not file_sizes(self._root):
                return self._anew(bounds), False
            if bounds.end > 0:
                raise self._foreign()
            return Position(topic), True
        if found.journal != topic:
            raise StartError(
                f"{self._root} follows the topic {found.journal}, not {topic}",
                remedy="correct kafka.topic or cluster.name, or move the folder away",
            )
        if bounds.end < found.offset:
            raise StartError(
                f"the topic {topic} ends at {bounds.end}, and this folder has read up to {found.offset}",
                remedy="Kafka lost entries or the topic was made anew: see docs/how-to/cluster.md",
            )
        if not found.follows or found.offset < bounds.first:
            _LOG.warning("the folder may differ from the journal: it is made anew")
            return self._anew(bounds), False
        return found, False

    def _anew(self, bounds: Bounds) -> Position:
        """Begin at the start of the journal, with an empty folder."""
        self._is_anew = True
        found = begin_anew(self._root, self._journal.topic)
        found.offset = bounds.first
        return found

    def _foreign(self) -> StartError:
        return StartError(
            f"{self._root} holds a log of its own, and the topic {self._journal.topic} holds another one",
            remedy="to join that cluster, move the folder away; to begin one with this folder, stop all "
            "nodes, delete the topic and start this node first",
        )

    def _follow(self, reading: Reading, mirror: Mirror) -> Claimed | None:
        self._silent_s, self._asked_at, self._released = 0.0, time.monotonic(), False
        self._rhythm = Rhythm(self._asked_at)
        delay = random.uniform(0, _SPREAD_S)
        while not self._stopping.is_set():
            closely = self._ends_soon and self._is_heir
            follower = reading.follower(closely=closely, first=mirror.position.offset)
            if self._take(follower.poll(self._ask_each_s), mirror):
                self._silent_s = 0.0
                self._rhythm.heard(time.monotonic())
            while self._ends_seen and self._ends_seen[0][1] <= mirror.position.offset:
                self._ends_seen.popleft()
            self._note(mirror)
            # Of the release of an earlier owner, the next claim was seen to be there already.
            is_last = self._released and mirror.position.offset == follower.end_seen()
            if is_last and self._is_heir and not mirror.position.missing:
                claimed = self._claim(follower, mirror)
                if claimed is not None:
                    return claimed
                self._silent_s = 0.0
                continue
            if not self._due():
                continue
            bounds = self._bounds(follower)
            if bounds is None:
                continue
            if mirror.position.offset < bounds.end:
                self._ends_seen.append((self._asked_at, bounds.end))
                self._silent_s = 0.0
                continue
            if mirror.position.missing:
                self._warn_missing(mirror.position.missing)
                continue
            if self._silent_s >= self._due_s(mirror, delay):
                if self._reason(mirror) == _SUSPECTED and not self._is_silent(follower, mirror):
                    self._silent_s = 0.0
                    continue
                claimed = self._claim(follower, mirror)
                if claimed is not None:
                    return claimed
                self._silent_s, delay = 0.0, random.uniform(0, _SPREAD_S)
        self._close(mirror)
        return None

    def _due_s(self, mirror: Mirror, delay: float) -> float:
        """After so many seconds of silence this node claims; `delay`: by chance, up to _SPREAD_S."""
        if self._sends_folder:
            return 0.0
        least_s = 0.0 if self._released else self._rhythm.unusual_s
        if self._released or self._is_gone(mirror):
            if self._is_heir:
                return least_s
            if not self._heir:
                first_s = _HEIR_FIRST_S if self._named else 0.0
                return least_s + first_s + delay * _SPREAD_RELEASED_S / _SPREAD_S
        if mirror.position.claim < 0:
            return delay * _SPREAD_FIRST_S / _SPREAD_S
        return max(self._suspect_s, suspect_least_s(self._lease_s)) + delay

    def _is_gone(self, mirror: Mirror) -> bool:
        """The owner's machine says that its process has ended, and the partition has nothing newer of it.

        Kafka has just told its end. A device between the nodes may refuse in the owner's place: then there
        are entries.
        """
        return self._rhythm.is_broken(time.monotonic()) and self._watch.is_gone(mirror.position.claim)

    def _is_silent(self, follower: Follower, mirror: Mirror) -> bool:
        """Whether the journal keeps an entry of this node, and has none of the owner before it."""
        question = json.dumps({"ask": ALIVE}).encode()
        try:
            asked = self._journal.hint(encode(Kind.ASK, mirror.position.claim, 0, payload=question))
        except JournalFailed as error:
            _LOG.debug("%s", error)
            return False
        while mirror.position.offset <= asked:
            if self._take(follower.poll(_ASK_EACH_SOON_S), mirror) or self._stopping.is_set():
                return False
        return True

    @property
    def _is_heir(self) -> bool:
        """This node alone was named to be the next owner."""
        return (self._heir or self._named) == self._identity["node"]

    def _close(self, mirror: Mirror) -> None:
        """Leave the folder so that this node can go on from it after a restart of the machine."""
        resumable = mirror.resumable and not self._sends_folder
        mirror.close()
        if resumable:
            sync_all(self._root)
            mirror.position.boot = ""
            mirror.position.write(self._root, sync=True)

    def _warn_missing(self, missing: int) -> None:
        if missing != self._warned_of:
            self._warned_of = missing
            _LOG.warning(
                "the first owner has not sent %d of its files, so no node can serve: stop all nodes, "
                "delete the topic, and start the node that has the folder",
                missing,
            )

    @property
    def _ask_each_s(self) -> float:
        return _ASK_EACH_SOON_S if self._released or self._watch.lost else _ASK_EACH_S

    def _due(self) -> bool:
        return time.monotonic() - self._asked_at >= self._ask_each_s

    def _bounds(self, follower: Follower) -> Bounds | None:
        """The journal's bounds; the time since the last answer counts as silence. None: no answer."""
        before, self._asked_at = self._asked_at, time.monotonic()
        try:
            found = follower.bounds(_ASK_S)
        except JournalFailed as error:
            _LOG.debug("%s", error)
            return None
        self._silent_s += min(self._asked_at - before, _COUNTED_MAX_S)
        return found

    def _take(self, entries: list[tuple[int, bytes]], mirror: Mirror) -> bool:
        """Apply entries; whether one of them was a sign of an owner."""
        counted = False
        for offset, raw in entries:
            entry = decode(raw)
            if self._sends_folder and offset != self._claimed_at:
                raise self._foreign()
            verdict = mirror.take(offset, len(raw), entry)
            if verdict is _APPLY and entry.kind not in _SAY:
                counted = True
                continue
            if entry.kind == Kind.ASK and offset >= self._asks_from:
                self._asked(offset, json.loads(bytes(entry.payload)))
            if verdict is Verdict.SKIP:
                continue
            counted = True
            if verdict in (Verdict.RELEASED, Verdict.CLAIMED):
                # An entry of a process that died may come behind the release in its name, which still holds.
                self._released = verdict is Verdict.RELEASED
            if verdict is Verdict.CLAIMED:
                if offset != self._claimed_at:
                    self._heir = ""
                mirror.position.missing = int(json.loads(bytes(entry.payload)).get("files", 0))
            if verdict is Verdict.CLAIMED and offset == self._claimed_at:
                self._forget_owner()  # clients of a node that claimed a moment before wait for this one
            elif entry.kind in (Kind.CLAIM, Kind.BEAT):
                self._heard(offset, mirror.position.claim, bytes(entry.payload))
            elif verdict is Verdict.RELEASED:
                self._forget_owner()
        return counted

    def _asked(self, offset: int, request: dict[str, str]) -> None:
        """An administrator wants something of a node. Raises Trimmed: this one reads from the start again."""
        if request["ask"] == HANDOVER:
            self._heir = request["to"]
        elif request["ask"] == REBUILD and request["to"] == self._identity["node"]:
            self._asks_from = offset + 1
            raise Trimmed("an administrator asked for it")

    def _heard(self, offset: int, claim: int, identity: bytes) -> None:
        """The owner told who it is. A reader that began behind its CLAIM learns it from a BEAT.

        Owners of the time before this process are not told of: two standbys could pass clients on to each
        other.
        """
        if claim == self._claimed_at or identity == self._told:
            return
        owner = json.loads(identity)
        self._named = str(owner.get("heir", ""))
        self._ends_soon = bool(owner.get("ends"))
        self._claims = int(owner.get("claims", 0))
        self._lease_s = float(owner.get("lease_s", 0.0))
        if offset < self._asks_from:
            return
        self._told = identity
        self._watch.follow(claim, str(owner.get("watch", "")))
        if claim == self._told_of:
            return
        self._told_of = claim
        _LOG.info("follows an owner", extra=fields(node=owner.get("node"), offset=claim))
        self._on_owner(owner)

    def _forget_owner(self) -> None:
        self._watch.follow(-1, "")
        if self._told_of >= 0:
            self._told_of, self._told = -1, b""
            self._on_owner(None)

    def _note(self, mirror: Mirror) -> None:
        now = time.monotonic()
        if now - self._noted_at < _NOTE_EACH_S:
            return
        self._noted_at = now
        if not self._sends_folder:  # its position is true when all of it is sent
            mirror.note()
        lag_s = now - self._ends_seen[0][0] if self._ends_seen else 0.0
        self._journal.note(note(self._identity, "standby", mirror.position, lag_s))

    def _reason(self, mirror: Mirror) -> str:
        """Why this node claims, for the log."""
        if mirror.position.claim < 0:
            return "first"
        return "released" if self._released else "ended" if self._is_gone(mirror) else _SUSPECTED

    def _claim(self, follower: Follower, mirror: Mirror) -> Claimed | None:
        """Claim the log; None: another node has claimed it since, or `stop` was called."""
        reason = self._reason(mirror)
        files = len(file_sizes(self._root)) if self._sends_folder else 0
        self._identity["claims"] = self._claims + 1
        payload = json.dumps({**self._identity, "files": files}).encode()
        sent_at = boot_time()
        raw = encode(Kind.CLAIM, 0, 0, payload=payload)
        claim = self._claimed_at = self._journal.claim(raw)
        is_heir, expected = self._is_heir, mirror.position.offset
        try:
            if is_heir and claim == expected:
                self._take([(claim, raw)], mirror)  # there is nothing to read before it
            # A little longer than needed: of nodes that claim at once, only the last one begins to serve.
            until = math.inf
            while not self._stopping.is_set():
                if until == math.inf and mirror.position.offset > claim:
                    until = time.monotonic() + (0.0 if is_heir else _RIVALS_S)
                if time.monotonic() >= until:
                    break
                self._take(follower.poll(_RIVALS_S / 5), mirror)
        except StartError:  # another node claimed first: it can go on
            self._journal.hint(encode(Kind.RELEASE, claim, 0))
            raise
        if self._stopping.is_set():
            self._journal.hint(encode(Kind.RELEASE, claim, 0))
            return None
        if mirror.position.claim != claim:
            _LOG.info("another node claimed at the same time", extra=fields(offset=mirror.position.claim))
            return None
        mirror.close()
        position = mirror.position
        if self._sends_folder:
            position.owner = True  # it is written when all of the folder was sent
        else:
            position.begin_to_own(self._root)
        seconds = round(boot_time() - sent_at, 4)
        _LOG.info("claimed", extra=fields(offset=claim, reason=reason, seconds=seconds))
        return Claimed(claim, sent_at, position, self._sends_folder, self._is_anew, self._identity)
