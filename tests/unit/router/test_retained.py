"""Retained messages: one per topic, found by filter, gone when emptied or expired, there after a restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._appender import Appender
from penstock.log_core.state.tables import Tables
from penstock.router.messages.retained import Retained, RetainedMessage
from tests.reference.topics import slashed_matches


def message(topic: bytes, body: bytes = b"x", expires_ms: int = 0) -> RetainedMessage:
    return RetainedMessage(topic, 2, b"props", body, 34, 1, 1000, expires_ms)


def make(vhost: str = "/") -> Retained:
    return Retained(vhost, Tables(Appender(lambda: 1)))


def topics(retained: Retained, topic_filter: str, now_ms: int = 2000) -> list[bytes]:
    return sorted(found.topic for found in retained.match(topic_filter, now_ms, retained.begin()))


def test_the_last_message_of_a_topic_is_kept_whole() -> None:
    retained = make()
    retained.set(message(b"a/b", b"1"))
    kept = message(b"a/b", b"2")
    assert retained.set(kept) > 0
    assert retained.get(b"a/b", 2000) == kept
    assert list(retained.match("a/b", 2000, retained.begin())) == [kept]
    assert len(retained) == 1


def test_an_empty_body_removes_it() -> None:
    retained = make()
    retained.set(message(b"a/b"))
    retained.set(message(b"a"))
    assert retained.set(message(b"a/b", b"")) > 0
    assert retained.set(message(b"a/b", b"")) == 0
    assert retained.delete(b"a/b/c") == 0
    assert topics(retained, "#") == [b"a"]
    retained.delete(b"a")
    assert len(retained) == 0 and not retained._root.children


def test_an_empty_topic_is_refused() -> None:
    with pytest.raises(ValueError, match="topic"):
        make().set(message(b""))


def test_an_expired_message_is_not_found_and_goes() -> None:
    retained = make()
    retained.set(message(b"a", expires_ms=2000))
    retained.set(message(b"b", expires_ms=2000))
    assert retained.get(b"a", 1999) is not None
    assert retained.get(b"a", 2000) is None
    assert len(retained) == 1
    assert topics(retained, "#", 2000) == []
    assert len(retained) == 0


LEVEL = st.sampled_from(["a", "b", "", "$x"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = st.tuples(
    st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), min_size=1, max_size=4), st.booleans()
).map(lambda made: "/".join(made[0] + ["#"] * made[1]))


@given(st.lists(st.tuples(TOPIC, st.booleans()), max_size=20), FILTER | st.just("#"))
def test_filters_find_what_each_topic_matches_alone(steps: list[tuple[str, bool]], topic_filter: str) -> None:
    retained = make()
    kept: set[bytes] = set()
    for text, keep in steps:
        topic = text.encode()
        retained.set(message(topic, b"x" if keep else b""))
        (kept.add if keep else kept.discard)(topic)
    assert len(retained) == len(kept)
    assert topics(retained, topic_filter) == sorted(
        topic for topic in kept if slashed_matches(topic_filter.encode(), topic)
    )
    assert sorted(retained.topics(topic_filter)) == topics(retained, topic_filter)


def test_a_walk_goes_on_while_topics_come_and_go() -> None:
    retained = make()
    for index in range(100):
        retained.set(message(b"a/%d" % index))
    walk = retained.match("a/#", 2000, retained.begin())
    seen = [next(walk).topic for _ in range(10)]
    for index in range(100, 200):
        retained.set(message(b"a/%d" % index))
    for topic in seen:
        retained.delete(topic)
    retained.delete(b"a/50")
    rest = [found.topic for found in walk]
    assert not set(seen) & set(rest)
    staying = {b"a/%d" % index for index in range(100)} - set(seen) - {b"a/50"}
    assert staying == set(rest), "what is set after the beginning comes to subscribers as it is published"
    assert len(rest) == len(set(rest))


def test_a_filter_walks_only_where_it_can_match(monkeypatch: pytest.MonkeyPatch) -> None:
    retained = make()
    for index in range(2000):
        retained.set(message(b"other/%d" % index))
    retained.set(message(b"a/b/c"))
    decoded = []
    plain = retained._message

    def counted(row: bytes, now_ms: int) -> RetainedMessage | None:
        decoded.append(row)
        return plain(row, now_ms)

    monkeypatch.setattr(retained, "_message", counted)
    assert topics(retained, "a/b/#") == [b"a/b/c"]
    assert topics(retained, "a/+/c") == [b"a/b/c"]
    assert len(decoded) == 2


def test_they_are_restored_each_in_its_vhost() -> None:
    tables = Tables(Appender(lambda: 1))
    first, second, gone = (Retained(name, tables) for name in ("/", "two", "gone"))
    for index, retained in enumerate((first, second, gone)):
        retained.set(message(b"t", b"%d" % index))
    again = {name: Retained(name, tables) for name in ("/", "two")}
    assert Retained.restore(tables, again) == 1
    assert [found.body for found in again["two"].match("#", 2000, again["two"].begin())] == [b"1"]
    assert len(again["/"]) == 1
    assert again["/"].clear() > 0
    assert len(list(tables.items("retained"))) == 2
