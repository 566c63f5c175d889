"""A trie over AMQP's binding keys, and what the two kinds of topic patterns have in common.

It matches a routing key in one pass over its words as a nondeterministic automaton whose states are the nodes
of the trie: the states after each word are a set, so a node is visited at most once per word however many
`#` a pattern holds. `#.#.#.a` therefore costs no more than `#.a`.

Words stand between `.`; `*` is one word, `#` is none or more, anywhere. Empty words count: `a..b` has one. A
pattern is added with a payload that the caller owns; a match answers the payloads, each once per pattern that
it was added under. The trie of MQTT's filters is `_filters`. Source: amqp091:3.1.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from penstock.router.errors import InvalidPattern

__all__ = ["WORDS_MAX", "DottedTrie", "literal_prefix"]

WORDS_MAX: Final = 128
"""Words of a pattern, at most; a longer subject is matched all the same."""

P = TypeVar("P")

_STAR: Final = b"*"
_HASH: Final = b"#"


class _Node(Generic[P]):
    """A prefix of patterns. `payload` holds one entry in a list, or none: a pattern is one node."""

    __slots__ = ("children", "payload")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[P]] = {}
        self.payload: list[P] = []


class DottedTrie(Generic[P]):
    """AMQP topic patterns: `*` one word, `#` none or more."""

    def __init__(self) -> None:
        self._root: _Node[P] = _Node()
        self._count = 0

    def __len__(self) -> int:
        """How many patterns it holds."""
        return self._count

    def add(self, pattern: bytes, make: Callable[[], P]) -> P:
        """The payload of `pattern`, made by `make` when the pattern is new.

        Raises:
            InvalidPattern: It has more than `WORDS_MAX` words; nothing was added.

        """
        words = pattern.split(b".")
        if len(words) > WORDS_MAX:
            raise InvalidPattern(len(words), WORDS_MAX)
        node = self._root
        for word in words:
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        if not node.payload:
            node.payload.append(make())
            self._count += 1
        return node.payload[0]

    def get(self, pattern: bytes) -> P | None:
        """The payload of exactly this pattern, None when it was not added."""
        node = self._root
        for word in pattern.split(b"."):
            child = node.children.get(word)
            if child is None:
                return None
            node = child
        return node.payload[0] if node.payload else None

    def remove(self, pattern: bytes) -> P | None:
        """Take the pattern out, with the nodes that only it needed; its payload, None when it was not in."""
        path = []
        node = self._root
        for word in pattern.split(b"."):
            child = node.children.get(word)
            if child is None:
                return None
            path.append((node, word))
            node = child
        if not node.payload:
            return None
        payload = node.payload.pop()
        self._count -= 1
        for parent, word in reversed(path):
            below = parent.children[word]
            if below.children or below.payload:
                break
            del parent.children[word]
        return payload

    def match(self, key: bytes) -> list[P]:
        """The payloads of the patterns that match the routing key, in no order."""
        states = _with_hashes({self._root})
        for word in key.split(b"."):
            after: set[_Node[P]] = set()
            for node, repeats in states.items():
                if repeats:
                    after.add(node)
                children = node.children
                if not children:
                    continue
                child = children.get(word)
                # A key's word that reads `#` is a word like others; the pattern's `#` is already a state.
                if child is not None and word != _HASH:
                    after.add(child)
                child = children.get(_STAR)
                if child is not None:
                    after.add(child)
            if not after:
                return []
            states = _with_hashes(after, {node for node, repeats in states.items() if repeats})
        return [node.payload[0] for node in states if node.payload]


def _with_hashes(nodes: set[_Node[P]], repeating: set[_Node[P]] | None = None) -> dict[_Node[P], bool]:
    """The states `nodes`, and those reached from them by a `#` that takes no word; true where it repeats."""
    states = dict.fromkeys(nodes, False)
    if repeating:
        for node in repeating:
            states[node] = True
    for node in nodes:
        child = node.children.get(_HASH)
        while child is not None and not states.get(child, False):
            states[child] = True
            child = child.children.get(_HASH)
    return states


def literal_prefix(pattern: bytes, separator: bytes, wildcards: tuple[bytes, ...]) -> tuple[bytes, bool]:
    """The words of `pattern` before its first wildcard, joined again, and whether that is all of it."""
    words = pattern.split(separator)
    for index, word in enumerate(words):
        if word in wildcards:
            return separator.join(words[:index]), False
    return pattern, True
