"""User properties as the kernel reads them, against the plain reader of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.mqtt.codec._pairs import read_pairs
from penstock.protocols.mqtt.codec.properties import decode_properties, encode_properties
from penstock.protocols.mqtt.codec.reasons import Malformed
from tests.reference import mqtt_frames as f

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20), st.integers(0, 100))
def test_pairs_come_back_between_other_properties(pairs: list[tuple[str, str]], expiry_s: int) -> None:
    given_ = {"user_properties": pairs, "session_expiry_s": expiry_s}
    block = encode_properties(given_)
    assert decode_properties(block, 0, len(block), "CONNECT") == (given_, len(block))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_the_plain_reader_reads_them(data: bytes) -> None:
    body = b"\x26" + data
    expected: list[tuple[str, str]] | None = []
    reader = f.Reader(body)
    try:
        while reader.rest and reader.rest[0] == 0x26:
            reader.number(1)
            assert expected is not None
            expected.append((f.check_text(reader.field()), f.check_text(reader.field())))
    except f.Fault:
        expected = None
    found: list[tuple[str, str]] = []
    at = read_pairs(body, 0, len(body), found)
    if expected is None:
        assert at < 0
        with pytest.raises(Malformed):
            decode_properties(f.varint(len(body)) + body, 0, len(body) + 1, "CONNECT")
    else:
        assert (found, at) == (expected, len(body) - len(reader.rest))


def test_nothing_is_read_outside_the_data() -> None:
    for at, end in ((-1, 1), (2, 1), (0, 3)):
        with pytest.raises(ValueError):
            read_pairs(b"ab", at, end, [])
