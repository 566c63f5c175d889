"""The feeds of the past of one log: searching for them, keeping them over a restart, dropping them.

`history` has their files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.feeds.feeds import Feeds
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import HISTORY, Folder, Head
from penstock.log_core.history.history import HISTORY_TABLE, Part, Search, read_history
from penstock.log_core.history.key_walk import Matcher, Stopped
from penstock.log_core.segments.segment import Segments
from penstock.log_core.state.tables import Tables, feed_key, feed_of_key
from penstock.log_core.threads.pool import Pool

if TYPE_CHECKING:
    from penstock.log_core.files.manifest import Manifest

__all__ = ["Histories"]

_LOG: Final = logging.getLogger("penstock.log")

Done = Callable[[Feed | None, bool], object]
"""Called with the feed (None: nothing was found), and whether the search could be done."""


class Histories:
    """Owned by one Log; everything but the searches themselves runs on the loop."""

    def __init__(
        self,
        files: Files,
        folder: Folder,
        manifest: Manifest,
        segments: Segments,
        tables: Tables,
        feeds: Feeds,
        post: Callable[..., None],
    ) -> None:
        self._files = files
        self._folder = folder
        self._manifest = manifest
        self._segments = segments
        self._tables = tables
        self._feeds = feeds
        self._post = post
        self._pool = Pool(1, "penstock-history", post)
        self._searches: dict[Search, None] = {}

    @property
    def searching(self) -> bool:
        """A search is under way: no segment may go meanwhile."""
        return bool(self._searches)

    def restore(self) -> list[str]:
        """Give the feeds of the past their entries again, remove files of others; what was found amiss."""
        amiss = []
        for key in list(self._tables.keys(HISTORY_TABLE)):
            feed = self._feeds.by_id.get(feed_of_key(key))
            if feed is None:
                self._tables.delete(HISTORY_TABLE, key)
                continue
            try:
                self._add(feed, read_history(self._folder.history(feed.id)))
            except (FileNotFoundError, Damage) as error:
                amiss.append(f"{error}; what was backfilled by it is lost")
                _LOG.error("%s", amiss[-1])
        known = {self._folder.history(feed_of_key(key)) for key in self._tables.keys(HISTORY_TABLE)}
        for path in self._folder.histories.iterdir():
            if path not in known:
                self._files.unlink(path)
        return amiss

    def _add(self, feed: Feed, parts: Sequence[Part]) -> None:
        feed.is_history = True
        for part in parts:
            segment = self._segments.at_base(part.base)
            if segment is not None:
                feed.append_stored(part.base, part.count, part.first_record, part.last_record)
                segment.feeds.append(feed)

    def search(
        self,
        first: int,
        last: int,
        matcher: Matcher,
        done: Done,
        *,
        durable: bool,
        floor: int,
        retention_feeds: Sequence[tuple[int, int]],
    ) -> None:
        """Find the records with LSNs in [first, last), all written, that `matcher` wants, into a new feed.

        `floor`, `retention_feeds`: what of that retention wants, see `KeyScan`.
        With `durable` its row is put before `done` is called; put that of the feed in the same turn.
        """
        manifest = self._manifest
        feed = self._feeds.new(keeps=True)
        head = Head(kind=HISTORY, log_id=manifest.log_id, epoch=manifest.epoch, number=feed.id)
        search = Search(
            self._files,
            self._folder,
            head,
            self._segments,
            (first, last),
            matcher,
            self._post,
            durable=durable,
            floor=floor,
            retention_feeds=retention_feeds,
        )
        self._searches[search] = None

        def run() -> None:
            parts: list[Part] | None = None
            try:
                parts = search.run()
            except Stopped:
                return
            except Exception:  # whatever it is, who waits for the history must hear of it
                _LOG.exception("what was published before could not be searched")
            self._post(found, parts)

        def found(parts: list[Part] | None) -> None:
            del self._searches[search]
            if not parts:
                self._feeds.drop(feed)
                done(None, parts is not None)
                return
            self._add(feed, parts)
            if durable:
                self._tables.put(HISTORY_TABLE, feed_key(feed.id), len(feed).to_bytes(8, "little"))
            done(feed, True)

        self._pool.run(run)

    def forget(self, feed: Feed) -> None:
        """A feed of the past is dropped."""
        self._tables.delete(HISTORY_TABLE, feed_key(feed.id))
        self._pool.run(self._files.unlink, self._folder.history(feed.id))

    def close(self) -> None:
        """End the searches that are under way; what they were for is told nothing more."""
        for search in self._searches:
            search.stop()
        self._pool.shutdown(wait=True)
