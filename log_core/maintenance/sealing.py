"""Sealing: a closed segment that leaves traffic retention is rewritten with the records that are still
needed.

It leaves retention partition by partition (`retention`): partitions that want it are kept whole, the
others are thinned. Feeds with a retention of their own count by themselves (`feed_retention`).

So a queue that nobody consumes keeps its own messages, not everything that was written in between. A
stream keeps its retention, compressed if at most a third remains. A segment that nobody needs keeps only
its head. Before that a segment stays as it was written: by then most messages are done and are never
written twice.

    1  the queues mark the records they need (`Log.mark_needs`), on the loop
    2  these are written to NNNNNNNNNN.wal.new, compressed in blocks, which is synced
                                                                                 seal.before, seal.written
    3  the file gets the segment's name, together with the knowledge of readers  seal.renamed
    4  the folder is synced, the sparse index made anew                          seal.done, tix.*

A crash before 3 leaves the segment as it was. After 3 the sparse index does not fit the shorter file, so a
start scans that and makes the index anew. LSNs, times and record numbers do not change, so feeds, cursors
and positions stay valid. The feed index stays, too; an entry whose record is gone counts as done.

A sealed segment is looked at again, because records that were needed then may not be needed any more.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.log_core.batch._blocks import pack
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import SEALED, WAL, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.files.space_release import Releaser
from penstock.log_core.maintenance._seal import Needs, end_note
from penstock.log_core.maintenance.feed_retention import RetentionFeeds
from penstock.log_core.maintenance.retention import Kept
from penstock.log_core.segments.segment import OWN, Marks, Segment, Segments

__all__ = ["LOOK_EACH_S", "samples", "seal", "unwanted_bytes", "worth_a_look"]

_LOG: Final = logging.getLogger("penstock.log")

LOOK_EACH_S: Final = 60.0
"""Least time between two looks at the same segment."""
_ROOM_BYTES: Final = 1 << 20
"""The rest of a segment is compressed when it has so many bytes."""
_LOOK_BYTES: Final = 1 << 20
"""Of a segment at once: half a millisecond."""
_PAUSE_MAX_S: Final = 0.001
_WORTH: Final = 0.75
"""A segment is rewritten when at most this part of its bytes stays."""
_WORTH_PACKED: Final = 1 / 3
"""Or when, compressed, at most this part of it would be left. That costs four times what storing it did, and
what is compressed is not sent from its file any more; half is soon saved, as heads of records compress."""
_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 1 << 18
"""Of a segment, to see what a rewriting saves: it left the page cache long ago, and reading all of it to
leave it alone would cost as much as storing it did."""
_PACKED_EACH: Final = 4
"""Of the samples one in so many is compressed."""


def worth_a_look(
    segments: Sequence[Segment], unwanted: Callable[[Segment], int], checkpoint_lsn: int, now_s: float
) -> Segment | None:
    """The segment to look at next: never looked at, or longest ago; None: none is due.

    It must be indexed, a checkpoint behind it must have the tables, for its state is thrown away, and so much
    of it must be beyond retention (`unwanted` bytes) that a rewriting can be worth it.
    """
    due = [
        segment
        for segment in segments
        if segment.indexed
        and segment.next_lsn <= checkpoint_lsn + 1
        and now_s - segment.looked_at >= LOOK_EACH_S
        and segment.end > WAL_HEAD_BYTES + 96  # there is more than the note of its end
        and unwanted(segment) >= (1 - _WORTH) * (segment.end - WAL_HEAD_BYTES)
    ]
    return min(due, key=lambda segment: segment.looked_at, default=None)


def unwanted_bytes(segment: Segment, retained: Kept, retention_feeds: RetentionFeeds) -> int:
    """Bytes of a closed segment that no retention wants, about."""
    if segment.held is None:
        return 0
    unwanted = sum(segment.held[lp] for lp in retained.unwanted(segment))
    return unwanted + (retention_feeds.released_bytes(segment) if segment.next_lsn <= retained.leased else 0)


def seal(
    files: Files,
    folder: Folder,
    segments: Segments,
    segment: Segment,
    needs: Needs,
    *,
    thinned: Set[int],
    log_id: bytes,
    level: int,
    releaser: Releaser,
) -> int:
    """Rewrite a segment, if that saves enough; the bytes saved. Not on the loop.

    `thinned`: the partitions of which only what is needed stays; `needs` has the others whole.
    `level`: of zstd, 0 = not compressed. `releaser` has the file as it was. Raises OSError, ValueError (it is
    damaged: it stays as it is).
    """
    if not segment.sealed and not _pays(segments.marks_of(segment), segment, needs, level):
        return 0
    path = segment.path.resolve()  # it may lie in another folder (`places`)
    new = path.with_name(path.name + ".new")
    files.reached("seal.before")
    try:
        written = _write_survivors(files, new, segment, needs, level)
        if written is None:
            files.unlink(new)
            return 0
    except (OSError, ValueError):
        files.unlink(new)  # a full disk needs the room
        raise
    files.reached("seal.written")
    end, sparse, held = written
    with releaser.piecemeal(path), segments.swap:
        files.rename(new, path)
        saved, segment.end = segment.end - end, end
        segment.marks = sparse
        segment.held = held
        segment.thinned |= thinned - {OWN}
        segment.gaps = segment.sealed = True
    files.reached("seal.renamed")
    files.sync_folder(path.parent)
    files.reached("seal.done")
    segment.write_time_index(files, folder, log_id)
    segments.forget_marks(segment.number)
    segment.marks = None
    return saved


def _pays(marks: Marks, segment: Segment, needs: Needs, level: int) -> bool:
    """Whether to rewrite a segment as it was written: few bytes stay, or they are worth compressing; as far
    as samples tell.
    """
    seen = stay = raw = packed = 0
    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead of a sample
        for number, (begin, behind) in enumerate(samples(marks, segment.end)):
            began = time.monotonic()
            data = os.pread(fd, behind - begin, begin)
            part, _ = needs.staying(data, 0)
            seen += len(data)
            stay += part
            if level and number % _PACKED_EACH == 0:
                survivors, _, _, _ = needs.survivors(data, 0, _SAMPLE_BYTES, _LOOK_BYTES)
                raw += len(survivors)
                packed += sum(len(piece) for piece, _, _ in pack(survivors, level))
            time.sleep(min(time.monotonic() - began, _PAUSE_MAX_S))
    finally:
        os.close(fd)
    return stay <= _WORTH * seen or (raw > 0 and stay * packed <= _WORTH_PACKED * seen * raw)


def samples(marks: Marks, end: int) -> list[tuple[int, int]]:
    """Where samples of a segment of `end` bytes begin and end: whole batches, spread over it; all of a small
    one.
    """
    apart = max(_SAMPLE_BYTES, (end - WAL_HEAD_BYTES) // _SAMPLES)
    begins = [WAL_HEAD_BYTES, *(offset for offset in marks.offsets if offset > WAL_HEAD_BYTES), end]
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(begins) - 1:
        behind = min(bisect_left(begins, begins[at] + _SAMPLE_BYTES), len(begins) - 1)
        found.append((begins[at], begins[behind]))
        at = max(bisect_left(begins, begins[at] + apart), behind)
    return found


@contextlib.contextmanager
def _mapped(segment: Segment) -> Iterator[mmap.mmap]:
    with (
        segment.path.open("rb") as file,
        contextlib.closing(mmap.mmap(file.fileno(), segment.end, access=mmap.ACCESS_READ)) as data,
    ):
        yield data


def _write_survivors(
    files: Files, new: Path, segment: Segment, needs: Needs, level: int
) -> tuple[int, Marks, dict[int, int]] | None:
    """Write and sync the file `new`: its size, its sparse index and whose bytes are in it, or None when too
    little would be saved.
    """
    limit = int(_WORTH * segment.end)
    sparse = Marks()
    held: dict[int, int] = {}
    with _mapped(segment) as data:
        head = Head.decode(data[:WAL_HEAD_BYTES], segment.path, WAL)
        fd = files.create(new)
        try:
            head = replace(
                head,
                base_lsn=segment.base_lsn,
                prev_lsn=head.prev_lsn or segment.base_lsn - 1,
                flags=head.flags | SEALED,
            )
            files.write_all(fd, head.encode(WAL_HEAD_BYTES), 0)
            end = WAL_HEAD_BYTES
            for pieces, raw in _pieces(data, needs, level):
                for piece, lsn, time_ms in pieces:
                    if end + len(piece) > limit:
                        return None
                    sparse.add(lsn, end, time_ms)
                    files.write_all(fd, piece, end)
                    end += len(piece)
                _share(held, raw, sum(len(piece) for piece, _, _ in pieces))
            note = end_note(needs.end, segment.epoch, segment.max_ts)
            files.write_all(fd, note, end)
            files.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    held[OWN] = len(note)
    return end + len(note), sparse, held


def _share(held: dict[int, int], raw: dict[int, int], nbytes: int) -> None:
    """Count what was written for those of whom it is, by their bytes before it was compressed."""
    total = sum(raw.values())
    for lp, part in raw.items():
        held[lp] = held.get(lp, 0) + nbytes * part // total


def _pieces(
    data: mmap.mmap, needs: Needs, level: int
) -> Iterator[tuple[list[tuple[bytes, int, int]], dict[int, int]]]:
    """The records that stay, as `pack` makes them, and the bytes they are made of; the times never fall.

    Looked for a moment at a time: whoever moves messages has the processor in between.
    """
    at = WAL_HEAD_BYTES
    youngest = 0
    while at < len(data):
        parts: list[bytes] = []
        raw: dict[int, int] = {}
        room = _ROOM_BYTES
        while at < len(data) and room > 0:
            began = time.monotonic()
            part, at, _, held = needs.survivors(data, at, room, _LOOK_BYTES)
            room -= len(part)
            parts.append(part)
            for lp, nbytes in held.items():
                raw[lp] = raw.get(lp, 0) + nbytes
            time.sleep(min(time.monotonic() - began, _PAUSE_MAX_S))
        survivors = b"".join(parts)
        pieces = []
        for piece, lsn, time_ms in pack(survivors, level):
            youngest = max(youngest, time_ms)
            pieces.append((piece, lsn, youngest))
        yield pieces, raw
