"""`penstock log dump`: the records of a data folder, one line each, filtered.

Damage is told where it stands and skipped; the rest is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import BinaryIO, Final

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import NOTE, STATE
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import Folder
from penstock.log_tools.queues import queues
from penstock.log_tools.reading import EVERYTHING, Span, batches, read_tables, segments
from penstock.log_tools.rendering import KINDS, Body, json_line, shown, shown_state

__all__ = ["Wanted", "dump", "feeds_of_queue"]

ALL_KINDS: Final = frozenset(KINDS.values())


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that `dump` shows."""

    span: Span = EVERYTHING
    feeds: Collection[int] | None = None
    """Only records of one of these feeds; None: of any or none."""
    kinds: Collection[str] = ALL_KINDS
    limit: int = 0
    """At most so many; 0: all."""
    body: Body = "auto"


def feeds_of_queue(folder: Folder, vhost: str, name: str) -> set[int]:
    """The feeds that a queue, session or shared subscription reads. Raises PenstockError: there is none."""
    tables, _, _ = read_tables(folder)
    for state in queues(tables):
        if (state.vhost, state.name) == (vhost, name):
            return {membership.feed for membership in state.memberships}
    raise PenstockError(
        f"no durable queue {name!r} in vhost {vhost!r}", remedy="`penstock log stats` lists them"
    )


def dump(
    folder: Folder, wanted: Wanted, out: BinaryIO, told: Callable[[Damage], object], *, as_json: bool = True
) -> int:
    """Write what is wanted, oldest first; how many lines. `told` hears of damage.

    Raises StartError: a file is of another version.
    """
    written = 0
    for segment in segments(folder):
        if isinstance(segment, Damage):
            told(segment)
            continue
        for found in batches(segment, wanted.span):
            if isinstance(found, Damage):
                told(found)
                continue
            batch = found.batch
            if batch.kind == NOTE or KINDS.get(batch.kind) not in wanted.kinds:
                continue
            for index in range(batch.count):
                record = batch.record(index)
                span = wanted.span
                if not (span.first <= record.lsn <= span.last and span.since_ms <= record.ts < span.until_ms):
                    continue
                if wanted.feeds is not None and not any(feed in wanted.feeds for feed in record.feeds):
                    continue
                item = shown_state(record) if batch.kind == STATE else shown(batch, index, wanted.body)
                out.write(json_line(item) if as_json else _text_line(item))
                written += 1
                if written == wanted.limit:
                    return written
    return written


def _text_line(item: dict[str, object]) -> bytes:
    if item["kind"] == "state":
        deleted = " deleted" if "deleted" in item else ""
        return f"{item['position']:>16}  {item['time']}  state   {item['table']}{deleted}\n".encode()
    if "topic" in item:
        where = f"topic {item['topic']!r}"
    elif "exchange" in item:
        where = f"exchange {item['exchange']!r} key {item.get('routing_key', '(not text)')!r}"
    else:
        where = str(item.get("key_base64", item.get("topic_base64", "")))
    feeds = ",".join(str(feed) for feed in item["feeds"]) or "-"  # type: ignore[attr-defined]
    flags = ",".join(item["flags"]) or "-"  # type: ignore[arg-type]
    return (
        f"{item['position']:>16}  {item['time']}  {item['kind']:7} {where}  "
        f"{item['size']} bytes  feeds {feeds}  {flags}\n"
    ).encode()
