"""Messages of AMQP 1.0 through the kernels of a shovel: the same comes out, however it was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.amqp10.codec.frames import AMQP, encode_frame, encode_transfer, read_frame
from penstock.protocols.amqp10.codec.performatives import Flow, Transfer
from penstock.protocols.links.amqp10._messages import Arriving, Departing, Messages

_FRAME_MAX = 600
_PAYLOADS = st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=500, max_size=2000)), max_size=12)


def transfers(
    number: int, payload: bytes, part: int, *, aborted: bool = False, plain: bool = True
) -> list[bytes]:
    """The frames of a message; not `plain`: as the kernel leaves them to Python."""
    pieces = [payload[at : at + part] for at in range(0, len(payload), part)] or [b""]
    found = []
    for at, piece in enumerate(pieces):
        more, first = at < len(pieces) - 1, at == 0
        if plain and not (aborted and not more):
            found.append(encode_transfer(7, 0, number if first else None, False, more, piece))
            continue
        transfer = Transfer(0, number if first else None, b"t", 0, False, more)
        transfer.aborted = aborted and not more
        transfer.batchable = True
        # The value of the state: only Python looks at it.
        transfer.resume = not plain
        found.append(encode_frame(7, transfer, piece))
    return found


def split(arriving: Arriving, data: bytes) -> tuple[int, int]:
    """Bytes of a read that were used, and frames that were no transfers; as `wire.Connection` splits it."""
    at = others = 0
    while True:
        at = arriving.take(memoryview(data), at)
        frame = read_frame(data, at, len(data), _FRAME_MAX)
        if frame is None:
            return at, others
        at, kind, _, performative, payload = frame
        assert kind == AMQP
        if not isinstance(performative, Transfer):
            others += 1
            continue
        more, aborted = performative.more, performative.aborted
        arriving.part(performative.delivery_id or 0, more=more, aborted=aborted, payload=payload)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=1200), st.integers(1, 500), st.sampled_from("ordinary other aborted".split())
        ),
        max_size=10,
    ),
    st.lists(st.integers(1, 900), max_size=10),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_whole_messages_arrive_in_order(
    messages: list[tuple[bytes, int, str]], cuts: list[int], first: int, has_flows: bool
) -> None:
    frames, expected = [], []
    number = first
    for payload, part, how in messages:
        part = max(part, len(payload) // 8 + 1)
        frames += transfers(number, payload, part, aborted=how == "aborted", plain=how != "other")
        if has_flows:
            frames.append(encode_frame(7, Flow(0, 1, 0, 1)))
        if how != "aborted":
            expected.append((number, payload))
        number = (number + 1) % 2**32
    stream = b"".join(frames)
    arriving = Arriving(frame_max=_FRAME_MAX)
    got: list[tuple[int, bytes]] = []
    others, begin, end = 0, 0, 0
    for cut in [*cuts, len(stream)]:
        end = min(end + cut, len(stream))
        arriving.begin()
        used, more = split(arriving, stream[begin:end])
        begin, others = begin + used, others + more
        numbers = [(at + i) % 2**32 for at, count in arriving.runs for i in range(count)]
        got += zip(numbers, arriving.messages.payloads(), strict=True)
    assert got == expected and begin == len(stream)
    assert others == (len(messages) if has_flows else 0)


@given(_PAYLOADS, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=8), st.booleans())
def test_messages_depart_within_credit_and_window(
    payloads: list[bytes], rooms: list[tuple[int, int]], settled: bool
) -> None:
    messages = Messages()
    for payload in payloads:
        messages.append(payload)
    departing = Departing(channel=3, handle=2, frame_max=_FRAME_MAX, settled=settled)
    number, stream = 2**32 - 3, b""
    for credit, window in [*rooms, (len(payloads), 1000)]:
        frames = departing.put(messages, number % 2**32, credit, window)
        assert departing.count <= credit and departing.frames <= window
        number += departing.count
        stream += frames
    assert not messages and number == 2**32 - 3 + len(payloads)
    at, parts, found, first = 0, b"", [], 2**32 - 3
    while (frame := read_frame(stream, at, len(stream), _FRAME_MAX)) is not None:
        at, _, channel, transfer, part = frame
        assert channel == 3 and transfer.handle == 2
        if not parts and transfer.delivery_id is not None:
            assert transfer.delivery_id == (first + len(found)) % 2**32 and transfer.settled is settled
        parts += part
        if not transfer.more:
            found.append(parts)
            parts = b""
    assert found == payloads and at == len(stream)


def test_a_message_that_needs_a_larger_window_stays() -> None:
    messages = Messages()
    messages.append(b"x" * 2000)
    departing = Departing(channel=0, handle=0, frame_max=512, settled=False)
    assert departing.put(messages, 0, 1, 4) == b"" and departing.count == 0
    assert messages.pop() == b"x" * 2000 and not messages
    with pytest.raises(IndexError):
        messages.pop()


@given(_PAYLOADS, st.integers(0, 12), st.integers(0, 12))
def test_messages_are_kept_and_changed(payloads: list[bytes], gone: int, kept: int) -> None:
    messages = Messages()
    for payload in payloads:
        messages.append(payload)
    for _ in range(min(gone, len(payloads))):
        messages.pop()
    messages.keep(kept)
    left = payloads[gone:][:kept]
    assert messages.payloads() == left and len(messages) == len(left)
    messages.change(lambda payload: payload + b"!", every=True)
    assert messages.payloads() == [payload + b"!" for payload in left]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_parts_of_the_next_message_stay_behind_the_whole_ones(kept: int) -> None:
    arriving = Arriving(frame_max=_FRAME_MAX)
    begun = b"".join([*transfers(1, b"whole", 9), *transfers(2, b"too", 9), transfers(3, b"abcdef", 3)[0]])
    arriving.take(begun, 0)
    messages = arriving.messages
    messages.keep(kept)
    messages.change(lambda payload: payload * 9, every=True)
    assert messages.payloads() == [b"whole" * 9, b"too" * 9][:kept]
    arriving.begin()
    assert not messages
    arriving.take(transfers(3, b"abcdef", 3)[1], 0)
    assert arriving.runs == [(3, 1)] and messages.payloads() == [b"abcdef"]
