"""The oracle of the topic tries: each pattern matched alone, by the rules as the specifications say them."""

from __future__ import annotations


def dotted_matches(pattern: bytes, key: bytes) -> bool:
    """amqp091:3.1.3.3: `*` matches a single word, `#` matches zero or more words."""
    return _dotted(pattern.split(b"."), key.split(b"."))


def _dotted(pattern: list[bytes], key: list[bytes]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == b"#":
        return any(_dotted(pattern[1:], key[taken:]) for taken in range(len(key) + 1))
    return bool(key) and pattern[0] in (b"*", key[0]) and _dotted(pattern[1:], key[1:])


def slashed_matches(pattern: bytes, topic: bytes) -> bool:
    """mqtt5:4.7.1, with the rule of 4.7.2 for topics that begin with `$`."""
    levels, names = pattern.split(b"/"), topic.split(b"/")
    if topic.startswith(b"$") and levels[0] in (b"+", b"#"):
        return False
    for index, level in enumerate(levels):
        if level == b"#":
            return len(names) >= index
        if index >= len(names) or level not in (b"+", names[index]):
            return False
    return len(names) == len(levels)
