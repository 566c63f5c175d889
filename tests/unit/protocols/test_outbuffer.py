"""The output buffer gives back exactly what was written, whatever the sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.net.outbuffer import OutBuffer


def test_an_empty_buffer_takes_nothing() -> None:
    assert OutBuffer().take() == b""


@given(st.lists(st.lists(st.binary(max_size=3000), max_size=20), max_size=6))
def test_each_take_returns_what_was_written_since_the_last(ticks: list[list[bytes]]) -> None:
    out = OutBuffer()
    for parts in ticks:
        for part in parts:
            out.write(part)
        assert len(out) == out.size == sum(map(len, parts))
        assert out.take() == b"".join(parts)
        assert out.size == 0


def test_a_taken_buffer_does_not_change_afterwards() -> None:
    out = OutBuffer()
    out.write(b"first")
    taken = out.take()
    out.write(b"later" * 1000)
    assert taken == b"first"
