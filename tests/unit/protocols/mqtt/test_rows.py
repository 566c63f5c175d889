"""The rows of sessions come back as they were; what is no row is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.mqtt.clients.rows import (
    SessionRow,
    session_key,
    split_session_key,
)
from penstock.protocols.mqtt.codec._packet_ids import Inflight, Received
from penstock.protocols.mqtt.codec.packets import Filter, Will
from penstock.protocols.mqtt.subscriptions.filterset import FilterSet, Subscription
from penstock.router.authorization.grants import Grants
from penstock.router.sessions.filters import Kept
from penstock.subscriptions.cursor._cursor import Cursor

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(NAMES, NAMES)
def test_keys_come_back(vhost: str, client_id: str) -> None:
    assert split_session_key(session_key(vhost, client_id)) == (vhost, client_id)


LINE = st.builds(
    Filter,
    st.sampled_from(["a", "b/+", "c/#", "$share/g/d"]),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(LINE, st.sampled_from([0, 1, 268435455])), max_size=12))
def test_subscriptions_come_back(lines: list[tuple[Filter, int]]) -> None:
    mine = FilterSet((), 1)
    for line, identifier in lines:
        known = mine.all.get(line.topic)
        if known is not None:
            mine.change(known, line, identifier)
        else:
            mine.add(Subscription(line.topic, mine.terms_of(line, identifier), line.retain_handling))
        # Subscriptions with the same terms have the same tag; the tag stands for these terms.
        for one in mine.all.values():
            assert (one.terms.tag == 0) == one.topic.startswith("$share")
            assert not one.terms.tag or mine.by_tag[one.terms.tag] is one.terms
        assert sum(terms.count for terms in mine.by_tag.values()) == sum(
            not topic.startswith("$share") for topic in mine.all
        )
    kept = [Kept(one.topic, one.terms.tag, one.kind, one.options) for one in mine.all.values()]
    again = FilterSet(kept, 1)
    assert {(t, s.terms.tag, s.options) for t, s in again.all.items()} == {
        (t, s.terms.tag, s.options) for t, s in mine.all.items()
    }
    assert again.next_tag <= mine.next_tag


@pytest.mark.parametrize("will", [None, Will("t", b"\0\xff", 2, True, 5, b"\x01\x01", 7)])
def test_sessions_come_back(will: Will | None) -> None:
    row = SessionRow("guest", 5, 1.5, will, 2.5 if will is not None else None)
    assert SessionRow.decode(row.encode()) == row


def entry(packet_id: int, state: int, lsn: int) -> bytes:
    return packet_id.to_bytes(2, "little") + bytes((state,)) + lsn.to_bytes(8, "little")


@pytest.fixture(scope="module")
def cursor(tmp_path_factory: pytest.TempPathFactory) -> Cursor:
    log = Log.open(tmp_path_factory.mktemp("log"), LogOptions(segment_bytes=1 << 20))
    made = Cursor(log)
    log.close_sync()
    return made


@pytest.mark.parametrize(
    ("following", "entries"),
    [
        (1, []),
        (65535, []),
        (9, [(1, 1, 10), (2, 2, 11), (5, 3, 12)]),
        (3, [(65534, 1, 10), (65535, 2, 11), (1, 1, 12)]),
        (4, [(4, 1, 10), (5, 1, 11)]),
    ],
)
def test_packet_ids_under_way_come_back(
    cursor: Cursor, following: int, entries: list[tuple[int, int, int]]
) -> None:
    row = bytes((1,)) + following.to_bytes(2, "little") + b"".join(entry(*e) for e in entries)
    inflight = Inflight.restore(row, cursor)
    assert inflight.pack() == row
    assert inflight.held == inflight.unsent == len(entries)
    released, retained, _ = inflight.resume(100)
    assert released == [packet_id for packet_id, state, _ in entries if state == 3]
    assert retained == []
    if len({following, *(e[0] for e in entries)}) == len(entries) + 1:
        assert inflight.assign_retained(1, 1) == following


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\x01",
        b"\x02\x01\x00",
        b"\x01\x00\x00",
        b"\x01\x01\x00x",
        b"\x01\x05\x00" + entry(0, 1, 1),
        b"\x01\x05\x00" + entry(1, 0, 1),
        b"\x01\x05\x00" + entry(1, 4, 1),
        b"\x01\x05\x00" + entry(3, 1, 1) + entry(3, 1, 2),
        b"\x01\x05\x00" + entry(3, 1, 1) + entry(4, 1, 2) + entry(2, 1, 2) + entry(1, 1, 1),
    ],
)
def test_an_invalid_row_of_packet_ids_is_refused(cursor: Cursor, row: bytes) -> None:
    with pytest.raises(ValueError, match="packet ids"):
        Inflight.restore(row, cursor)


@given(st.sets(st.integers(1, 65535), max_size=50))
def test_received_ids_come_back(ids: set[int]) -> None:
    row = bytes((1,)) + b"".join(i.to_bytes(2, "little") for i in sorted(ids))
    received = Received.restore(row)
    assert received.pack() == row
    assert received.count == len(ids)
    assert all(i in received for i in ids) and 1 + max(ids, default=0) not in ids


@pytest.mark.parametrize("row", [b"", b"\x01\x05", b"\x02", b"\x01\0\0", b"\x01\5\0\5\0"])
def test_an_invalid_row_of_received_ids_is_refused(row: bytes) -> None:
    with pytest.raises(ValueError, match="packet ids"):
        Received.restore(row)


def test_rows_of_tables_of_format_1_are_read() -> None:
    old = b'{"user": "ann", "expiry_s": 9, "ends_at": null, "will": {"at": 5.5, "topic": "t",'
    old += b' "payload": "eA==", "block": "", "qos": 1, "retain": false, "delay_s": 3, "expiry_s": null}}'
    will = Will("t", b"x", 1, False, 3, b"", None)
    row = SessionRow.decode(old)
    assert row == SessionRow("ann", 9, None, will, 5.5) == SessionRow.decode(row.encode())
    assert SessionRow.decode(b'{"user": "ann", "expiry_s": 9, "ends_at": 7.5}') == SessionRow("ann", 9, 7.5)


@pytest.mark.parametrize("with_will", [True, False])
def test_a_row_keeps_what_a_token_allowed(with_will: bool) -> None:
    will = Will("w", b"x", 1, False) if with_will else None
    grants, _ = Grants.parse(["read:*/*/a.*", "write:%2F/amq.topic"], 99.5)
    found = SessionRow.decode(SessionRow("ann", 9, None, will, grants=grants).encode())
    assert (found.will is not None) is with_will
    assert found.grants == grants
    assert found.grants is not None and found.grants.ends_at == 99.5
