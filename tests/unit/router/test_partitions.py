"""The log partition of each vhost holds its records."""

from __future__ import annotations

from penstock.router.vhost.partitions import LP_TABLE, Partitions


class Rows:
    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def put(self, table: str, key: bytes, value: bytes) -> int:
        assert table == LP_TABLE
        self.rows[key] = value
        return 1

    def delete(self, table: str, key: bytes) -> int:
        raise AssertionError("rows stay")

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def items(self, table: str) -> list[tuple[bytes, bytes]]:
        return list(self.rows.items())


def test_the_default_vhost_has_partition_0_and_no_row() -> None:
    rows = Rows()
    assert Partitions(rows).of("/") == 0
    assert rows.rows == {}


def test_each_vhost_gets_a_number_of_its_own_and_keeps_it_over_a_restart() -> None:
    rows = Rows()
    partitions = Partitions(rows)
    assert [partitions.of(name) for name in ("a", "b", "a")] == [1, 2, 1]
    again = Partitions(rows)
    assert [again.of(name) for name in ("c", "b", "a")] == [3, 2, 1]
    assert rows.rows == {b"\0\0\0\1": b"a", b"\0\0\0\2": b"b", b"\0\0\0\3": b"c"}
