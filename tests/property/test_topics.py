"""The tries against the naive matcher, over random sets of patterns that come and go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from penstock.router.routes._filters import SlashedTrie
from penstock.router.routes.topics import DottedTrie
from tests.reference.topics import dotted_matches, slashed_matches

WORDS = ["", "a", "b", "c", "$x"]
KEYS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6)
DOTTED = st.lists(st.sampled_from([*WORDS, "*", "#", "#"]), min_size=1, max_size=6).map(".".join)
SLASHED = st.tuples(st.lists(st.sampled_from([*WORDS, "+", "+"]), min_size=1, max_size=5), st.booleans()).map(
    lambda made: "/".join(made[0] + ["#"] * made[1])
)


@given(st.lists(st.tuples(st.booleans(), DOTTED), max_size=30), st.lists(KEYS.map(".".join), max_size=10))
def test_the_dotted_trie_matches_as_each_pattern_alone(
    steps: list[tuple[bool, str]], keys: list[str]
) -> None:
    check_trie(DottedTrie(), dotted_matches, steps, keys)


@given(st.lists(st.tuples(st.booleans(), SLASHED), max_size=30), st.lists(KEYS.map("/".join), max_size=10))
def test_the_slashed_trie_matches_as_each_filter_alone(
    steps: list[tuple[bool, str]], topics: list[str]
) -> None:
    check_trie(SlashedTrie(), slashed_matches, steps, topics)


def check_trie(
    trie: DottedTrie[bytes] | SlashedTrie[bytes],
    matches: Callable[[bytes, bytes], bool],
    steps: list[tuple[bool, str]],
    names: list[str],
) -> None:
    """Add (True) and remove patterns, then match names; `matches` knows one pattern and one name."""
    kept: set[bytes] = set()
    for adding, text in steps:
        pattern = text.encode()
        if adding:
            assert trie.add(pattern, partial(bytes, pattern)) == pattern
            kept.add(pattern)
        else:
            assert trie.remove(pattern) == (pattern if pattern in kept else None)
            kept.discard(pattern)
    assert len(trie) == len(kept)
    for text in names:
        assert sorted(trie.match(text.encode())) == sorted(p for p in kept if matches(p, text.encode()))
