# cython: auto_pickle=False
"""Blocks: runs of batches of a sealed segment, compressed together with zstd.

A block is a batch of kind BLOCK without records of its own. Its blob is one zstd frame, its CRC that of the
frame, so that nothing is decoded that is not what was written; `raw` in its header says how many bytes come
out, at most 4 MiB, and no more are taken. The result is whole batches of records, as they would lie in
the file without it. A reader that wants one of them reads and decodes one block.

    | header 96: kind 5, codec 2, count 0, base_lsn = first LSN, base_pos = LSN behind the last record |
    | zstd frame, blob_raw bytes | zeros to a multiple of 32 |

Runs that do not get an eighth smaller stay as they are. Knows nothing of files.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.log_core.batch._batch cimport (
    BATCH_HEADER, BATCH_MAGIC, BLOCK_RAW_MAX, CODEC_ZSTD, KIND_BLOCK, KIND_RECORDS, BatchHeader, Found, Slab, check_batch, padded, view_batch,
)
from penstock.log_core.batch._crc cimport crc32c_of

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

cdef enum:
    STRETCH_BYTES = 65536            # between two marks where nothing is compressed

# A frame that wants a larger window than a block can fill is none of ours.
cdef dict DECODING = {zstd.DecompressionParameter.window_log_max: 22}


cdef bytes unpack(const BatchHeader* block):
    # The content of a block. ValueError: it does not decode, or not to what it says.
    cdef bytes raw
    stored = PyBytes_FromStringAndSize(<const char*>block + block.blob_off, block.blob_raw)
    decoder = zstd.ZstdDecompressor(options=DECODING)
    try:
        raw = decoder.decompress(stored, max_length=<size_t>block.raw + 1)
    except zstd.ZstdError as error:
        raise ValueError(f"a block that does not decode ({error})") from None
    if PyBytes_GET_SIZE(raw) != block.raw or not decoder.eof or decoder.unused_data:
        raise ValueError("a block of another size than it says")
    return raw


@cython.final
cdef class Walker:
    cdef void start(self, const uint8_t* data, size_t size, size_t at) noexcept nogil:
        self.data = data
        self.size = size
        self.at = self.place = at
        self.block = NULL

    cdef bint inside(self) noexcept nogil:
        # Whether the block it is in has more.
        return self.block != NULL and self.raw_at < self.block.raw

    cdef const BatchHeader* next(self) noexcept nogil:
        # The next batch that is no block; NULL at the end and at damage.
        cdef const BatchHeader* header
        cdef int failed
        self.found.reason = NULL
        while True:
            if self.inside():
                return self.next_inside()
            self.block = NULL
            if self.at >= self.size or check_batch(self.data + self.at, self.size - self.at, &self.found) != 1:
                return NULL
            header = <const BatchHeader*>(self.data + self.at)
            self.place = self.at
            self.at += header.len
            if header.kind != KIND_BLOCK:
                return header
            with gil:
                failed = self.enter(header)
            if failed:
                return NULL

    cdef int enter(self, const BatchHeader* block) noexcept:
        # Go on with what a valid block holds; -1: nothing can be got out of it.
        try:
            self.raw = unpack(block)
        except ValueError:
            self.found.reason = b"a block that does not decode"
            return -1
        except MemoryError:
            self.found.reason = b"no memory for a block"
            return -1
        self.raw_data = <const uint8_t*>PyBytes_AS_STRING(self.raw)
        self.raw_at = 0
        self.block = block
        return 0

    cdef const BatchHeader* next_inside(self) noexcept nogil:
        # The next batch of the block it is in; NULL at its end and when it is not what may be in a block.
        cdef const uint8_t* p = self.raw_data + self.raw_at
        cdef const BatchHeader* header = <const BatchHeader*>p
        self.found.reason = NULL
        if not self.inside():
            return NULL
        if (check_batch(p, self.block.raw - self.raw_at, &self.found) != 1 or header.kind != KIND_RECORDS
                or header.shard_epoch != self.block.shard_epoch or header.base_lsn < self.block.base_lsn
                or header.base_lsn + header.count > self.block.base_pos):
            self.found.reason = b"a block with something else in it than batches of its LSNs"
            return NULL
        self.raw_at += header.len
        return header


def contents(data not None):
    cdef const uint8_t[::1] view = data
    cdef Found found
    cdef const BatchHeader* header
    cdef list batches = []
    if view.shape[0] < BATCH_HEADER or check_batch(&view[0], <size_t>view.shape[0], &found) != 1:
        raise ValueError("no valid batch")
    header = <const BatchHeader*>&view[0]
    if header.kind != KIND_BLOCK:
        raise ValueError("no block")
    take_contents(header, batches, 0)
    return batches


cdef int take_contents(const BatchHeader* block, list batches, uint64_t from_lsn) except -1:
    cdef Walker walker = Walker()
    cdef const BatchHeader* header
    cdef Slab slab = Slab.__new__(Slab)
    walker.start(NULL, 0, 0)
    if walker.enter(block) < 0:
        raise ValueError(walker.found.reason.decode())
    slab.owner = walker.raw
    slab.data = <uint8_t*>walker.raw_data
    slab.size = slab.used = block.raw
    while True:
        header = walker.next_inside()
        if header == NULL:
            break
        if header.base_lsn + header.count > from_lsn:
            batches.append(view_batch(<const uint8_t*>header, slab))
    if walker.found.reason != NULL:
        raise ValueError(walker.found.reason.decode())
    return 0


def pack(data not None, int level):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t* p
    cdef size_t size = <size_t>view.shape[0], start = 0, end, length, limit
    cdef const BatchHeader* first
    cdef const BatchHeader* last
    cdef const BatchHeader* header
    cdef int64_t max_ts = 0, until
    cdef list pieces = []
    cdef bytes stored
    if size == 0:
        return pieces
    p = &view[0]
    limit = BLOCK_BYTES if level else STRETCH_BYTES
    compressor = zstd.ZstdCompressor(level=level) if level else None
    while start < size:
        first = last = <const BatchHeader*>(p + start)
        until = max(max_ts, first.max_ts)
        end = start
        while end < size:
            header = <const BatchHeader*>(p + end)
            length = header.len
            if length < BATCH_HEADER or length > size - end:
                raise ValueError(f"no batch at byte {end}")
            if end > start and end + length - start > limit:
                break
            last = header
            max_ts = max(max_ts, last.max_ts)
            end += length
        stored = None
        if compressor is not None and end - start <= BLOCK_RAW_MAX:
            stored = compressor.compress(data[start:end], zstd.ZstdCompressor.FLUSH_FRAME)
        if stored is not None and BATCH_HEADER + PyBytes_GET_SIZE(stored) < <Py_ssize_t>((end - start) // 8 * 7):
            piece = block_of(first, last, end - start, max_ts, stored)
        else:
            piece = bytes(data[start:end])
        pieces.append((piece, first.base_lsn, until))
        start = end
    return pieces


cdef bytes block_of(const BatchHeader* first, const BatchHeader* last, size_t raw, int64_t max_ts, bytes stored):
    cdef size_t size = <size_t>PyBytes_GET_SIZE(stored), length = padded(BATCH_HEADER + size)
    cdef bytes block = PyBytes_FromStringAndSize(NULL, length)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(block)
    cdef BatchHeader* header = <BatchHeader*>at
    memset(at, 0, BATCH_HEADER)
    memcpy(at + BATCH_HEADER, PyBytes_AS_STRING(stored), size)
    memset(at + BATCH_HEADER + size, 0, length - BATCH_HEADER - size)
    header.len = <unsigned int>length
    header.blob_off = BATCH_HEADER
    header.blob_crc = crc32c_of(0, at + BATCH_HEADER, size)
    header.magic = BATCH_MAGIC
    header.kind = KIND_BLOCK
    header.codec = CODEC_ZSTD
    header.lp = first.lp
    header.shard_epoch = first.shard_epoch
    header.base_lsn = first.base_lsn
    header.base_pos = last.base_lsn + last.count
    header.synced_lsn = last.synced_lsn
    header.base_ts = first.base_ts
    header.max_ts = max_ts
    header.blob_raw = <unsigned int>size
    header.raw = <unsigned int>raw
    header.head_crc = crc32c_of(0, at + 8, BATCH_HEADER - 8)
    return block
