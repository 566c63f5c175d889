"""The filters of one MQTT session, and the pages they are kept in: up to 64 filters to a row.

    table filter   key    qid u64 big-endian | page u16 big-endian
                   value  flags u8, then of each filter:
                          tag u32 | kind u8 | size of options u8 | size u16 | shared u8 | filter | options

Numbers are little-endian but in keys. `flags`: 1 when one of them is NOTED; 2: of each filter the first
`shared` bytes are those of the one before, and only the others stand there (tables of format 1 have pages
without that flag, nor the byte `shared`). A row of its own for each filter would cost a large session less to
change, but a million of them more memory than all else there is of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.router.names import text, wire

if TYPE_CHECKING:
    from penstock.router.rows import Tables

__all__ = [
    "LISTED",
    "NOTED",
    "OWN",
    "TABLE",
    "Filters",
    "Kept",
    "is_noted",
    "page_key",
    "read_page",
    "split_page_key",
]

TABLE: Final = "filter"

OWN: Final = 1
"""It leads to a feed of its session (`exchanges.Own`); else the session is a member of the filter's slot."""
LISTED: Final = 2
"""It is kept for the front end, and leads nowhere itself: the filter of a shared subscription."""
NOTED: Final = 4
"""The front end wants to hear of it at start."""

_PAGE: Final = 64
_HEAD: Final = struct.Struct("<IBBH")
_NOTED: Final = 1
_PREFIXED: Final = 2
_PREFIX_MAX: Final = 255
_KEY: Final = struct.Struct(">QH")


@dataclass(slots=True)
class Kept:
    """One filter of a session."""

    topic: str
    tag: int
    kind: int
    """OWN, LISTED, NOTED."""
    options: bytes
    """The front end's, up to 255 bytes."""
    page: int = 0


class Filters:
    """All filters of one session, while somebody works with them."""

    __slots__ = ("_dirty", "_last", "_pages", "all", "depth", "lsn")

    def __init__(self) -> None:
        self.all: dict[str, Kept] = {}
        """By filter."""
        self.depth = 0
        """Of changes that are under way."""
        self.lsn = 0
        """Of the last change of a durable session."""
        self._pages: dict[int, dict[str, Kept]] = {}
        self._dirty: set[int] = set()
        self._last = 0

    def load(self, tables: Tables, qid: int, pages: int) -> None:
        """Read those of a durable session; bit n of `pages`: there is a page n."""
        page = 0
        while pages >> page:
            if pages >> page & 1:
                value = tables.get(TABLE, page_key(qid, page))
                assert value is not None
                for topic, tag, kind, options in read_page(value):
                    self._add(Kept(text(topic), tag, kind, options, page))
            page += 1

    def _add(self, kept: Kept) -> None:
        self.all[kept.topic] = kept
        self._pages.setdefault(kept.page, {})[kept.topic] = kept
        self._last = max(self._last, kept.page)

    def add(self, kept: Kept) -> None:
        """A new one; it gets its page here."""
        if len(self._pages.get(self._last, ())) >= _PAGE:
            self._last += 1
        kept.page = self._last
        self._add(kept)
        self._dirty.add(kept.page)

    def changed(self, kept: Kept) -> None:
        """One of them is not what it was."""
        self._dirty.add(kept.page)

    def remove(self, kept: Kept) -> None:
        """Take one out."""
        del self.all[kept.topic]
        page = self._pages[kept.page]
        del page[kept.topic]
        if not page:
            del self._pages[kept.page]
        self._dirty.add(kept.page)

    def put(self, tables: Tables, qid: int) -> int:
        """Put the pages of a durable session that changed; the bits of those that there are."""
        for page in self._dirty:
            content = self._pages.get(page)
            if content:
                self.lsn = max(self.lsn, tables.put(TABLE, page_key(qid, page), _encode(content.values())))
            else:
                self.lsn = max(self.lsn, tables.delete(TABLE, page_key(qid, page)))
        self._dirty.clear()
        pages = 0
        for page in self._pages:
            pages |= 1 << page
        return pages


def page_key(qid: int, page: int) -> bytes:
    """The key of a page's row."""
    return _KEY.pack(qid, page)


def split_page_key(key: bytes) -> tuple[int, int]:
    """(number of the session's queue, page) of such a key."""
    qid, page = _KEY.unpack(key)
    return qid, page


def is_noted(value: bytes) -> bool:
    """Whether one of a page's filters is NOTED."""
    return bool(value[0] & _NOTED)


def read_page(value: bytes) -> Iterator[tuple[bytes, int, int, bytes]]:
    """(filter, tag, kind, options) of each filter in a row."""
    at, end, prefixed, topic = 1, len(value), bool(value[0] & _PREFIXED), b""
    while at < end:
        tag, kind, options, size = _HEAD.unpack_from(value, at)
        at += _HEAD.size
        shared = 0
        if prefixed:
            shared = value[at]
            at += 1
        stop = at + size - shared
        topic = topic[:shared] + value[at:stop]
        yield topic, tag, kind, value[stop : stop + options]
        at = stop + options


def _encode(content: Iterable[Kept]) -> bytes:
    flags, parts, before = _PREFIXED, [b""], b""
    for kept in content:
        if kept.kind & NOTED:
            flags |= _NOTED
        topic = wire(kept.topic)
        shared = _shared(before, topic)
        head = _HEAD.pack(kept.tag, kept.kind, len(kept.options), len(topic))
        parts += head, bytes((shared,)), topic[shared:], kept.options
        before = topic
    parts[0] = bytes((flags,))
    return b"".join(parts)


def _shared(one: bytes, other: bytes) -> int:
    """How many first bytes are the same, as far as a byte can say."""
    size = min(len(one), len(other), _PREFIX_MAX)
    differing = int.from_bytes(one[:size]) ^ int.from_bytes(other[:size])
    return size - (differing.bit_length() + 7) // 8
