"""The rules of the two kinds of patterns, one by one, and what an attacker's pattern costs."""

from __future__ import annotations

import time
from functools import partial

import pytest

from penstock.router.errors import InvalidPattern
from penstock.router.routes._filters import SlashedTrie
from penstock.router.routes.topics import WORDS_MAX, DottedTrie


def dotted(*patterns: str) -> DottedTrie[str]:
    trie: DottedTrie[str] = DottedTrie()
    for pattern in patterns:
        trie.add(pattern.encode(), partial(str, pattern))
    return trie


def slashed(*filters: str) -> SlashedTrie[str]:
    trie: SlashedTrie[str] = SlashedTrie()
    for pattern in filters:
        trie.add(pattern.encode(), partial(str, pattern))
    return trie


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("usd.*", "usd.stock", True),
        ("usd.*", "usd", False),
        ("usd.*", "usd.stock.db", False),
        ("usd.#", "usd", True),
        ("#", "", True),
        ("*", "", True),
        ("#.b", "b", True),
        ("#.b.#", "a.b.c", True),
        ("a.#.b", "a.b", True),
        ("a..b", "a.b", False),
        ("a.*.b", "a..b", True),
        ("#.#.#", "a", True),
        ("a", "*", False),
    ],
)
def test_dotted_patterns__amqp091_3_1_3_3(pattern: str, key: str, expected: bool) -> None:
    assert (dotted(pattern).match(key.encode()) == [pattern]) is expected


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("sport/tennis/#", "sport/tennis", True),
        ("sport/tennis/#", "sport/tennis/p/ranking", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("a/", "a", False),
        ("a//b", "a/b", False),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("$SYS/+", "$SYS/x", True),
        ("a/+", "a/$b", True),
    ],
)
def test_slashed_filters__mqtt5_4_7(pattern: str, topic: str, expected: bool) -> None:
    assert (slashed(pattern).match(topic.encode()) == [pattern]) is expected


def test_a_pattern_added_again_keeps_its_payload() -> None:
    trie = dotted("a.b")
    assert trie.add(b"a.b", lambda: "another") == "a.b"
    assert len(trie) == 1


def test_removing_takes_only_the_nodes_nobody_else_needs() -> None:
    trie = dotted("a.b", "a.b.c")
    assert trie.remove(b"a.b.c") == "a.b.c"
    assert trie.get(b"a.b") == "a.b"
    assert trie.remove(b"a.b") == "a.b"
    assert trie._root.children == {}


def test_a_pattern_of_too_many_words_is_refused_and_leaves_nothing() -> None:
    trie: SlashedTrie[str] = SlashedTrie()
    with pytest.raises(InvalidPattern) as refused:
        trie.add(b"/".join([b"+"] * (WORDS_MAX + 1)), str)
    assert (refused.value.words, refused.value.limit) == (WORDS_MAX + 1, WORDS_MAX)
    assert trie.nodes == 0


def test_many_hashes_in_one_pattern_cost_no_more_than_its_length() -> None:
    """A backtracking matcher takes about 2^60 steps here; the automaton visits a node once per word."""
    pattern = ".".join(["#", "a"] * 60) + ".z"
    trie = dotted(pattern)
    started = time.process_time()
    assert trie.match(b".".join([b"a"] * 120)) == []
    assert trie.match(b".".join([b"a"] * 120) + b".z") == [pattern]
    assert time.process_time() - started < 30
