"""The same frames over the kernel and over Python: the same records, outcomes, deliveries and errors.

Each example is some reads of one connection, run once as it is and once with a scanner that takes nothing and
links that encode nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocols.amqp10.channel.outgoing import OutgoingLink
from penstock.protocols.amqp10.codec.encoding import encode
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Disposition,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    encode_composite,
)
from penstock.protocols.amqp10.codec.values import UByte, UInt
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_messages import damaged, messages
from tests.support.amqp10_session import Peer
from tests.support.amqp_session import World
from tests.support.examples import histories

_QUEUE, _FULL = "q", "full"
_TARGETS = (
    Target(_QUEUE),
    Target("/exchanges/amq.direct/nowhere"),
    Target("topic://nowhere"),
    Target(_FULL),
    Target(),
)
_RECEIVERS = (5, 6)
"""Handles of the receivers, behind those of the senders."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    # Time stands still, or a message might expire in one of two runs.
    made = World(tmp_path_factory.mktemp("paths"), clock=lambda: 1_700_000_000.0)
    yield made
    made.close()


def _frame(code: int, fields: list[Any], payload: bytes = b"", *, long: bool = False) -> bytes:
    """A performative, as a list of either form."""
    items = b"".join(one if isinstance(one, bytes) else encode(one) for one in fields)
    if long or len(items) > 254:
        found = b"\xd0" + struct.pack(">II", len(items) + 4, len(fields)) + items
    else:
        found = b"\xc0" + bytes((len(items) + 1, len(fields))) + items
    body = b"\x00\x53" + bytes((code,)) + found + payload
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


def _binary(value: bytes) -> bytes:
    return encode(value)


_BOOL = st.sampled_from((None, True, False, b"\x56\x01", b"\x56\x00"))
_NUMBER = st.sampled_from((0, 1, 2, 3, 5, 300, 2**32 - 1)).map(UInt)
_HANDLE = st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4, 5, 9, 300))


@st.composite
def _transfers(draw: st.DrawFn) -> list[bytes]:
    """A message in a frame, or in up to three."""
    handle = draw(_HANDLE)
    number = draw(st.none() | _NUMBER | st.just(b"\x70\x00\x00\x00\x07"))
    tag = draw(st.none() | st.binary(max_size=4).map(_binary))
    fields: list[Any] = [UInt(handle), number, tag, draw(st.sampled_from((None, UInt(0)))), draw(_BOOL)]
    payload = draw(messages() | messages() | damaged())
    long = draw(st.booleans())
    how = draw(st.integers(0, 9))
    if how in (0, 5, 6):
        cuts = sorted(draw(st.lists(st.integers(0, len(payload)), min_size=1, max_size=2)))
        parts = [payload[low:high] for low, high in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        state = draw(st.sampled_from((None, None, None, None, encode_composite(Accepted()))))
        begun = [*fields, True, None, state]
        if state is None:
            begun = begun[: draw(st.sampled_from((6, 7, 8)))]
        ended = [UInt(handle), None, None, None, draw(_BOOL), draw(st.sampled_from((None, False)))]
        if draw(st.integers(0, 4)) == 0:
            ended += [None, None, None, draw(st.booleans())]
        middle = [UInt(handle), draw(st.none() | _NUMBER), None, None, draw(_BOOL), True]
        return [
            _frame(0x14, begun, parts[0], long=long),
            *(_frame(0x14, middle, part) for part in parts[1:-1]),
            _frame(0x14, draw(st.sampled_from((ended, ended[:5], ended[:1]))), parts[-1]),
        ]
    if how == 1:
        fields += [
            draw(_BOOL.filter(lambda more: more not in (True, b"\x56\x01"))),
            draw(st.sampled_from((None, UByte(0)))),
        ]
    elif how == 2:
        fields += [None, None, draw(st.sampled_from((None, encode_composite(Accepted()))))]
        fields += [None, draw(st.sampled_from((None, False))), draw(_BOOL)]
    return [
        _frame(0x14, fields[: draw(st.sampled_from((2, 3, len(fields), len(fields))))], payload, long=long)
    ]


_OUTCOMES = st.sampled_from(
    (
        None,
        Accepted(),
        Accepted(),
        Released(),
        Rejected(),
        Modified(),
        Modified(True),
        Modified(undeliverable_here=True),
    )
)


@st.composite
def _dispositions(draw: st.DrawFn) -> list[bytes]:
    state = draw(_OUTCOMES)
    found = Disposition(
        draw(st.sampled_from((True, True, True, False))),
        draw(st.integers(0, 12)),
        draw(st.none() | st.integers(0, 12) | st.just(2**32 - 1)),
        draw(st.booleans()),
        state,
    )
    encoded = None if state is None else encode_composite(state)
    fields = [
        found.role,
        UInt(found.first),
        None if found.last is None else UInt(found.last),
        found.settled,
        encoded,
    ]
    return [_frame(0x15, fields, long=draw(st.booleans()))]


@st.composite
def _flows(draw: st.DrawFn) -> list[bytes]:
    fields: list[Any] = [draw(_NUMBER), draw(_NUMBER), UInt(0), UInt(100)]
    if draw(st.booleans()):
        fields += [
            UInt(draw(st.sampled_from((0, 5, 6, 6, 9)))),
            draw(st.none() | _NUMBER),
            draw(st.none() | _NUMBER),
        ]
        fields += draw(st.sampled_from(([], [None], [None, False, True], [None, False])))
    return [_frame(0x13, fields, long=draw(st.booleans()))]


_READS = st.lists(
    st.lists(st.one_of(_transfers(), _transfers(), _transfers(), _dispositions(), _flows()), max_size=6).map(
        lambda frames: b"".join(one for some in frames for one in some)
    ),
    min_size=1,
    max_size=4,
)


def _run(world: World, reads: list[bytes], *, kernel: bool) -> tuple[Any, ...]:
    """The state in the end, frames of each read, totals, records of the queues."""
    peer = Peer(world)
    peer.declare(_QUEUE)
    peer.declare(_FULL, max_length=1, overflow="reject-publish")
    if not kernel:
        peer.session.scan = lambda _buffer, at, _size: at  # type: ignore[method-assign]
    for target in _TARGETS:
        peer.attach(target)
    for settled in (0, 1):
        handle = peer.attach(Source(_QUEUE), snd_settle_mode=settled)
        link = peer.session.channels[0].links[handle]
        assert isinstance(link, OutgoingLink)
        link.filtered = not kernel
        peer.credit(handle, 3)
    peer.got()
    seen: list[Any] = []
    for read in reads:
        buffer = bytearray(read)
        done = peer.session.receive(buffer, len(buffer))
        world.tick.schedule()
        seen.append((done, peer.session.want))
        world.turn()
        peer.session.durable(True)
        seen.extend(_told(peer))
    session = peer.session
    state = session.state
    totals = session.published, session.delivered, session.confirmed, session.acknowledged, session.gathered
    channels = [
        (one.window, one.remote_window, one.next_incoming, one.unsettled) for one in session.channels.values()
    ]
    links = [
        (handle, link.delivery_count, link.credit if not callable(link.credit) else link.link_credit)  # type: ignore[union-attr]
        for one in session.channels.values()
        for handle, link in one.links.items()
    ]
    world.clients.remove(peer)
    session.lost()
    records = [_records(world, name) for name in (_QUEUE, _FULL)]
    return state, session.failure, seen, totals, channels, links, records


def _told(peer: Peer) -> list[Any]:
    """Frames in their order; dispositions delivery by delivery behind them, whatever their ranges are."""
    frames, outcomes = [], []
    for performative, payload in zip(peer.got(), peer.payloads, strict=True):
        if isinstance(performative, Disposition) and performative.role:
            last = performative.first if performative.last is None else performative.last
            outcomes += [(number, repr(performative.state)) for number in range(performative.first, last + 1)]
        else:
            frames.append(
                (repr(performative), [(code, repr(value)) for code, value, _ in s.read_sections(payload)])
            )
    return [*frames, *sorted(outcomes)]


def _records(world: World, name: str) -> list[Any]:
    """The records of a queue, which ends."""
    world.turn()
    queue = world.broker.vhost("/").queues[name].queue
    found = []
    while queue.cursor.take(1024):
        for at, (_, _, _, count, redelivered) in enumerate(queue.cursor.records()):
            batch, index = queue.cursor.record(at)
            record = batch.record(index)
            fields = (
                record.key,
                record.props,
                record.body,
                record.flags,
                record.priority,
                record.enc,
                record.ttl,
            )
            found.append((*fields, count, redelivered))
    world.broker.vhost("/").delete_queue(name, Peer(world).session.actor)
    world.clients.pop().session.lost()
    return found


@settings(max_examples=histories(40))
@given(_READS)
def test_a_kernel_changes_nothing_but_the_time(world: World, reads: list[bytes]) -> None:
    assert _run(world, reads, kernel=True) == _run(world, reads, kernel=False)
