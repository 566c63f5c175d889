"""Blocks: what goes in comes out, and nothing is decoded that was not written by us."""

from __future__ import annotations

import struct
import sys
from tempfile import TemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.batch._batch import BLOCK, PERSISTENT, RECORDS, Batch
from penstock.log_core.batch._blocks import contents, pack
from penstock.log_core.batch._crc import crc32c
from penstock.log_core.batch._scan import Scanned, Scanner

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RAW_MAX = 4 << 20


def batches(bodies: list[list[bytes]]) -> list[Batch]:
    now = 1000
    appender = Appender(lambda: now, 10, 7)
    made: list[Batch] = []
    for tick in bodies:
        for body in tick:
            appender.append_record(0, Target([]), b"key", b"props", body, PERSISTENT)
        made += appender.take_closed()
        now += 10
    return made


def unpacked(piece: bytes) -> list[Batch]:
    if Batch.parse(piece).kind == BLOCK:
        return contents(piece)
    found = []
    at = 0
    while at < len(piece):
        found.append(Batch.parse(piece[at:]))
        at += found[-1].nbytes
    return found


@given(
    ticks=st.lists(
        st.lists(st.builds(lambda text, times: text * times, st.binary(max_size=20), st.integers(0, 9000)))
    ),
    level=st.sampled_from([0, 1, 3]),
)
def test_packed_batches_are_unpacked_unchanged(ticks: list[list[bytes]], level: int) -> None:
    made = batches(ticks)
    pieces = pack(b"".join(map(bytes, made)), level)
    found = [batch for piece, _, _ in pieces for batch in unpacked(piece)]
    assert list(map(bytes, found)) == list(map(bytes, made))
    for piece, lsn, time_ms in pieces:
        first = unpacked(piece)[0]
        assert (lsn, time_ms) == (first.base_lsn, first.max_ts)
        assert len(piece) % 32 == 0


def packed_alike() -> tuple[list[Batch], list[bytes]]:
    """Batches of alike records, so many that they need several blocks."""
    made = batches([[b"sensor %d" % number * 900] for number in range(100)])
    pieces = [piece for piece, _, _ in pack(b"".join(map(bytes, made)), 3)]
    assert len(pieces) >= 3
    assert all(Batch.parse(piece).kind == BLOCK for piece in pieces)
    return made, pieces


def scanned(data: bytes, first_lsn: int, epoch: int) -> Scanned:
    with TemporaryFile() as file:
        file.write(data)
        file.flush()
        scanner = Scanner()
        scanner.read(file.fileno(), len(data))
    return scanner.scan(0, first_lsn, epoch, base=first_lsn, gaps=True)


def test_a_block_ends_where_the_next_one_begins() -> None:
    made, pieces = packed_alike()
    for piece in pieces:
        inside = contents(piece)
        first, behind = struct.unpack_from("<QQ", piece, 32)
        assert (first, behind) == (inside[0].base_lsn, inside[-1].base_lsn + inside[-1].count)
    found = scanned(b"".join(pieces), made[0].base_lsn, 7)
    assert (found.reason, found.next_lsn, found.records) == (None, made[-1].base_lsn + 1, 100)


def test_a_block_that_counts_a_batch_of_the_next_one_is_read() -> None:
    """Blocks were written so, once."""
    made, pieces = packed_alike()
    for number, piece in enumerate(pieces[:-1]):
        old = bytearray(piece)
        struct.pack_into("<Q", old, 40, Batch.parse(pieces[number + 1]).base_lsn + 1)
        struct.pack_into("<I", old, 4, crc32c(bytes(old[8:96])))
        pieces[number] = bytes(old)
    found = scanned(b"".join(pieces), made[0].base_lsn, 7)
    assert (found.reason, found.next_lsn, found.records) == (None, made[-1].base_lsn + 1, 100)


def test_incompressible_data_stay_unchanged() -> None:
    import random

    data = b"".join(map(bytes, batches([[random.Random(1).randbytes(100_000)]])))
    assert [piece for piece, _, _ in pack(data, 3)] == [data]


def test_one_batch_larger_than_a_block_may_be_stays_as_it_is() -> None:
    data = b"".join(map(bytes, batches([[bytes(RAW_MAX + 1)]])))
    assert [piece for piece, _, _ in pack(data, 3)] == [data]


def test_no_block_decodes_to_more_than_its_bound() -> None:
    data = b"".join(map(bytes, batches([[bytes(20_000)] * 400])))
    pieces = [piece for piece, _, _ in pack(data, 3)]
    assert len(pieces) > 3
    for piece in pieces:
        assert sum(batch.nbytes for batch in contents(piece)) <= RAW_MAX


def forged(*, raw: int | None = None, frame: bytes | None = None, **fields: int) -> bytes:
    """A block with other fields or another frame, and CRCs that fit."""
    ((piece, _, _),) = pack(b"".join(map(bytes, batches([[bytes(5000)] * 3]))), 3)
    head = bytearray(piece[:96])
    if frame is None:
        frame = piece[96 : 96 + int.from_bytes(head[88:92], "little")]
    if raw is not None:
        head[92:96] = raw.to_bytes(4, "little")
    places = {"kind": (17, 1), "codec": (18, 1), "count": (84, 4), "base_lsn": (32, 8), "base_pos": (40, 8)}
    for name, value in fields.items():
        at, size = places[name]
        head[at : at + size] = value.to_bytes(size, "little")
    length = (96 + len(frame) + 31) & ~31
    head[0:4] = length.to_bytes(4, "little")
    head[12:16] = crc32c(frame).to_bytes(4, "little")
    head[88:92] = len(frame).to_bytes(4, "little")
    head[4:8] = crc32c(bytes(head[8:96])).to_bytes(4, "little")
    return bytes(head) + frame.ljust(length - 96, b"\0")


def test_the_forger_can_make_a_good_block() -> None:
    assert [batch.kind for batch in contents(forged())] == [RECORDS]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(forged(raw=100), id="decodes to more than it says"),
        pytest.param(forged(raw=1_000_000), id="decodes to less"),
        pytest.param(forged(raw=0), id="decodes to nothing"),
        pytest.param(forged(raw=RAW_MAX + 1), id="says more than the bound"),
        pytest.param(forged(frame=zstd.compress(bytes(1 << 30), 1)), id="a bomb"),
        pytest.param(forged(frame=b"no frame at all"), id="no frame"),
        pytest.param(forged(frame=b""), id="empty"),
        pytest.param(forged(codec=0), id="another codec"),
        pytest.param(forged(codec=1), id="an unknown codec"),
        pytest.param(forged(count=1), id="records of its own"),
        pytest.param(forged(base_pos=10), id="no LSNs"),
        pytest.param(forged(base_pos=12), id="fewer LSNs than are in it"),
        pytest.param(forged(base_lsn=11), id="it begins later than what is in it"),
        pytest.param(forged(kind=1), id="another kind"),
    ],
)
def test_a_block_that_is_not_what_it_says_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError):
        contents(block)


def test_every_flipped_byte_of_a_block_is_found_before_it_is_decoded() -> None:
    good = forged()
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0x10
        with pytest.raises(ValueError, match="no valid batch"):
            contents(damaged)
