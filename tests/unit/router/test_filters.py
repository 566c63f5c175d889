"""The rows that the filters of MQTT sessions are kept in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.router.sessions.filters import NOTED, OWN, TABLE, Filters, Kept, is_noted, page_key, read_page

_TOPICS = st.text(st.sampled_from("ab/"), min_size=1, max_size=8) | st.text(min_size=1, max_size=300)


class Rows:
    """The log's tables, as far as filters use them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def put(self, table: str, key: bytes, value: bytes) -> int:
        assert table == TABLE
        self.rows[key] = value
        return len(self.rows)

    def delete(self, table: str, key: bytes) -> int:
        del self.rows[key]
        return 1

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def items(self, table: str) -> list[tuple[bytes, bytes]]:
        return list(self.rows.items())


@given(st.dictionaries(_TOPICS, st.tuples(st.integers(0, 2**31 - 1), st.sampled_from([0, OWN, NOTED]))))
def test_filters_are_read_as_they_were_put(wanted: dict[str, tuple[int, int]]) -> None:
    tables, filters = Rows(), Filters()
    for index, (topic, (tag, kind)) in enumerate(wanted.items()):
        filters.add(Kept(topic, tag, kind, bytes(index % 3)))
    pages = filters.put(tables, 7)
    read = Filters()
    read.load(tables, 7, pages)
    assert list(read.all.values()) == list(filters.all.values())
    noted = any(kind & NOTED for _, kind in wanted.values())
    assert noted == any(is_noted(value) for value in tables.rows.values())


def test_the_common_prefix_of_neighbouring_filters_is_stored_once() -> None:
    tables, filters = Rows(), Filters()
    long = "x" * 400
    topics = ["site/7/device/4711/temperature", "site/7/device/4711/time", "site", f"{long}/1", f"{long}/2"]
    for topic in topics:
        filters.add(Kept(topic, 1, OWN, b"\1"))
    filters.put(tables, 1)
    row = tables.rows[page_key(1, 0)]
    assert [topic.decode() for topic, _, _, _ in read_page(row)] == topics
    assert row.count(b"site/7/device/4711/t") == 1 and b"ime" in row
    assert len(row) == 1 + 10 * len(topics) + 30 + 3 + 0 + 402 + 402 - 255
