"""Retained messages of one vhost: the last one per topic, kept in the log's table `retained`, found by topic
filter.

A tree over the levels of the topics holds what exists; a filter walks only where it can match, so a filter
without wildcards costs its levels, and `a/b/#` only what is below `a/b`. The messages themselves are the rows
of the table, which has them on the disk when they are many (`log_core.state.spill`):

    row key   row_key(vhost, topic)
    value     | version u8 = 1 | enc u8 | flags u16 | priority u8 | reserved u8 x3 |
              | stored ms i64 | expires ms i64 | vhost size u32 | topic size u32 | properties size u32 |
              | vhost | topic | properties | body |                                       little-endian

A filter that begins with a wildcard does not find topics that begin with `$`. Source: mqtt5:3.3.1.3, 4.7.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.router.messages._retained import Level, RetainedLevels
from penstock.router.names import text, wire
from penstock.router.rows import Tables

__all__ = ["Retained", "RetainedMessage"]

_HEAD: Final = Struct("<BBHB3xqqIII")
_VERSION: Final = 1
_TABLE: Final = "retained"


@dataclass(slots=True)  # a frozen one takes longer to make than its row
class RetainedMessage:
    """A retained message, as it was published; not to be changed."""

    topic: bytes
    enc: int
    """Encoding of the properties: 1 AMQP 0-9-1, 2 MQTT 5."""
    props: bytes
    body: bytes
    flags: int
    """Flags of its record."""
    priority: int
    stored_ms: int
    """When it was stored, ms since the epoch."""
    expires_ms: int
    """When it expires, ms since the epoch; 0 = never."""


class Retained(RetainedLevels):
    """See the module."""

    def __init__(self, vhost: str, tables: Tables) -> None:
        super().__init__(wire(vhost), tables)

    def __len__(self) -> int:
        """How many topics have one, expired ones that nobody asked for included."""
        return self._count

    def set(self, message: RetainedMessage) -> int:
        """Keep it as the one of its topic; an empty body removes what is kept. The LSN to wait for.

        Raises:
            ValueError: the topic is empty.

        """
        return self.keep(
            message.topic,
            message.enc,
            message.props,
            message.body,
            message.flags,
            message.priority,
            message.stored_ms,
            message.expires_ms,
        )

    def delete(self, topic: bytes) -> int:
        """Keep nothing for this topic; the LSN to wait for, 0 when nothing was kept."""
        path = []
        level = self._root
        for word in topic.split(b"/"):
            child = level.children.get(word)
            if child is None:
                return 0
            path.append((level, word))
            level = child
        if not level.row:
            return 0
        row, level.row = level.row, b""
        self._count -= 1
        for parent, word in reversed(path):
            below = parent.children[word]
            if below.children or below.row:
                break
            parent.remove(word)
        return self._tables.delete(_TABLE, row)

    def get(self, topic: bytes, now_ms: int) -> RetainedMessage | None:
        """The message of exactly this topic, None when there is none or it has expired."""
        level = self._root
        for word in topic.split(b"/"):
            child = level.children.get(word)
            if child is None:
                return None
            level = child
        return self._message(level.row, now_ms)

    def begin(self) -> int:
        """For `match`: only what is retained now is walked, not what is set from now on."""
        self._begun += 1
        return self._begun

    def match(self, topic_filter: str, now_ms: int, begun: int) -> Iterator[RetainedMessage]:
        """The messages of the topics that a filter matches, one at a time.

        Messages may be set and deleted while it is walked: one that is there all the time comes exactly once,
        one that was set since `begin` gave `begun` does not come.
        """
        for _, level in self._levels(wire(topic_filter).split(b"/")):
            message = self._message(level.row, now_ms) if level.set < begun else None
            if message is not None:
                yield message

    def topics(self, topic_filter: str) -> Iterator[bytes]:
        """The topics that a filter matches, one at a time, as of `match`; expired ones too."""
        return (path[1:] for path, _ in self._levels(wire(topic_filter).split(b"/")))

    def _levels(self, words: list[bytes]) -> Iterator[tuple[bytes, Level]]:
        """Those that match and have a message, depth first, each with its topic behind a slash."""
        ahead = [self._below(b"", self._root, words, 0)]
        while ahead:
            above, parent, at, names = ahead[-1]
            name = next(names, None)
            if name is None:
                ahead.pop()
                continue
            level = parent.children.get(name)
            if level is None:
                continue
            path = b"%b/%b" % (above, name)
            if level.row and (at == len(words) or words[at] == b"#"):
                yield path, level
            if level.children and at < len(words):
                ahead.append(self._below(path, level, words, at))

    def _below(
        self, path: bytes, level: Level, words: list[bytes], at: int
    ) -> tuple[bytes, Level, int, Iterator[bytes]]:
        """The children of a level that `words[at]` leads to: their names, and the place in `words` behind it.

        Names are taken now, 8 bytes each, as children may come and go while they are walked.
        """
        if words[at] not in (b"#", b"+"):
            return path, level, at + 1, iter((words[at],))
        names = iter(list(level.children))
        if level is self._root:
            # mqtt5:4.7.2-1: a leading wildcard does not match topics that begin with $.
            names = (name for name in names if not name.startswith(b"$"))
        # Everything below is meant by "#": it stays the word for the next level.
        return path, level, at if words[at] == b"#" else at + 1, names

    def _message(self, row: bytes, now_ms: int) -> RetainedMessage | None:
        value = self._tables.get(_TABLE, row) if row else None
        if value is None:
            return None
        message = _decode(value)[1]
        if message.expires_ms and message.expires_ms <= now_ms:
            self.delete(message.topic)
            return None
        return message

    def clear(self) -> int:
        """Delete all, with the vhost; the LSN to wait for."""
        lsn = 0
        for _, level in list(self._levels([b"#"])):
            lsn = max(lsn, self._tables.delete(_TABLE, level.row))
        self._root = Level()
        self._count = 0
        return lsn

    # At start

    @staticmethod
    def restore(tables: Tables, of_vhost: dict[str, Retained]) -> int:
        """Put the topics of all rows in their trees; how many belong to no vhost that there is."""
        orphans = 0
        for row, value in tables.items(_TABLE):
            vhost, topic = _names_of(value)
            retained = of_vhost.get(vhost)
            if retained is None:
                orphans += 1
            else:
                retained._insert(topic, row)
        return orphans


def _names_of(value: bytes) -> tuple[str, bytes]:
    """(vhost, topic) of a row."""
    version, *_, vhost, topic, _ = _HEAD.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"a retained message of version {version}; this penstock knows {_VERSION}")
    at = _HEAD.size
    return text(value[at : at + vhost]), value[at + vhost : at + vhost + topic]


def _decode(value: bytes) -> tuple[str, RetainedMessage]:
    version, enc, flags, priority, stored, expires, vhost, topic, props = _HEAD.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"a retained message of version {version}; this penstock knows {_VERSION}")
    at = _HEAD.size
    ends = at + vhost, at + vhost + topic, at + vhost + topic + props
    if ends[-1] > len(value):
        raise ValueError("a retained message whose sizes do not fit")
    return text(value[at : ends[0]]), RetainedMessage(
        topic=value[ends[0] : ends[1]],
        enc=enc,
        props=value[ends[1] : ends[2]],
        body=value[ends[2] :],
        flags=flags,
        priority=priority,
        stored_ms=stored,
        expires_ms=expires,
    )
